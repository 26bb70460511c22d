//! Reads job files.

use std::path::{Component, Path, PathBuf};

use spdl_job::{JobError, JobFile, MAX_JOB_FILE_BYTES};

/// Reads the job file at `path`. If the path of a dataset is relative, it is relative to the folder of the file.
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

/// Resolves the job's relative paths, those of its datasets and its lists of keys, against the folder of the job file at `path`.
#[must_use]
pub fn resolve_dataset(mut job: JobFile, path: &Path) -> JobFile {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    let Some(folder) = folder else { return job };
    let sources = job.source.iter_mut().map(|source| (&mut source.dataset, &mut source.view));
    for (dataset, view) in std::iter::once((&mut job.dataset, &mut job.view)).chain(sources) {
        if let Some(keys) = view.as_mut().and_then(|view| view.keys.as_mut()) {
            *keys = folder.join(&*keys).display().to_string();
        }
        resolve(dataset, &folder);
    }
    job.sound_datasets().for_each(|dataset| resolve(&mut dataset.url, &folder));
    job
}

/// Resolves the path of a dataset against a folder, if it is relative.
fn resolve(dataset: &mut String, folder: &Path) {
    let is_relative = !dataset.is_empty() && !dataset.contains("://") && Path::new(&dataset).is_relative();
    if is_relative {
        // `./data` and `data` must compare as the same dataset.
        let parts = folder.components().chain(Path::new(&dataset).components());
        let parts = parts.filter(|part| *part != Component::CurDir);
        *dataset = parts.collect::<PathBuf>().display().to_string();
    }
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
        let source = "[[source]]\nname = \"web\"\ndataset = \"web\"\nweight = 1\nview = { keys = \"keys.txt\" }\n";
        std::fs::write(&path, format!("name = \"a\"\nglobal_batch = 8\n{source}")).unwrap();
        let job = read_job_file(&path).unwrap();
        let keys = job.source[0].view.as_ref().unwrap().keys.as_deref();
        assert_eq!((job.source[0].dataset.as_str(), keys), (&*inside("jobs/web"), Some(&*inside("jobs/keys.txt"))));
        let sounds = "[[column]]\nname = \"w\"\nfrom = \"wav\"\ndecode = \"audio\"\nops = [{ reverb = \"rooms\" }]\n";
        std::fs::write(&path, format!("name = \"a\"\ndataset = \"d\"\nglobal_batch = 8\n{sounds}")).unwrap();
        let mut job = read_job_file(&path).unwrap();
        assert_eq!(job.sound_datasets().next().unwrap().url, inside("jobs/rooms"));
        let error = read_job_file(&path.with_extension("json")).unwrap_err().to_string();
        assert!(error.contains("a.json` cannot be read"), "{error}");
    }
}
