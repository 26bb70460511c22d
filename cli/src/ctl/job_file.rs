//! Opens a job file and its dataset, for `plan`, `replay` and `audit`.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use spdl_control::messages::Refusal;
use spdl_dataset::{Misfits, misfits};
use spdl_job::{Job, JobFile, redact};
use spdl_order::{BatchParams, OrderParams, Plan, PlanError};
use spdl_shard::{manifest::Manifest, read_job_file, samples::JobSamples, store::DatasetStore};
use spdl_types::Position;
use spdl_worker::feed::StoreAccess;

use super::{CtlError, output, progress::ProgressLine};
use crate::evaluated::{EvaluatedJob, evaluate_job};

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
    /// Its view and its sequences, if it has any.
    pub(crate) evaluated: EvaluatedJob,
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
    let evaluated = evaluated(&store, &manifest, &mut file).await?;
    let job = file.freeze(&evaluated.samples.facts(&manifest))?;
    refuse_misfits(&store, &manifest, &job, &evaluated.samples).await?;
    OpenJob::new(job, manifest, evaluated)
}

/// Refuses a job that names what its dataset does not have, and warns of what most of its samples lack.
pub(crate) async fn refuse_misfits(
    store: &DatasetStore,
    manifest: &Manifest,
    job: &Job,
    samples: &JobSamples,
) -> Result<(), CtlError> {
    let view = samples.view().map(|set| &**set);
    let Misfits { error, warnings } = misfits(store, manifest, job, view).await?;
    warnings.iter().for_each(|warning| output::warn(warning));
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Evaluates the view and the sequences of a job, with progress bars, and notes their fingerprints in its file.
pub(crate) async fn evaluated(
    store: &DatasetStore,
    manifest: &Manifest,
    file: &mut JobFile,
) -> Result<EvaluatedJob, CtlError> {
    let bar = Mutex::new(None);
    let progress = |label: &'static str, at| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        if bar.as_ref().is_none_or(|(of, _)| *of != label) {
            *bar = Some((label, ProgressLine::of_dataset(false, label)));
        }
        bar.iter().for_each(|(_, bar)| bar.dataset_at(at));
    };
    Ok(evaluate_job(file, (store, manifest), &progress, &output::warn).await?)
}

/// Opens the dataset of a job that a coordinator has frozen; refuses a dataset with another fingerprint.
pub(crate) async fn open_frozen(job: Job) -> Result<OpenJob, CtlError> {
    let store = DatasetStore::open(&job.dataset)?;
    let manifest = store.manifest().await?;
    let facts = manifest.facts();
    if facts.fingerprint != job.dataset_fingerprint {
        return Err(CtlError::DatasetDiffers {
            dataset: redact(&job.dataset).into_owned(),
            theirs: facts.fingerprint,
            job: job.name,
            ours: job.dataset_fingerprint,
        });
    }
    let pools = job.sequence.as_ref().map(|sequence| sequence.pools);
    let samples = JobSamples::open(&store, &manifest, job.view, pools).await?;
    OpenJob::new(job, manifest, EvaluatedJob { samples, made: None })
}

impl OpenJob {
    fn new(job: Job, manifest: Manifest, evaluated: EvaluatedJob) -> Result<Self, CtlError> {
        let plan = evaluated.samples.plan(&manifest, job.seed, job.order)?;
        Ok(Self { job, manifest, plan, evaluated })
    }

    /// Returns the plan that the job would have with other parameters of the order.
    pub(crate) fn plan_with(&self, order: OrderParams) -> Result<Plan, PlanError> {
        self.evaluated.samples.plan(&self.manifest, self.job.seed, order)
    }

    /// Refuses a start that is not in the stream, by the coordinator's rules.
    pub(crate) fn check_start(&self, global_batch: u32, start: Position) -> Result<(), CtlError> {
        let problem = self.job.start_problem(global_batch, start);
        problem
            .map_or(Ok(()), |cause| Err(Refusal::StartOutOfRange { job: self.job.name.clone(), start, cause }.into()))
    }

    /// Returns how the job's dataset is read: what was evaluated here need not be stored.
    pub(crate) fn stores(&self) -> StoreAccess {
        self.evaluated.stores()
    }

    /// Returns the bytes of each block of the plan: those of the dataset, or pools of them.
    pub(crate) fn block_bytes(&self) -> Vec<u64> {
        let bytes = |block| self.manifest.block(block).bytes;
        match self.evaluated.samples.sequences() {
            None => (0..self.manifest.block_count()).map(bytes).collect(),
            Some(table) => {
                let pools = table.pools();
                let of_pool = |pool| pools.blocks(pool).into_iter().flatten().map(bytes).sum();
                (0..pools.sequences().len() as u32).map(of_pool).collect()
            }
        }
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
