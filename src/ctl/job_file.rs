//! A job file and its dataset, opened: what `plan`, `replay` and `audit` start from.

use std::path::{Path, PathBuf};

use spdl_shard::{
    job::{Job, JobFile},
    manifest::Manifest,
    order::{BatchParams, Plan},
    store::DatasetStore,
};

use super::CtlError;

/// The job file, as an argument.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct JobFileArg {
    /// The job file (TOML).
    pub(crate) job: PathBuf,
}

/// A job with its dataset and plan.
pub(crate) struct OpenJob {
    pub(crate) job: Job,
    pub(crate) manifest: Manifest,
    pub(crate) plan: Plan,
}

/// Reads and checks a job file.
pub(crate) fn read(path: &Path) -> Result<JobFile, CtlError> {
    let text = std::fs::read_to_string(path).map_err(|source| CtlError::ReadFile { path: path.to_owned(), source })?;
    Ok(JobFile::parse(&text, &path.display().to_string())?)
}

/// Opens a job file's dataset and freezes the job.
pub(crate) async fn open(path: &Path) -> Result<OpenJob, CtlError> {
    let file = read(path)?;
    file.check()?;
    let manifest = DatasetStore::open(&file.dataset)?.manifest().await?;
    let job = file.freeze(&manifest.facts())?;
    let plan = Plan::new(&manifest.block_samples(), job.seed, job.order)?;
    Ok(OpenJob { job, manifest, plan })
}

impl OpenJob {
    /// How the job cuts its stream into steps.
    pub(crate) fn batches(&self, global_batch: Option<u32>) -> BatchParams {
        BatchParams {
            global_batch: global_batch.unwrap_or(self.job.global_batch),
            epochs: self.job.epochs,
            epoch_end: self.job.epoch_end,
        }
    }
}

/// A dataset as every process of the cluster can find it: paths that exist here are made absolute, URLs stay.
pub(crate) fn absolute(dataset: &str) -> String {
    if dataset.contains("://") {
        return dataset.to_owned();
    }
    std::path::absolute(dataset).map_or_else(|_| dataset.to_owned(), |path| path.display().to_string())
}
