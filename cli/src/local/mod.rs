//! The loader in one process, without network and certificates. It delivers the same samples, bytes and receipts as a
//! cluster.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_cli::local;
//! use spdl_shard::read_job_file;
//!
//! let job = read_job_file("job.toml".as_ref())?;
//! let mut loader = local::builder(job).open().await?;
//! while let Some(batch) = loader.next().await? {
//!     let images = batch.column("image")?;
//!     println!("{} {:?}", batch.from(), images.shape());
//! }
//! # Ok(())
//! # }
//! ```

mod classes;
mod observer;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_client::{
    Batch, ClientError, Diagnoser, FreeSlot, Progress, Serving, Source, SourceEvent, StartFrom, State, WaitClock,
};
use spdl_control::messages::{Refusal, Session, StartReason};
use spdl_dataset::{DatasetError, Misfits};
use spdl_functions::FunctionRegistry;
use spdl_insight::{Transport, tuning::TuningSettings};
use spdl_job::{ENDLESS_EPOCHS, Job, JobError, JobFile};
use spdl_order::PlanError;
use spdl_store::StoreError;
use spdl_types::{Position, SessionId, StageStats};
use spdl_worker::{
    FrameAccess,
    budget::{Budget, BudgetError},
    feed::{Access, FeedError, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind, SlotFreer},
    transform::TransformSettings,
};

use crate::{
    datasets::EvaluatedDatasets,
    evaluated::{EarlierPackings, EvaluateError},
};
use observer::Observer;

/// Default time that a call waits for a batch.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Default number of slots: batches that are being filled, are ready, or are held by the trainer.
const DEFAULT_SLOTS: u32 = 4;

/// A loader whose pipeline runs in this process.
pub type LocalLoader = spdl_client::Loader<InProcess>;

/// The reason why a loader cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The job is invalid, by itself or with this dataset.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The view or the sequences cannot be evaluated.
    #[error(transparent)]
    View(#[from] DatasetError),
    /// The dataset cannot be ordered, or its epochs hold no batch of the requested size.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The budget is invalid.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The rank, the world or the state does not match the job.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The pipeline cannot start.
    #[error(transparent)]
    Feed(#[from] FeedError),
}

impl From<EvaluateError> for LocalError {
    fn from(error: EvaluateError) -> Self {
        match error {
            EvaluateError::Job(error) => Self::Job(error),
            EvaluateError::Dataset(error) => Self::View(error),
        }
    }
}

/// Settings of a [`LocalLoader`].
#[derive(Clone, Debug)]
pub struct LocalBuilder {
    job: JobFile,
    rank: u32,
    world: u32,
    start: StartFrom,
    epochs: Option<u64>,
    is_endless: bool,
    global_batch: Option<u32>,
    slots: u32,
    timeout: Duration,
    budget: Budget,
    transforms: TransformSettings,
    functions: FunctionRegistry,
    frames: Option<FrameAccess>,
    tuning: TuningSettings,
}

/// Returns a builder for a loader of this job.
#[must_use]
pub fn builder(job: JobFile) -> LocalBuilder {
    LocalBuilder::new(job)
}

impl LocalBuilder {
    /// Creates settings for the only rank of a world of one, from the beginning, with the default budget.
    fn new(job: JobFile) -> Self {
        Self {
            job,
            rank: 0,
            world: 1,
            start: StartFrom::Beginning,
            epochs: None,
            is_endless: false,
            global_batch: None,
            slots: DEFAULT_SLOTS,
            timeout: DEFAULT_TIMEOUT,
            budget: Budget::default(),
            transforms: TransformSettings::default(),
            functions: FunctionRegistry::new(),
            frames: None,
            tuning: TuningSettings::default(),
        }
    }

    /// Sets the rank and the world, and so the share of each global batch that this process takes. Default 0 of 1.
    #[must_use]
    pub const fn rank(mut self, rank: u32, world: u32) -> Self {
        (self.rank, self.world) = (rank, world);
        self
    }

    /// Sets where to start. Default: at the beginning. A loader in one process stores no positions, so it refuses
    /// `StartFrom::Resume`: give it a state instead.
    #[must_use]
    pub fn start(mut self, start: impl Into<StartFrom>) -> Self {
        self.start = start.into();
        self
    }

    /// Sets the number of epochs. Default: the job's.
    #[must_use]
    pub const fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// Sets whether a training, a job that is not an evaluation, runs without end if no number of epochs is set.
    /// Default: it ends after the job's epochs.
    #[must_use]
    pub const fn endless(mut self, is_endless: bool) -> Self {
        self.is_endless = is_endless;
        self
    }

    /// Starts from a checkpoint; [`open`](Self::open) refuses a checkpoint of another job.
    #[must_use]
    pub const fn state(mut self, state: State) -> Self {
        self.start = StartFrom::State(state);
        self
    }

    /// Sets the number of samples of a step over all ranks. Default: the job's.
    #[must_use]
    pub const fn global_batch(mut self, global_batch: u32) -> Self {
        self.global_batch = Some(global_batch);
        self
    }

    /// Sets the number of slots: batches that are being filled, are ready, or are held by the caller. Default 4; each
    /// slot costs the memory of one batch.
    #[must_use]
    pub const fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how long a call waits for a batch before it returns an error that explains the wait. Default 60 s.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the cores, memory and disk that the pipeline may use. Default 40 % of the cores, 1 GiB, no disk cache.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the number of processor cores that the pipeline may use. Default 40 % of them.
    #[must_use]
    pub const fn cores(mut self, cores: f64) -> Self {
        self.budget.cores = cores;
        self
    }

    /// Sets how the job's Python functions are called. Default: with `python3`, and 30 s at most for a sample.
    #[must_use]
    pub fn transforms(mut self, transforms: TransformSettings) -> Self {
        self.transforms = transforms;
        self
    }

    /// Sets the functions in Rust that the job can call. Default: none.
    #[must_use]
    pub fn functions(mut self, functions: FunctionRegistry) -> Self {
        self.functions = functions;
        self
    }

    /// Sets how the processes that decode frames of videos are started. Default: they run the program of this process, which has to
    /// call [`spdl_worker::frame_child`] first in its `main`.
    #[must_use]
    pub fn frames(mut self, frames: FrameAccess) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Sets how the number of requests to stores and the read-ahead are chosen. Default: they are tuned by what is
    /// measured.
    #[must_use]
    pub const fn tuning(mut self, tuning: TuningSettings) -> Self {
        self.tuning = tuning;
        self
    }

    /// Opens the dataset and starts the pipeline. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`LocalError`]; its text names the job, dataset or setting at fault.
    pub async fn open(self) -> Result<LocalLoader, LocalError> {
        self.open_with_datasets().await.map(|(loader, _)| loader)
    }

    /// Opens the loader, and returns its datasets, too.
    pub(crate) async fn open_with_datasets(mut self) -> Result<(LocalLoader, EvaluatedDatasets), LocalError> {
        let started = Instant::now();
        self.budget.check()?;
        let warn = |problem: &str| tracing::warn!("{problem}");
        let datasets = EvaluatedDatasets::open(&mut self.job, EarlierPackings::Use, &|_, _| (), &warn).await?;
        // The job's functions may run: the caller chose the job, and they run with the caller's rights.
        let access = Access {
            stores: datasets.stores(),
            transforms: Some(self.transforms),
            functions: self.functions,
            frames: self.frames,
            tuning: self.tuning,
            ..Access::default()
        };
        let resources = Resources::with_access("in-process", self.budget, access)?;
        let mut job = datasets.freeze(&resources.find_sources(self.job).await)?;
        let Misfits { error, warnings } = datasets.misfits(&job).await?;
        if let Some(error) = error {
            return Err(error.into());
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let endless = (self.is_endless && !job.is_evaluation()).then_some(ENDLESS_EPOCHS);
        if let Some(epochs) = self.epochs.or(endless) {
            job.epochs = epochs;
            job.check()?;
            job.check_max_epochs()?;
        }
        let global_batch = self.global_batch.unwrap_or(job.global_batch);
        let (rank, world) = (self.rank, self.world);
        if rank >= world {
            return Err(ClientError::from(Refusal::RankOutOfRange { rank, world }).into());
        }
        if world > global_batch {
            return Err(ClientError::from(Refusal::WorldTooLarge { world, global_batch }).into());
        }
        let (start, reason) = start_of(self.start, &job, global_batch)?;
        datasets.plan(&job)?.check(&job.batches(global_batch))?;
        let session = Session { id: SessionId(0), job, world, global_batch, start };
        let request =
            FeedRequest { session: session.clone(), rank, from: start, slots: self.slots, slab: SlabKind::Private };
        let classes = classes::of_job(&session.job, &datasets.first().manifest);
        let source = InProcess::start(&resources, request, classes)?;
        let loader = spdl_client::Loader::new(source, Arc::new(session), rank, self.timeout, started);
        Ok((loader.with_reason(reason), datasets))
    }
}

/// Returns where a loader of `job` starts, by the coordinator's rules.
fn start_of(from: StartFrom, job: &Job, global_batch: u32) -> Result<(Position, StartReason), ClientError> {
    let (start, cause) = match from {
        StartFrom::Beginning => return Ok((Position::START, StartReason::Beginning)),
        StartFrom::Resume => {
            let problem = "is `resume`, and a loader in this process keeps no position to go on from; give it a state";
            return Err(ClientError::Setting { name: "start", problem: problem.to_owned() });
        }
        StartFrom::At(start) => (start, job.start_problem(global_batch, start)),
        StartFrom::State(state) if job.continues(state.fingerprint(), state.position()) => (state.position(), None),
        StartFrom::State(state) => {
            let (theirs, ours) = (state.fingerprint(), job.fingerprint_up_to(state.position()));
            return Err(Refusal::FingerprintDiffers { job: job.name.clone(), theirs, ours }.into());
        }
    };
    match cause {
        None => Ok((start, StartReason::Given)),
        Some(cause) => Err(Refusal::StartOutOfRange { job: job.name.clone(), start, cause }.into()),
    }
}

/// A source of batches that a pipeline in this process fills.
#[derive(Debug)]
pub struct InProcess {
    /// `None` after a restart that failed.
    feed: Option<RankFeed>,
    free: Arc<Freer>,
    request: FeedRequest,
    resources: Arc<Resources>,
    observer: Arc<Observer>,
    classes: Option<Arc<[String]>>,
}

/// Gives a slot back to the feed when its batch is dropped.
#[derive(Debug)]
struct Freer(SlotFreer);

impl FreeSlot for Freer {
    fn free(&self, slot: u32) {
        // Fails only after the feed has ended; its slots no longer exist then.
        let _ = self.0.free(slot);
    }
}

impl InProcess {
    fn start(
        resources: &Arc<Resources>,
        request: FeedRequest,
        classes: Option<Arc<[String]>>,
    ) -> Result<Self, FeedError> {
        let feed = RankFeed::start(resources, request.clone())?;
        let free = Arc::new(Freer(feed.freer()));
        let observer = Arc::new(Observer::new(resources.clone(), &request, feed.view().clone()));
        Ok(Self { feed: Some(feed), free, request, resources: resources.clone(), observer, classes })
    }
}

fn pipeline(error: FeedError) -> ClientError {
    ClientError::Pipeline { message: error.to_string() }
}

impl Source for InProcess {
    type Batch = Batch;
    type Error = ClientError;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        let feed = self.feed.as_mut().ok_or(ClientError::Closed)?;
        match feed.next().await.map_err(pipeline)? {
            FeedEvent::Filled { slot, used_bytes, .. } => {
                let slot = feed.slab().read(slot).expect("the feed published this slot");
                let batch = Batch::new(slot, used_bytes, feed.layout().clone(), self.free.clone())?;
                Ok(SourceEvent::Batch(batch))
            }
            FeedEvent::End { position, .. } => Ok(SourceEvent::End(position)),
        }
    }

    async fn explain(&mut self) -> String {
        let stall = self.feed.as_ref().and_then(RankFeed::stall);
        stall.map_or_else(|| "a batch is about to be there".to_owned(), |stall| stall.to_string())
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        self.request.from = from;
        // Drop the old feed first: the budget may not have room for the slots of two feeds.
        drop(self.feed.take());
        let feed = RankFeed::start(&self.resources, self.request.clone()).map_err(pipeline)?;
        self.free = Arc::new(Freer(feed.freer()));
        self.observer.restart(feed.view().clone());
        self.feed = Some(feed);
        Ok(())
    }

    fn record_progress(&mut self, progress: Progress) {
        self.observer.note(&progress);
    }

    fn serving(&self) -> Serving {
        Serving { transport: Some(Transport::InProcess), home: None }
    }

    fn wait_clock(&self) -> WaitClock {
        self.observer.clock().clone()
    }

    fn diagnoser(&self) -> Diagnoser {
        let observer = self.observer.clone();
        Diagnoser::new(move || std::future::ready(Ok(observer.measured())))
    }

    fn classes(&self) -> Option<Arc<[String]>> {
        self.classes.clone()
    }

    fn most_held(&self) -> u32 {
        self.request.slots
    }

    fn stages(&self) -> Vec<StageStats> {
        self.resources.stages(Instant::now())
    }

    async fn close(&mut self) {}
}
