//! Statistics of a loader: what the rank received, and how long the trainer waited for it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spdl_insight::rates::{History, StageHistory, StageRate, WINDOWS_MS};
use spdl_job::layout::entry_flags;
use spdl_types::{StageStats, histogram::DurationHistogram};

use crate::{Serving, WaitClock};

/// The statistics of a loader since it was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The number of batches delivered.
    pub batches: u64,
    /// The number of those batches that came [again](crate::Loader::repeat_batches). Of what counts samples, only `samples`, `bytes` and
    /// the rates have them.
    #[serde(default)]
    pub repeated_batches: u64,
    /// The number of samples in those batches, without padding and invalid entries.
    pub samples: u64,
    /// The number of those samples that stand in for a bad sample.
    #[serde(default)]
    pub substituted: u64,
    /// The number of those samples that were bad and whose entry is zero.
    #[serde(default)]
    pub masked: u64,
    /// The number of bytes in those batches.
    pub bytes: u64,
    /// Seconds since the loader was created.
    pub elapsed_s: f64,
    /// Seconds from the loader's creation to the first batch.
    pub first_batch_s: Option<f64>,
    /// Seconds that the trainer has waited in total, for the first batch too. A wait in progress counts with the time
    /// so far, here and in `waited_since_first_s`.
    pub waited_s: f64,
    /// The part of `waited_s` since the first batch.
    pub waited_since_first_s: f64,
    /// The median wait for a batch in milliseconds, without the first batch; within 4 %.
    pub wait_ms_p50: f64,
    /// The 99th percentile of the wait for a batch in milliseconds, without the first batch; within 4 %.
    pub wait_ms_p99: f64,
    /// The home that serves the rank, and the transport.
    pub serving: Serving,
    /// The stages that run in this process: `receive` and `copy`, or those of a worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageStats>,
    /// The last 1, 10 and 60 seconds; none before the second batch.
    #[serde(default)]
    pub windows: Vec<LoaderWindow>,
}

/// The rates of a loader in a window of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderWindow {
    /// The nominal length of the window: one of [`WINDOWS_MS`].
    pub window_ms: u64,
    /// The actual length of the window: shorter while the loader has not run for longer, and up to a tenth longer.
    pub seconds: f64,
    /// Batches per second.
    pub batches_per_s: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// The fraction of the time in which the trainer waited for a batch.
    pub waiting: f64,
    /// The rates of the stages in [`Stats::stages`].
    pub stages: Vec<StageRate>,
}

/// The totals that windows are made of.
#[derive(Clone, Copy, Debug, Default)]
struct LoaderTotals {
    batches: u64,
    samples: u64,
    bytes: u64,
    waited: Duration,
}

/// Counts what [`Stats`] reports.
#[derive(Debug)]
pub(crate) struct LoaderTally {
    started: Instant,
    first_batch: Option<Duration>,
    batches: u64,
    repeated_batches: u64,
    samples: u64,
    substituted: u64,
    masked: u64,
    bytes: u64,
    clock: WaitClock,
    /// The clock's total when the last batch was delivered.
    waited_before: Duration,
    first_wait: Duration,
    waits: DurationHistogram,
    history: History<LoaderTotals>,
    stages: StageHistory,
    /// When the history was last noted, in milliseconds since the start.
    noted_ms: Option<u64>,
}

/// The history is noted no more often than this: ten times in its shortest window.
const NOTE_MS: u64 = WINDOWS_MS[0] / 10;

impl LoaderTally {
    pub(crate) fn new(started: Instant, clock: WaitClock) -> Self {
        Self {
            started,
            first_batch: None,
            batches: 0,
            repeated_batches: 0,
            samples: 0,
            substituted: 0,
            masked: 0,
            bytes: 0,
            clock,
            waited_before: Duration::ZERO,
            first_wait: Duration::ZERO,
            waits: DurationHistogram::default(),
            history: History::default(),
            stages: StageHistory::default(),
            noted_ms: None,
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    const fn totals(&self, waited: Duration) -> LoaderTotals {
        LoaderTotals { batches: self.batches, samples: self.samples, bytes: self.bytes, waited }
    }

    /// Keeps the totals for later windows, if it is time to.
    pub(crate) fn note_history(&mut self, stages: impl FnOnce() -> Vec<StageStats>) {
        let now_ms = self.elapsed_ms();
        if self.noted_ms.is_some_and(|noted_ms| now_ms < noted_ms + NOTE_MS) {
            return;
        }
        self.noted_ms = Some(now_ms);
        self.history.note(now_ms, &self.totals(self.clock.total()));
        self.stages.note(now_ms, &stages());
    }

    fn window(&self, window_ms: u64, stages: &[StageStats]) -> Option<LoaderWindow> {
        let now_ms = self.elapsed_ms();
        let now = self.totals(self.clock.total());
        let (seconds, before) = self.history.since(window_ms, now_ms)?;
        let per_s = |value: fn(&LoaderTotals) -> u64| value(&now).saturating_sub(value(before)) as f64 / seconds;
        Some(LoaderWindow {
            window_ms,
            seconds,
            batches_per_s: per_s(|totals| totals.batches),
            samples_per_s: per_s(|totals| totals.samples),
            bytes_per_s: per_s(|totals| totals.bytes),
            waiting: (now.waited.saturating_sub(before.waited).as_secs_f64() / seconds).min(1.0),
            stages: self.stages.window(window_ms, now_ms, stages).map_or_else(Vec::new, |window| window.stages),
        })
    }

    pub(crate) const fn clock(&self) -> &WaitClock {
        &self.clock
    }

    /// Returns how long the trainer has waited for the next batch.
    pub(crate) fn waiting(&self) -> Duration {
        self.clock.total().saturating_sub(self.waited_before)
    }

    /// Counts a sample with these flags. Returns true when the sample is bad and the count of bad samples has reached
    /// 1, 10, 100, ...: when to log.
    pub(crate) fn add_sample(&mut self, flags: u32) -> bool {
        self.samples += 1;
        if flags & (entry_flags::SUBSTITUTED | entry_flags::MASKED) == 0 {
            return false;
        }
        let is_masked = flags & entry_flags::MASKED != 0;
        *(if is_masked { &mut self.masked } else { &mut self.substituted }) += 1;
        let bad = self.substituted + self.masked;
        bad == 1 || bad.ilog10() > (bad - 1).ilog10()
    }

    /// Returns the number of samples, and of substituted and masked ones among them.
    pub(crate) const fn bad_samples(&self) -> (u64, u64, u64) {
        (self.samples, self.substituted, self.masked)
    }

    /// Counts a batch of `bytes` bytes and ends the wait for it.
    pub(crate) fn add(&mut self, bytes: u64) {
        let waited = self.waiting();
        self.waited_before += waited;
        self.batches += 1;
        self.bytes += bytes;
        if self.first_batch.is_none() {
            self.first_batch = Some(self.started.elapsed());
            self.first_wait = waited;
        } else {
            self.waits.record(waited);
        }
    }

    /// Counts a batch that came again, with its samples and bytes.
    pub(crate) fn add_repeated(&mut self, samples: u64, bytes: u64) {
        self.samples += samples;
        self.repeated_batches += 1;
        self.add(bytes);
    }

    pub(crate) fn stats(&self, serving: Serving, stages: Vec<StageStats>) -> Stats {
        let waited = self.clock.total();
        let [wait_ms_p50, wait_ms_p99] = self.waits.quantiles([0.5, 0.99]).map(|wait| wait.as_secs_f64() * 1e3);
        let since_first = self.first_batch.map_or(Duration::ZERO, |_| waited.saturating_sub(self.first_wait));
        Stats {
            batches: self.batches,
            repeated_batches: self.repeated_batches,
            samples: self.samples,
            substituted: self.substituted,
            masked: self.masked,
            bytes: self.bytes,
            elapsed_s: self.started.elapsed().as_secs_f64(),
            first_batch_s: self.first_batch.map(|time| time.as_secs_f64()),
            waited_s: waited.as_secs_f64(),
            waited_since_first_s: since_first.as_secs_f64(),
            wait_ms_p50,
            wait_ms_p99,
            serving,
            windows: WINDOWS_MS.iter().filter_map(|window_ms| self.window(*window_ms, &stages)).collect(),
            stages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_what_was_delivered_since_its_beginning_and_the_wait_in_progress() {
        let started = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let mut tally = LoaderTally::new(started, WaitClock::default());
        let stage = |items| vec![StageStats { items, ..StageStats::new(spdl_types::Stage::Decode) }];
        let stats = |tally: &LoaderTally| tally.stats(Serving::default(), stage(7));
        assert_eq!(stats(&tally).windows, [], "there is no history");
        tally.add(100);
        tally.note_history(|| stage(3));
        // As if that had been two seconds ago.
        tally.started = tally.started.checked_sub(Duration::from_secs(2)).unwrap();
        (0..4).for_each(|_| assert!(!tally.add_sample(0), "it is no bad sample"));
        tally.add(100);
        tally.note_history(|| stage(5));
        tally.note_history(|| unreachable!("not so soon again"));
        let [second, ten, minute] = &stats(&tally).windows[..] else { panic!("three windows") };
        assert_eq!((second.window_ms, ten.window_ms, minute.window_ms), (1_000, 10_000, 60_000));
        let count = |window: &LoaderWindow, per_s: f64| (per_s * window.seconds).round() as u64;
        assert!(ten.seconds >= 2.0 && ten == &LoaderWindow { window_ms: 10_000, ..minute.clone() }, "{ten:?}");
        assert_eq!([ten.batches_per_s, ten.samples_per_s, ten.bytes_per_s].map(|rate| count(ten, rate)), [1, 4, 100]);
        assert_eq!((count(ten, ten.stages[0].items_per_s), ten.waiting), (4, 0.0));
        let clock = tally.clock().clone();
        let _wait = clock.start();
        while stats(&tally).windows[1].waiting == 0.0 {
            std::thread::yield_now();
        }
    }
}
