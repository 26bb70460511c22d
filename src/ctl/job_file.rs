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

/// Reads a job file.
pub(crate) fn read(path: &Path) -> Result<JobFile, CtlError> {
    Ok(JobFile::open(path)?)
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
