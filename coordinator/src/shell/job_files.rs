//! The jobs directory: every `*.toml` in it becomes a job. A file that fails is shown in the status and retried.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use spdl_control::messages::FromCoordinator;
use spdl_job::{JobFile, MAX_JOB_FILE_BYTES};

use spdl_shard::resolve_dataset;

use super::driver::Driver;
use crate::error_text;

/// The interval at which new files, and files that failed, are loaded.
const RETRY: Duration = Duration::from_secs(5);
/// The submitter of the files, as errors name it.
const SUBMITTER: &str = "the jobs directory";
/// The largest number of files of the directory that are loaded.
const MAX_FILES: usize = 1_000;

/// Loads the files of the directory, and retries those that failed. Runs until it is dropped.
pub(crate) async fn watch(driver: Arc<Driver>, directory: PathBuf) {
    let mut loaded = BTreeSet::new();
    let mut problems: BTreeMap<PathBuf, String> = BTreeMap::new();
    loop {
        let (files, mut found) = match list(&directory).await {
            Ok(files) => (files, BTreeMap::new()),
            Err(error) => {
                let problem = format!("jobs directory `{}` cannot be read: {error}", directory.display());
                (Vec::new(), BTreeMap::from([(directory.clone(), problem)]))
            }
        };
        for file in files.into_iter().filter(|file| !loaded.contains(file)).collect::<Vec<_>>() {
            match load(&driver, &file).await {
                Ok(()) => {
                    loaded.insert(file);
                }
                Err(problem) => {
                    found.insert(file, problem);
                }
            }
        }
        show(&driver, &problems, &found);
        problems = found;
        tokio::time::sleep(RETRY).await;
    }
}

/// Updates the problems in the status, and logs the new ones.
fn show(driver: &Driver, before: &BTreeMap<PathBuf, String>, found: &BTreeMap<PathBuf, String>) {
    for file in before.keys().filter(|file| !found.contains_key(*file)) {
        driver.set_problem(&file.to_string_lossy(), None);
    }
    for (file, problem) in found.iter().filter(|(file, problem)| before.get(*file) != Some(problem)) {
        tracing::warn!("{problem}; it is tried again every {} s", RETRY.as_secs());
        driver.set_problem(&file.to_string_lossy(), Some(problem.clone()));
    }
}

async fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries = tokio::fs::read_dir(directory).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "toml") && files.len() < MAX_FILES {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

async fn load(driver: &Driver, file: &Path) -> Result<(), String> {
    let origin = file.to_string_lossy();
    let read = async {
        let bytes = tokio::fs::metadata(file).await?.len();
        if bytes > MAX_JOB_FILE_BYTES as u64 {
            return Err(io::Error::other(format!("it is {bytes} bytes; the most is {MAX_JOB_FILE_BYTES}")));
        }
        tokio::fs::read_to_string(file).await
    };
    let text = read.await.map_err(|error| format!("job file `{origin}` cannot be read: {}", error_text(&error)))?;
    // Text that cannot be parsed is refused below, with the same error as any other job file.
    let text = match JobFile::parse(&text, &origin) {
        Ok(job) => toml::to_string(&resolve_dataset(job, file)).unwrap_or(text),
        Err(_) => text,
    };
    match driver.create_job(SUBMITTER, &text, &origin).await {
        FromCoordinator::Refused(refusal) => Err(refusal.to_string()),
        _ => Ok(()),
    }
}
