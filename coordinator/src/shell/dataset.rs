//! From a job file's text to a frozen job: reads the dataset's manifest.

use std::time::Duration;

use spdl_shard::{
    job::{DatasetFacts, Job, JobError, JobFile},
    store::DatasetStore,
};
use spdl_wire::messages::Refusal;
use tokio::sync::Semaphore;

/// Manifests that are read at once: each is held in memory while it is checked.
const MANIFESTS_AT_ONCE: usize = 2;
/// What reading a manifest may take before whoever asked is told that it did not work.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads manifests, a few at once.
pub(crate) struct Datasets {
    permits: Semaphore,
}

impl Default for Datasets {
    fn default() -> Self {
        Self { permits: Semaphore::new(MANIFESTS_AT_ONCE) }
    }
}

impl Datasets {
    /// The job that a job file describes.
    pub(crate) async fn freeze(&self, toml: &str, origin: &str) -> Result<Job, Refusal> {
        let invalid = |job: &str, cause: String| Refusal::JobInvalid { job: job.to_owned(), cause };
        let file = JobFile::parse(toml, origin).map_err(|error| match error {
            JobError::Syntax { source, .. } => invalid(origin, source.to_string().trim_end().to_owned()),
            other => invalid(origin, other.to_string()),
        })?;
        let named = |error| invalid(&file.name, format!("job file `{origin}`: {error}"));
        file.check().map_err(|error| named(error.to_string()))?;
        let _permit = self.permits.acquire().await.expect("it is never closed");
        let facts = tokio::time::timeout(MANIFEST_TIMEOUT, facts(&file.dataset)).await.unwrap_or_else(|_| {
            Err(format!(
                "dataset `{}`: its manifest could not be read in {} s",
                file.dataset,
                MANIFEST_TIMEOUT.as_secs()
            ))
        });
        file.freeze(&facts.map_err(named)?).map_err(|error| invalid(&file.name, error.to_string()))
    }
}

async fn facts(dataset: &str) -> Result<DatasetFacts, String> {
    let text = |error: spdl_shard::store::StoreError| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    let store = DatasetStore::open(dataset).map_err(text)?;
    Ok(store.manifest().await.map_err(text)?.facts())
}
