//! Measures for the [`Tuner`] and carries out its changes.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_insight::tuning::{Interval, Tunable, Tuner, TuningChange, TuningSettings, TuningStatus};
use spdl_types::StageStats;
use tokio::sync::watch;

use crate::fetch::{StoreClient, UsageTimes};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(250);

/// The tuning of a process.
#[derive(Debug)]
pub(crate) struct Tuning {
    started: Instant,
    tuner: Mutex<Tuner>,
    store: Arc<StoreClient>,
    decode: Arc<StageCounters>,
    fetch: Arc<StageCounters>,
    read_ahead: watch::Sender<u32>,
    /// Whether a task measures.
    is_running: AtomicBool,
}

/// Counts from the start up to a moment.
struct Totals {
    at: Instant,
    decode: StageStats,
    fetch: StageStats,
    busy: u64,
    times: UsageTimes,
}

impl Tuning {
    /// Tunes the requests to stores and the read-ahead by how the stages `decode` and `fetch` fare.
    pub(crate) fn new(
        settings: &TuningSettings,
        store: &Arc<StoreClient>,
        [decode, fetch]: [&Arc<StageCounters>; 2],
    ) -> Arc<Self> {
        let tuner = Tuner::new(settings);
        store.limits.set_requests(tuner.current(Tunable::Requests) as usize);
        Arc::new(Self {
            started: Instant::now(),
            read_ahead: watch::Sender::new(tuner.current(Tunable::ReadAhead)),
            tuner: Mutex::new(tuner),
            store: store.clone(),
            decode: decode.clone(),
            fetch: fetch.clone(),
            is_running: AtomicBool::new(false),
        })
    }

    /// Returns a channel that holds how many steps are read ahead.
    pub(crate) fn read_ahead(&self) -> watch::Receiver<u32> {
        self.read_ahead.subscribe()
    }

    /// Returns the current values and the latest changes.
    pub(crate) fn status(&self) -> TuningStatus {
        self.tuner.lock().status()
    }

    /// Starts to measure, unless a task of this process does. Must be called inside a tokio runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        if !self.is_running.swap(true, Relaxed) {
            tokio::spawn(run(RunningTask(Arc::downgrade(self))));
        }
    }

    fn handle_interval(&self, interval: &Interval) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut tuner = self.tuner.lock();
        tuner.handle_interval(now_ms, interval);
        while let Some(TuningChange { value, from, to, reason, .. }) = tuner.poll_change() {
            tracing::info!(%value, from, to, reason, "tuned");
            match value {
                Tunable::Requests => self.store.limits.set_requests(to as usize),
                Tunable::ReadAhead => drop(self.read_ahead.send_replace(to)),
            }
        }
    }

    fn totals(&self) -> Totals {
        let (at, busy, times) = (Instant::now(), self.store.busy(), self.store.limits.units.times());
        Totals { at, decode: self.decode.stats(at), fetch: self.fetch.stats(at), busy, times }
    }
}

/// The task that measures. Where its runtime ends before the tuning, the next feed starts another one.
struct RunningTask(Weak<Tuning>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        if let Some(tuning) = self.0.upgrade() {
            tuning.is_running.store(false, Relaxed);
        }
    }
}

async fn run(task: RunningTask) {
    let mut last: Option<Totals> = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(tuning) = task.0.upgrade() else { return };
        let totals = tuning.totals();
        let interval = last.replace(totals).map(|before| last.as_ref().expect("just set").since(&before));
        // Where nothing is fetched or decoded, there is nothing to learn.
        if let Some(interval) = interval.filter(|interval| interval.active > 0.0 || interval.samples > 0) {
            tuning.handle_interval(&interval);
        }
    }
}

impl Totals {
    fn since(&self, before: &Self) -> Interval {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let part = |now: Duration, before: Duration| (now.saturating_sub(before).as_secs_f64() / seconds).min(1.0);
        let fetched = |value: fn(&StageStats) -> u64| value(&self.fetch).saturating_sub(value(&before.fetch));
        let decoded = |value: fn(&StageStats) -> u64| value(&self.decode).saturating_sub(value(&before.decode));
        let refusals = self.busy.saturating_sub(before.busy);
        let with_room_ns = decoded(StageStats::unit_ns).saturating_sub(decoded(|decode| decode.output_wait_ns));
        Interval {
            seconds,
            samples: decoded(|decode| decode.items),
            bytes: fetched(|fetch| fetch.bytes),
            answers: fetched(|fetch| fetch.items),
            refusals,
            failures: fetched(|fetch| fetch.failures).saturating_sub(refusals),
            in_flight: fetched(|fetch| fetch.busy_ns) as f64 / 1e9 / seconds,
            active: part(self.times.active, before.times.active),
            held_back: part(self.times.held_back, before.times.held_back),
            starving: decoded(|decode| decode.input_wait_ns) as f64 / (with_room_ns as f64).max(1.0),
        }
    }
}
