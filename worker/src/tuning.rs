//! Measures for the [`Tuner`] and carries out its changes.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_insight::tuning::{Interval, Tunable, Tuner, TuningChange, TuningSettings, TuningStatus};
use spdl_types::StageStats;
use tokio::sync::watch;

use crate::{feed::Resources, fetch::UsageTimes};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(250);

/// The tuning of a process.
#[derive(Debug)]
pub(crate) struct Tuning {
    tuner: Mutex<Tuner>,
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
    pub(crate) fn new(settings: &TuningSettings) -> Self {
        let tuner = Tuner::new(settings);
        let read_ahead = watch::Sender::new(tuner.current(Tunable::ReadAhead));
        Self { tuner: Mutex::new(tuner), read_ahead, is_running: AtomicBool::new(false) }
    }

    /// Returns the current choice of a value.
    pub(crate) fn current(&self, value: Tunable) -> u32 {
        self.tuner.lock().current(value)
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
    pub(crate) fn start(resources: &Arc<Resources>) {
        if !resources.tuning.is_running.swap(true, Relaxed) {
            tokio::spawn(run(RunningTask(Arc::downgrade(resources))));
        }
    }

    fn handle_interval(&self, now_ms: u64, interval: &Interval) -> Vec<TuningChange> {
        let mut tuner = self.tuner.lock();
        tuner.handle_interval(now_ms, interval);
        std::iter::from_fn(|| tuner.poll_change()).collect()
    }
}

/// The task that measures. Where its runtime ends before the resources, the next feed starts another one.
struct RunningTask(Weak<Resources>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        if let Some(resources) = self.0.upgrade() {
            resources.tuning.is_running.store(false, Relaxed);
        }
    }
}

async fn run(task: RunningTask) {
    let mut last: Option<Totals> = None;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(resources) = task.0.upgrade() else { return };
        let totals = Totals::of(&resources);
        let interval = last.replace(totals).map(|before| last.as_ref().expect("just set").since(&before));
        // Where nothing is fetched or decoded, there is nothing to learn.
        let Some(interval) = interval.filter(|interval| interval.active > 0.0 || interval.samples > 0) else {
            continue;
        };
        let now_ms = u64::try_from(resources.uptime(Instant::now()).as_millis()).unwrap_or(u64::MAX);
        for change in resources.tuning.handle_interval(now_ms, &interval) {
            carry_out(&resources, &change);
        }
    }
}

fn carry_out(resources: &Resources, change: &TuningChange) {
    let TuningChange { value, from, to, reason, .. } = change;
    tracing::info!(%value, from, to, reason, "tuned");
    match value {
        Tunable::Requests => resources.fetcher.requests().set_requests(*to as usize),
        Tunable::ReadAhead => {
            resources.tuning.read_ahead.send_replace(*to);
        }
    }
}

impl Totals {
    fn of(resources: &Resources) -> Self {
        let (at, requests) = (Instant::now(), resources.fetcher.requests());
        let (decode, fetch) = (resources.stages.decode.stats(at), resources.stages.fetch.stats(at));
        Self { at, decode, fetch, busy: requests.busy(), times: requests.limits().times() }
    }

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
