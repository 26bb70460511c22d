//! Reads job files.

use std::path::{Component, Path, PathBuf};

use spdl_job::{JobError, JobFile, MAX_JOB_FILE_BYTES};

/// Reads the job file at `path`. If its `dataset` is a relative path, it is relative to the folder of the file.
///
/// # Errors
/// [`JobError::Unreadable`], and the errors of [`JobFile::parse`].
pub fn read_job_file(path: &Path) -> Result<JobFile, JobError> {
    let shown = path.display().to_string();
    let fail = |source| JobError::Unreadable { path: shown.clone(), source };
    let bytes = std::fs::metadata(path).map_err(fail)?.len();
    if bytes > MAX_JOB_FILE_BYTES as u64 {
        return Err(JobError::TooLong { origin: shown, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) });
    }
    let text = std::fs::read_to_string(path).map_err(fail)?;
    Ok(resolve_dataset(JobFile::parse(&text, &shown)?, path))
}

/// Resolves the job's relative paths, its `dataset` and its list of keys, against the folder of the job file at `path`.
#[must_use]
pub fn resolve_dataset(mut job: JobFile, path: &Path) -> JobFile {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    if let (Some(folder), Some(keys)) = (&folder, job.view.as_mut().and_then(|view| view.keys.as_mut())) {
        *keys = folder.join(&*keys).display().to_string();
    }
    let is_relative = !job.dataset.is_empty() && !job.dataset.contains("://") && Path::new(&job.dataset).is_relative();
    if let Some(folder) = folder.filter(|_| is_relative) {
        // `./data` and `data` must compare as the same dataset.
        let parts = folder.components().chain(Path::new(&job.dataset).components());
        let parts = parts.filter(|part| *part != Component::CurDir);
        job.dataset = parts.collect::<PathBuf>().display().to_string();
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_dataset_is_relative_to_its_job_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs/a.toml");
        std::fs::create_dir(folder.path().join("jobs")).unwrap();
        let inside = |name: &str| folder.path().join(name).display().to_string();
        for (written, expected) in [
            ("packed", inside("jobs/packed")),
            ("./packed", inside("jobs/packed")),
            ("../packed", inside("jobs/../packed")),
            ("/data/packed", "/data/packed".to_owned()),
            ("s3://bucket/packed", "s3://bucket/packed".to_owned()),
            ("", String::new()),
        ] {
            let column = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
            let text =
                format!("name = \"a\"\ndataset = \"{written}\"\nseed = 1\nglobal_batch = 8\nepochs = 1\n{column}");
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_job_file(&path).unwrap().dataset, expected, "{written}");
        }
        let error = read_job_file(&path.with_extension("json")).unwrap_err().to_string();
        assert!(error.contains("a.json` cannot be read"), "{error}");
    }
}
