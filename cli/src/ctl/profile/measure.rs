//! Measures one part of a job's pipeline for some seconds, with the code that a worker runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use spdl_accounting::Recording;
use spdl_control::messages::Session;
use spdl_insight::{
    Diagnosis, Limit, RankWindow, StoreStats, Term, Transport, WorkerWindow, diagnose,
    rates::{StageHistory, StageRate, WINDOWS_MS},
};
use spdl_job::Job;
use spdl_order::EpochEnd;
use spdl_types::{Position, SessionId, Stage, StageStats};
use spdl_wire::{slab::PAGE_BYTES, trace::Recorded};
use spdl_worker::{
    budget::Budget,
    feed::{Access, FeedError, FeedEvent, FeedRequest, HeldSamples, RankFeed, Resources, SlabKind, StoreAccess},
    transform::TransformSettings,
};

use crate::{ctl::CtlError, local::LocalError};

/// How long a measurement waits for its first batch.
const FIRST_BATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// The most intervals of a stage that are recorded for a timeline.
const MAX_INTERVALS: usize = 20_000;
/// A stream of fewer batches is measured from its start, because most of it is made before its first batch is taken.
const MIN_BATCHES: u64 = 8;
/// How often a measurement looks at the time.
const TICK: Duration = Duration::from_millis(10);
/// Epochs of a measurement that never reads from the store.
const MANY_EPOCHS: u64 = 1_000_000;
/// Number of samples that are decoded over and over, and the memory that their batch may take, in bytes.
const HELD_SAMPLES: u32 = 256;
const MAX_HELD_BYTES: u64 = 256 << 20;
/// The fraction of the memory up to which a cache is filled, so that nothing is evicted.
const FILLED: f64 = 0.4;
/// The limits that can apply to decoding alone.
const OF_DECODING: [Limit; 3] = [Limit::Cpu, Limit::Function, Limit::BadSamples];
/// The worker's name in sentences.
const NAME: &str = "this machine";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProfiledPart {
    /// The whole pipeline on one core.
    Serial,
    /// The whole pipeline on all cores.
    Parallel,
    /// The pipeline without decoding.
    Fetch,
    /// The whole pipeline with blocks from memory.
    Cached,
    /// Decoding alone, of samples in memory.
    Decode,
    /// Decoding one column.
    Column,
    /// Decoding one column with one of its operations.
    Operation,
}

impl ProfiledPart {
    /// The parts that are pipelines, in the order in which they are measured.
    pub(super) const PIPELINES: [Self; 4] = [Self::Serial, Self::Parallel, Self::Fetch, Self::Cached];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Parallel => "parallel",
            Self::Fetch => "fetch alone",
            Self::Cached => "cached",
            Self::Decode => "decode alone",
            Self::Column => "column",
            Self::Operation => "operation",
        }
    }
}

/// The figures of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    pub(super) part: ProfiledPart,
    /// The part's name, or that of the column or the operations.
    pub(super) name: String,
    /// The column that was decoded, if only one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<String>,
    pub(super) cores: f64,
    pub(super) seconds: f64,
    /// Samples that were decoded, or only fetched.
    pub(super) samples: u64,
    /// Samples that do not decode.
    pub(super) failures: u64,
    pub(super) samples_per_s: f64,
    /// CPU time of the process for a sample, in milliseconds.
    pub(super) cpu_ms_per_sample: f64,
    /// Bytes of the fields that the samples were made from.
    pub(super) field_bytes: u64,
    /// Bytes and requests that were read from the store in `store_seconds`. A part that begins without a cache counts
    /// them from its start, as most are read ahead of the first batch.
    pub(super) store_bytes: u64,
    pub(super) store_requests: u64,
    pub(super) store_seconds: f64,
    pub(super) limit: Option<Limit>,
    pub(super) terms: Vec<Term>,
    pub(super) stages: Vec<StageRate>,
    #[serde(skip)]
    pub(super) timeline: Option<Timeline>,
}

/// The activity of the units of each stage between two times.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) begin: Instant,
    pub(super) end: Instant,
    pub(super) stages: Vec<(Stage, Recording)>,
}

impl Measurement {
    /// Returns the bytes per second that came from the store.
    pub(super) fn store_bytes_per_s(&self) -> f64 {
        self.store_bytes as f64 / self.store_seconds
    }

    /// Returns the fraction of their busy time in which the decoding threads had a core; `None` if they wait for
    /// functions.
    pub(super) fn core_share(&self) -> Option<f64> {
        let decode = self.stages.iter().find(|rate| rate.stage == Stage::Decode)?;
        decode.core_share().filter(|_| self.call_s_per_sample().is_none())
    }

    /// Returns the seconds that a decoding thread takes for a sample, if the job calls functions: the thread waits for
    /// them.
    pub(super) fn call_s_per_sample(&self) -> Option<f64> {
        let rate = |stage| self.stages.iter().find(|rate| rate.stage == stage && rate.items_per_s > 0.0);
        rate(Stage::Transform)?;
        rate(Stage::Decode).map(|decode| decode.busy / decode.items_per_s)
    }
}

/// The totals of a process at one time.
struct Reading {
    at: Instant,
    cpu: Duration,
    stages: Vec<StageStats>,
    store: StoreStats,
}

impl Reading {
    fn of(resources: &Resources) -> Self {
        let at = Instant::now();
        Self { at, cpu: resources.cpu_time(), stages: resources.stages(at), store: resources.store_stats() }
    }

    fn total(&self, stage: &Stage, value: fn(&StageStats) -> u64) -> u64 {
        self.stages.iter().find(|stats| stats.stage == *stage).map_or(0, value)
    }
}

/// A job and the budget to run it with.
pub(super) struct Profiler {
    pub(super) job: Job,
    pub(super) stores: StoreAccess,
    /// Number of nodes that share each global batch.
    pub(super) nodes: u32,
    pub(super) slots: u32,
    pub(super) cores: f64,
    pub(super) memory_bytes: u64,
    pub(super) seconds: Duration,
    /// Whether a timeline of each pipeline is recorded.
    pub(super) records: bool,
    pub(super) transforms: TransformSettings,
    /// Bytes of the largest batch so far.
    pub(super) batch_bytes: AtomicU64,
}

type StartFeed = fn(&Arc<Resources>, FeedRequest) -> Result<RankFeed, FeedError>;

impl Profiler {
    /// Measures a part that is a pipeline, from the beginning of the stream on.
    pub(super) async fn pipeline(&self, part: ProfiledPart) -> Result<(Measurement, Diagnosis), CtlError> {
        let cores = if part == ProfiledPart::Serial { self.cores.min(1.0) } else { self.cores };
        let resources = self.resources(cores)?;
        let once = Job { epochs: self.cold_epochs(), ..self.job.clone() };
        let readings = match part {
            ProfiledPart::Fetch => self.run(&resources, once, RankFeed::start_fetching, None).await?,
            ProfiledPart::Cached => {
                let held = self.fill_cache(&resources, once).await?;
                let again = Job { epochs: MANY_EPOCHS, ..self.job.clone() };
                let readings = self.run(&resources, again, RankFeed::start, held).await?;
                Readings { opened: None, ..readings }
            }
            _ => self.run(&resources, once, RankFeed::start, None).await?,
        };
        let (found, diagnosis) = readings.found(part, part.name().to_owned(), &resources);
        let stages = resources.take_recordings();
        let (begin, end) = (readings.recorded, readings.after.at);
        let timeline = begin.map(|begin| Timeline { begin, end, stages });
        Ok((Measurement { timeline, ..found }, diagnosis))
    }

    /// Measures decoding the columns of `job` alone.
    pub(super) async fn decode(
        &self,
        resources: &Arc<Resources>,
        part: ProfiledPart,
        name: String,
        job: &Job,
    ) -> Result<Measurement, CtlError> {
        let sample_bytes: u64 = job.columns.iter().map(spdl_job::Column::max_bytes).sum();
        let fitting = u32::try_from(MAX_HELD_BYTES / sample_bytes.max(1)).unwrap_or(u32::MAX);
        let most = HELD_SAMPLES.min(fitting).min(u32::try_from(job.samples).unwrap_or(u32::MAX)).max(1);
        let session =
            Session { id: SessionId(0), job: job.clone(), world: 1, global_batch: most, start: Position::START };
        let read = tokio::time::timeout(FIRST_BATCH_TIMEOUT, HeldSamples::read(resources, session)).await;
        let read = read.map_err(|_| self.no_batch("its samples are still being read".to_owned()))?;
        // The first round starts processes and allocates.
        let (mut held, _) = read.map_err(feed_error)?.decode().await.map_err(feed_error)?;
        let before = Reading::of(resources);
        while before.at.elapsed() < self.seconds {
            (held, _) = held.decode().await.map_err(feed_error)?;
        }
        let readings = Readings { opened: None, before, after: Reading::of(resources), recorded: None };
        let column = Some(job.columns[0].name.clone()).filter(|_| part != ProfiledPart::Decode);
        Ok(Measurement { column, ..readings.found(part, name, resources).0 })
    }

    /// Creates threads and empty caches for `cores` cores.
    pub(super) fn resources(&self, cores: f64) -> Result<Arc<Resources>, CtlError> {
        let access =
            Access { stores: self.stores.clone(), transforms: Some(self.transforms.clone()), ..Access::default() };
        let budget = Budget { cores, memory_bytes: self.memory_bytes, disk: None };
        Resources::with_access(NAME, budget, access).map_err(feed_error)
    }

    /// Returns the bytes of the slots if all hold the largest batch that was taken.
    pub(super) fn slab_bytes(&self) -> u64 {
        let fixed_bytes = self.session(self.job.clone()).layout().fixed_bytes() as u64;
        let batch_bytes = self.batch_bytes.load(Ordering::Relaxed).max(fixed_bytes);
        u64::from(self.slots) * batch_bytes.next_multiple_of(PAGE_BYTES as u64)
    }

    fn session(&self, job: Job) -> Session {
        let (world, global_batch) = (self.nodes, job.global_batch);
        Session { id: SessionId(0), job, world, global_batch, start: Position::START }
    }

    /// Returns the number of epochs to run so that no block comes from a cache: one, except in a continuous stream,
    /// where a step may need the next epoch.
    fn cold_epochs(&self) -> u64 {
        if self.job.epoch_end == EpochEnd::Continuous { self.job.epochs } else { 1 }
    }

    /// Fetches blocks into memory: all of an epoch if they fit. Otherwise returns the number of batches whose blocks
    /// were fetched.
    async fn fill_cache(&self, resources: &Arc<Resources>, job: Job) -> Result<Option<u64>, CtlError> {
        let is_full = |taken: &TakenBatches| {
            taken.since.elapsed() > 2 * self.seconds
                || resources.memory_bytes().1 as f64 > FILLED * self.memory_bytes as f64
        };
        let taken = self.take(resources, job, RankFeed::start_fetching, is_full).await?;
        Ok((!taken.is_over).then_some(taken.batches))
    }

    /// Runs a feed and takes its batches as soon as they are ready. Returns the totals from the first batch on until
    /// the time is up or the stream ends, or of the whole stream if it has few batches. Restarts the stream after
    /// `extent` batches.
    async fn run(
        &self,
        resources: &Arc<Resources>,
        job: Job,
        start: StartFeed,
        extent: Option<u64>,
    ) -> Result<Readings, CtlError> {
        let recorded = self.record(resources);
        let opened = Reading::of(resources);
        let work = async {
            let mut begun: Option<Reading> = None;
            loop {
                let ends = |taken: &TakenBatches| {
                    let begun = begun.get_or_insert_with(|| Reading::of(resources));
                    begun.at.elapsed() >= self.seconds || extent.is_some_and(|extent| taken.batches >= extent)
                };
                let taken = self.take(resources, job.clone(), start, ends).await?;
                let after = Reading::of(resources);
                if taken.is_over && taken.batches < MIN_BATCHES {
                    return Ok(Readings { opened: None, before: opened, after, recorded });
                }
                if let Some(before) = begun.take_if(|begun| taken.is_over || after.at - begun.at >= self.seconds) {
                    return Ok(Readings { opened: Some(opened), before, after, recorded });
                }
            }
        };
        tokio::select! {
            never = resources.keep_pace() => match never {},
            done = work => done,
        }
    }

    /// Starts a recording of what threads do, if the profiler records, and returns its start.
    fn record(&self, resources: &Resources) -> Option<Instant> {
        self.records.then(|| {
            resources.record(MAX_INTERVALS);
            Instant::now()
        })
    }

    /// Takes the batches of a feed until `ends` returns true. It is called from the first batch on.
    async fn take(
        &self,
        resources: &Arc<Resources>,
        job: Job,
        start: StartFeed,
        mut ends: impl FnMut(&TakenBatches) -> bool,
    ) -> Result<TakenBatches, CtlError> {
        let session = self.session(job);
        let request =
            FeedRequest { session, rank: 0, from: Position::START, slots: self.slots, slab: SlabKind::Private };
        let mut feed = start(resources, request).map_err(feed_error)?;
        let mut taken = TakenBatches { since: Instant::now(), batches: 0, is_over: false };
        loop {
            if let Ok(event) = tokio::time::timeout(TICK, feed.next()).await {
                let FeedEvent::Filled { slot, used_bytes, .. } = event.map_err(feed_error)? else {
                    return Ok(TakenBatches { is_over: true, ..taken });
                };
                self.batch_bytes.fetch_max(used_bytes, Ordering::Relaxed);
                feed.free(slot).map_err(feed_error)?;
                taken.batches += 1;
            }
            if taken.batches > 0 && ends(&taken) {
                return Ok(taken);
            }
            if taken.batches == 0 && taken.since.elapsed() > FIRST_BATCH_TIMEOUT {
                let stall = feed.stall().map_or("it is being filled".to_owned(), |stall| stall.to_string());
                return Err(self.no_batch(stall));
            }
        }
    }

    fn no_batch(&self, cause: String) -> CtlError {
        CtlError::NoBatch { job: self.job.name.clone(), seconds: FIRST_BATCH_TIMEOUT.as_secs(), cause }
    }
}

/// The batches that were taken of a feed.
struct TakenBatches {
    since: Instant,
    batches: u64,
    /// Whether the stream has ended.
    is_over: bool,
}

fn feed_error(error: FeedError) -> CtlError {
    LocalError::from(error).into()
}

/// The totals before and after a measurement.
struct Readings {
    /// The totals from which the bytes of the store are counted, if not from `before` on.
    opened: Option<Reading>,
    before: Reading,
    after: Reading,
    /// When a recording began.
    recorded: Option<Instant>,
}

impl Readings {
    /// Computes the measurement, and the diagnosis of a trainer that takes samples at once.
    fn found(&self, part: ProfiledPart, name: String, resources: &Resources) -> (Measurement, Diagnosis) {
        let Self { before, after, .. } = self;
        let opened = self.opened.as_ref().unwrap_or(before);
        let seconds = (after.at - before.at).as_secs_f64();
        let decode = |value| after.total(&Stage::Decode, value) - before.total(&Stage::Decode, value);
        let samples = decode(|decode| decode.items);
        let cpu_s = (after.cpu - before.cpu).as_secs_f64();
        let diagnosis = self.diagnosis(samples, cpu_s, resources.budget().cores);
        let is_pipeline = ProfiledPart::PIPELINES.contains(&part);
        let is_of_decoding = |limit: &Limit| is_pipeline || OF_DECODING.contains(limit);
        let measurement = Measurement {
            part,
            name,
            column: None,
            cores: resources.budget().cores,
            seconds,
            samples,
            failures: decode(|decode| decode.failures),
            samples_per_s: samples as f64 / seconds,
            cpu_ms_per_sample: 1e3 * cpu_s / (samples as f64).max(1.0),
            field_bytes: decode(|decode| decode.bytes),
            store_bytes: after.total(&Stage::Fetch, |fetch| fetch.bytes)
                - opened.total(&Stage::Fetch, |fetch| fetch.bytes),
            store_requests: after.store.since(&opened.store).requests,
            store_seconds: (after.at - opened.at).as_secs_f64(),
            limit: diagnosis.limit().filter(is_of_decoding),
            terms: diagnosis.terms.clone(),
            stages: diagnosis.worker.as_ref().map_or_else(Vec::new, |worker| worker.stages.clone()),
            timeline: None,
        };
        (measurement, diagnosis)
    }

    fn diagnosis(&self, samples: u64, cpu_s: f64, cores: f64) -> Diagnosis {
        let Self { before, after, .. } = self;
        let elapsed = after.at - before.at;
        let seconds = elapsed.as_secs_f64();
        let mut history = StageHistory::default();
        history.note(0, &before.stages);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let window = history.window(WINDOWS_MS[0], elapsed_ms, &after.stages);
        // Leaves out the hits of caches, because a profile is about the store behind them, and the differences between
        // samples, which are unknown for a part alone.
        let worker = WorkerWindow {
            name: NAME.to_owned(),
            cores,
            cores_used: cpu_s / seconds,
            stages: window.map_or_else(Vec::new, |window| window.stages),
            store_s: seconds,
            store: after.store.since(&before.store),
            ..WorkerWindow::default()
        };
        let transport = Some(Transport::InProcess);
        let rank = RankWindow { seconds, samples, waited_s: seconds, transport, ..RankWindow::default() };
        diagnose(rank, Some(worker))
    }
}
