//! Measures a pipeline in this process, as the coordinator measures a worker and a rank from their heartbeats.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use spdl_client::{Progress, WaitClock};
use spdl_control::messages::RankStats;
use spdl_insight::{
    Measured, Presence, RankWindow, Transport, WorkerTotals, WorkerTotalsHistory, recent::RecentEvents,
};
use spdl_types::{Position, StageStats};
use spdl_worker::feed::{FeedRequest, FeedView, Resources};

/// The shortest time between two notes of the totals, in milliseconds.
const NOTE_MS: u64 = 500;

/// Keeps the figures of a pipeline and of the rank that it feeds.
#[derive(Debug)]
pub(super) struct Observer {
    resources: Arc<Resources>,
    rank: u32,
    world: u32,
    /// Samples of an epoch.
    samples: u64,
    started: Instant,
    clock: WaitClock,
    observed: Mutex<Observed>,
}

#[derive(Debug)]
struct Observed {
    view: FeedView,
    noted_ms: Option<u64>,
    position: Position,
    worker: WorkerTotalsHistory,
    /// The samples that the trainer took and the milliseconds that it waited, a few seconds ago.
    rank: RecentEvents<(u64, u64)>,
}

impl Observed {
    fn new(view: FeedView, position: Position) -> Self {
        Self { view, noted_ms: None, position, worker: WorkerTotalsHistory::default(), rank: RecentEvents::default() }
    }
}

impl Observer {
    pub(super) fn new(resources: Arc<Resources>, request: &FeedRequest, view: FeedView) -> Self {
        let observer = Self {
            resources,
            rank: request.rank,
            world: request.session.world,
            samples: request.session.job.samples,
            started: Instant::now(),
            clock: WaitClock::default(),
            observed: Mutex::new(Observed::new(view, request.from)),
        };
        observer.note_totals();
        observer
    }

    /// Returns the clock that the trainer's waits are measured by.
    pub(super) const fn clock(&self) -> &WaitClock {
        &self.clock
    }

    /// Forgets the measurements of the previous stream.
    pub(super) fn restart(&self, view: FeedView) {
        *self.observed.lock() = Observed::new(view, Position::START);
        self.note_totals();
    }

    /// Records the progress of the trainer.
    pub(super) fn note(&self, progress: &Progress) {
        let is_due = {
            let mut observed = self.observed.lock();
            observed.position = progress.position;
            observed.noted_ms.is_none_or(|noted_ms| self.elapsed_ms() >= noted_ms + NOTE_MS)
        };
        if is_due {
            self.note_totals();
        }
    }

    fn note_totals(&self) {
        let (now_ms, stages) = (self.elapsed_ms(), self.resources.stages(Instant::now()));
        let mut observed = self.observed.lock();
        let observed = &mut *observed;
        observed.noted_ms = Some(now_ms);
        observed.rank.note(now_ms, &self.rank_totals(observed));
        let slow_object = None;
        observed.worker.note(now_ms, &WorkerTotals { slow_object, ..self.worker_totals(&stages) });
    }

    /// Returns the measurements of the last seconds; `None` right after the start.
    pub(super) fn measured(&self) -> Option<Measured> {
        let (now_ms, stages) = (self.elapsed_ms(), self.resources.stages(Instant::now()));
        let slow_object = self.resources.slow_object();
        let observed = self.observed.lock();
        let (seconds, (samples_before, waited_before_ms)) = observed.rank.before(now_ms)?;
        let (samples, waited_ms) = self.rank_totals(&observed);
        let RankStats { rank: _, transport, ready, slots, stall, .. } = observed.view.stats(Transport::InProcess);
        let rank = RankWindow {
            rank: self.rank,
            seconds,
            samples: samples.saturating_sub(*samples_before),
            waited_s: waited_ms.saturating_sub(*waited_before_ms) as f64 / 1e3,
            stall,
            presence: Presence::Alive,
            transport: Some(transport),
            slots,
            ready,
            ..RankWindow::default()
        };
        let totals = WorkerTotals { slow_object: slow_object.as_ref(), ..self.worker_totals(&stages) };
        let cores = self.resources.budget().cores;
        let worker = observed.worker.window(self.resources.name(), cores, now_ms, &totals)?;
        Some(Measured { rank, worker: Some(worker) })
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the samples that this rank has taken, and the milliseconds that it has waited.
    fn rank_totals(&self, observed: &Observed) -> (u64, u64) {
        let Position { epoch, offset } = observed.position;
        let job_samples = epoch.saturating_mul(self.samples).saturating_add(offset);
        (job_samples / u64::from(self.world), self.clock.total_ms())
    }

    /// Returns the totals of the pipeline. Its CPU time is that of its stages: the process is the trainer's.
    fn worker_totals<'s>(&self, stages: &'s [StageStats]) -> WorkerTotals<'s> {
        WorkerTotals {
            stages,
            cpu_ns: stages.iter().map(|stage| stage.cpu_ns).sum(),
            sending_thread_ns: 0,
            store: self.resources.store_stats(),
            cache: self.resources.cache_stats(),
            slow_object: None,
        }
    }
}
