//! Opens a job file and its dataset, for `plan`, `replay` and `audit`.

use spdl_shard::read_job_file;
use std::path::{Path, PathBuf};

use spdl_core::{
    Position,
    job::{Job, JobFile},
    messages::Refusal,
    order::{BatchParams, Plan},
    redact,
};
use spdl_shard::{manifest::Manifest, store::DatasetStore};

use super::CtlError;

/// The argument that names a job file.
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
    Ok(read_job_file(path)?)
}

/// Opens a job file's dataset and freezes the job.
pub(crate) async fn open(path: &Path) -> Result<OpenJob, CtlError> {
    let mut file = read(path)?;
    file.check()?;
    let store = DatasetStore::open_pinned(&file.dataset).await?;
    let manifest = store.manifest().await?;
    file.dataset = store.pinned_url(&file.dataset);
    let job = file.freeze(&manifest.facts())?;
    let plan = Plan::new(&manifest.block_samples(), job.seed, job.order)?;
    Ok(OpenJob { job, manifest, plan })
}

/// Opens the dataset of a job that a coordinator has frozen; refuses a dataset with another fingerprint.
pub(crate) async fn open_frozen(job: Job) -> Result<OpenJob, CtlError> {
    let manifest = DatasetStore::open(&job.dataset)?.manifest().await?;
    let facts = manifest.facts();
    if facts.fingerprint != job.dataset_fingerprint {
        return Err(CtlError::DatasetDiffers {
            dataset: redact(&job.dataset).into_owned(),
            theirs: facts.fingerprint,
            job: job.name,
            ours: job.dataset_fingerprint,
        });
    }
    let plan = Plan::new(&manifest.block_samples(), job.seed, job.order)?;
    Ok(OpenJob { job, manifest, plan })
}

impl OpenJob {
    /// Refuses a start that is not in the stream, by the coordinator's rules.
    pub(crate) fn check_start(&self, global_batch: u32, start: Position) -> Result<(), CtlError> {
        let problem = self.job.start_problem(global_batch, start);
        problem
            .map_or(Ok(()), |cause| Err(Refusal::StartOutOfRange { job: self.job.name.clone(), start, cause }.into()))
    }

    /// Returns the bytes of all blocks of the dataset.
    pub(crate) fn dataset_bytes(&self) -> u64 {
        (0..self.manifest.block_count()).map(|block| self.manifest.block(block).bytes).sum()
    }

    /// Returns how the job cuts its stream into steps.
    pub(crate) fn batches(&self, global_batch: Option<u32>) -> BatchParams {
        self.job.batches(global_batch.unwrap_or(self.job.global_batch))
    }
}
