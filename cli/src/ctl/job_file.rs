//! Opens a job file and its dataset, for `plan`, `replay` and `audit`.

use spdl_shard::read_job_file;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use spdl_control::messages::Refusal;
use spdl_dataset::{
    DatasetError, Misfits, misfits,
    view::{EvaluatedView, Undecided, evaluate},
};
use spdl_job::{Job, JobFile, ViewFile, redact};
use spdl_order::{BatchParams, OrderParams, Plan, PlanError, view::SampleSet};
use spdl_shard::{manifest::Manifest, store::DatasetStore, view::open_view};
use spdl_types::Position;
use spdl_worker::feed::StoreAccess;

use super::{CtlError, output, progress::ProgressLine};

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
    /// The samples of the view, if the job has one.
    view: Option<Arc<SampleSet>>,
}

fn plan_of(
    job: &Job,
    manifest: &Manifest,
    view: Option<&Arc<SampleSet>>,
    order: OrderParams,
) -> Result<Plan, PlanError> {
    let blocks = manifest.block_samples();
    match view {
        None => Plan::new(&blocks, job.seed, order),
        Some(view) => Plan::of_view(&blocks, view, job.seed, order),
    }
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
    let undecided_allowed = file.undecided_allowed(manifest.records());
    let (facts, view) = match &mut file.view {
        None => (manifest.facts(), None),
        Some(view) => {
            let evaluated = evaluated(&store, &manifest, view, undecided_allowed).await?;
            (evaluated.facts, Some(evaluated.set))
        }
    };
    let job = file.freeze(&facts)?;
    refuse_misfits(&store, &manifest, &job, view.as_deref()).await?;
    OpenJob::new(job, manifest, view)
}

/// Refuses a job that names what its dataset does not have, and warns of what most of its samples lack.
pub(crate) async fn refuse_misfits(
    store: &DatasetStore,
    manifest: &Manifest,
    job: &Job,
    view: Option<&SampleSet>,
) -> Result<(), CtlError> {
    let Misfits { error, warnings } = misfits(store, manifest, job, view).await?;
    warnings.iter().for_each(|warning| output::warn(warning));
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Evaluates a view, with a progress bar, and notes its result in it. A result that is noted already must be the same.
pub(crate) async fn evaluated(
    store: &DatasetStore,
    manifest: &Manifest,
    view: &mut ViewFile,
    undecided_allowed: u64,
) -> Result<EvaluatedView, CtlError> {
    let bar = ProgressLine::of_dataset(false, "evaluating view");
    let evaluated = evaluate(store, manifest, view, undecided_allowed, &|progress| bar.dataset_at(progress)).await?;
    if let Undecided { records, first: Some(first) } = &evaluated.undecided {
        output::warn(&format!("the view leaves out {records} of the dataset's records, which cannot be read: {first}"));
    }
    if let Some(missing) = &evaluated.missing_keys {
        output::warn(&missing.to_string());
    }
    match view.samples.replace(evaluated.samples) {
        Some(samples) if samples != evaluated.samples => {
            let problem = format!("is {samples}; evaluating it gives {}", evaluated.samples);
            Err(DatasetError::View { key: "samples", problem }.into())
        }
        _ => Ok(evaluated),
    }
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
    let view = match job.view {
        None => None,
        Some(view) => Some(open_view(&store, &manifest, view).await?),
    };
    OpenJob::new(job, manifest, view)
}

impl OpenJob {
    fn new(job: Job, manifest: Manifest, view: Option<Arc<SampleSet>>) -> Result<Self, CtlError> {
        let plan = plan_of(&job, &manifest, view.as_ref(), job.order)?;
        Ok(Self { job, manifest, plan, view })
    }

    /// Returns the plan that the job would have with other parameters of the order.
    pub(crate) fn plan_with(&self, order: OrderParams) -> Result<Plan, PlanError> {
        plan_of(&self.job, &self.manifest, self.view.as_ref(), order)
    }

    /// Refuses a start that is not in the stream, by the coordinator's rules.
    pub(crate) fn check_start(&self, global_batch: u32, start: Position) -> Result<(), CtlError> {
        let problem = self.job.start_problem(global_batch, start);
        problem
            .map_or(Ok(()), |cause| Err(Refusal::StartOutOfRange { job: self.job.name.clone(), start, cause }.into()))
    }

    /// Returns how the job's dataset is read: the samples of its view need not be stored.
    pub(crate) fn stores(&self) -> StoreAccess {
        StoreAccess { views: self.view.iter().cloned().collect(), ..StoreAccess::default() }
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
