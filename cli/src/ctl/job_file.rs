//! Opens a job file and its datasets, for `plan`, `replay` and `audit`.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use spdl_control::messages::Refusal;
use spdl_dataset::Misfits;
use spdl_job::{Job, JobFile};
use spdl_order::{BatchParams, Plan, PlanError};
use spdl_shard::{read_job_file, samples::JobSamples};
use spdl_types::Position;
use spdl_worker::feed::StoreAccess;

use super::{CtlError, output, progress::ProgressLine};
use crate::{
    datasets::{EvaluatedDatasets, FrozenError},
    evaluated::EarlierPackings,
};

/// The argument that names a job file.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct JobFileArg {
    /// The job file (TOML).
    pub(crate) job: PathBuf,
}

/// A job with its datasets and plan.
pub(crate) struct OpenJob {
    pub(crate) job: Job,
    pub(crate) plan: Plan,
    /// Its only dataset, or those of its sources.
    pub(crate) datasets: EvaluatedDatasets,
}

/// Reads a job file.
pub(crate) fn read(path: &Path) -> Result<JobFile, CtlError> {
    Ok(read_job_file(path)?)
}

/// Opens a job file's datasets and freezes the job.
pub(crate) async fn open(path: &Path) -> Result<OpenJob, CtlError> {
    open_file(read(path)?).await
}

/// Opens the datasets of a job and freezes it.
pub(crate) async fn open_file(mut file: JobFile) -> Result<OpenJob, CtlError> {
    let datasets = evaluated(&mut file).await?;
    let job = datasets.freeze(&file)?;
    refuse_misfits(&datasets, &job).await?;
    OpenJob::new(job, datasets)
}

/// Refuses a job that names what its datasets do not have, and warns of what most of their samples lack.
pub(crate) async fn refuse_misfits(datasets: &EvaluatedDatasets, job: &Job) -> Result<(), CtlError> {
    let Misfits { error, warnings } = datasets.misfits(job).await?;
    warnings.iter().for_each(|warning| output::warn(warning));
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Opens the datasets of a job, and evaluates its views and its sequences, with progress bars. Notes their fingerprints in its file.
pub(crate) async fn evaluated(file: &mut JobFile) -> Result<EvaluatedDatasets, CtlError> {
    let bar = Mutex::new(None);
    let progress = |label: &'static str, at| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        if bar.as_ref().is_none_or(|(of, _)| *of != label) {
            *bar = Some((label, ProgressLine::of_dataset(false, label)));
        }
        bar.iter().for_each(|(_, bar)| bar.dataset_at(at));
    };
    Ok(EvaluatedDatasets::open(file, EarlierPackings::Ignore, &progress, &output::warn).await?)
}

/// Opens the datasets of a job that a coordinator has frozen; refuses one with another fingerprint.
pub(crate) async fn open_frozen(job: Job) -> Result<OpenJob, CtlError> {
    match EvaluatedDatasets::open_frozen(&job).await {
        Ok(datasets) => OpenJob::new(job, datasets),
        Err(FrozenError::Store(error)) => Err(error.into()),
        Err(FrozenError::Differs { dataset, found, expected }) => {
            Err(CtlError::DatasetDiffers { dataset, theirs: found, job: job.name, ours: expected })
        }
    }
}

impl OpenJob {
    fn new(job: Job, datasets: EvaluatedDatasets) -> Result<Self, CtlError> {
        let plan = datasets.plan(&job)?;
        Ok(Self { job, plan, datasets })
    }

    /// Returns what the samples of the job are on its first dataset: its only one, unless it has sources.
    pub(crate) fn samples(&self) -> &JobSamples {
        &self.datasets.first().evaluated.samples
    }

    /// Returns the plan that the job would have with windows of at most this size.
    pub(crate) fn plan_with_window(&self, window: u64) -> Result<Plan, PlanError> {
        let mut job = self.job.clone();
        job.order.window = job.order.window.min(window);
        job.sources.iter_mut().for_each(|source| source.window = source.window.min(window));
        self.datasets.plan(&job)
    }

    /// Refuses a start that is not in the stream, by the coordinator's rules.
    pub(crate) fn check_start(&self, global_batch: u32, start: Position) -> Result<(), CtlError> {
        let problem = self.job.start_problem(global_batch, start);
        problem
            .map_or(Ok(()), |cause| Err(Refusal::StartOutOfRange { job: self.job.name.clone(), start, cause }.into()))
    }

    /// Returns how the job's datasets are read: what was evaluated here need not be stored.
    pub(crate) fn stores(&self) -> StoreAccess {
        self.datasets.stores()
    }

    /// Returns how the job cuts its stream into steps.
    pub(crate) fn batches(&self, global_batch: Option<u32>) -> BatchParams {
        self.job.batches(global_batch.unwrap_or(self.job.global_batch))
    }
}
