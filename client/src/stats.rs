//! Statistics of a loader: what the rank received, and how long the trainer waited for it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spdl_core::{Stage, histogram::DurationHistogram, layout::entry_flags, messages::StageStats};

use crate::{Serving, WaitClock};

/// The statistics of a loader since it was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The number of batches delivered.
    pub batches: u64,
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
    /// Seconds of those that it has waited since the first batch.
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
}

/// The fraction of its time below which a trainer's wait is negligible.
const NEGLIGIBLE_WAIT: f64 = 0.02;
/// A wait of this many seconds is reported however few batches there were.
const NOTABLE_WAIT_S: f64 = 1.0;

impl Stats {
    /// Explains in words whether the trainer or the loader has limited the speed since the first batch, by how much,
    /// and where to look.
    #[must_use]
    pub fn verdict(&self) -> String {
        let since_first_s = self.elapsed_s - self.first_batch_s.unwrap_or(self.elapsed_s);
        if self.batches == 0 && self.waited_s >= NOTABLE_WAIT_S {
            return format!("no batch has arrived yet: the trainer has waited {:.1} s for the first", self.waited_s);
        }
        let is_early = self.batches < 2 && self.waited_since_first_s < NOTABLE_WAIT_S;
        if is_early || since_first_s <= 0.0 {
            return "too early for a verdict: fewer than two batches have arrived".to_owned();
        }
        let waited = self.waited_since_first_s / since_first_s;
        if waited < NEGLIGIBLE_WAIT {
            return format!("the trainer sets the pace: it waited for batches {:.1} % of its time", 100.0 * waited);
        }
        let slow =
            format!("the loader sets the pace: the trainer waited for batches {:.0} % of its time", 100.0 * waited);
        let stats = |stage: Stage| self.stages.iter().find(|stats| stats.stage == stage);
        match (stats(Stage::Decode), stats(Stage::Fetch), &self.serving.home) {
            (Some(decode), Some(fetch), _) => format!(
                "{slow}; decoding kept {:.1} cores busy, half of the fetches took more than {:.1} ms",
                decode.busy_ns as f64 / 1e9 / self.elapsed_s,
                fetch.p50_ns as f64 / 1e6
            ),
            (_, _, Some(home)) => format!("{slow}; what its home `{home}` is short of is in `spdl-ctl status`"),
            _ => slow,
        }
    }
}

/// Counts what [`Stats`] reports.
#[derive(Debug)]
pub(crate) struct LoaderTally {
    started: Instant,
    first_batch: Option<Duration>,
    batches: u64,
    samples: u64,
    substituted: u64,
    masked: u64,
    bytes: u64,
    clock: WaitClock,
    /// The clock's total when the last batch was delivered.
    waited_before: Duration,
    first_wait: Duration,
    waits: DurationHistogram,
}

impl LoaderTally {
    pub(crate) fn new(started: Instant, clock: WaitClock) -> Self {
        Self {
            started,
            first_batch: None,
            batches: 0,
            samples: 0,
            substituted: 0,
            masked: 0,
            bytes: 0,
            clock,
            waited_before: Duration::ZERO,
            first_wait: Duration::ZERO,
            waits: DurationHistogram::default(),
        }
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

    pub(crate) fn stats(&self, serving: Serving) -> Stats {
        let waited = self.clock.total();
        let [wait_ms_p50, wait_ms_p99] = self.waits.quantiles([0.5, 0.99]).map(|wait| wait.as_secs_f64() * 1e3);
        let since_first = self.first_batch.map_or(Duration::ZERO, |_| waited.saturating_sub(self.first_wait));
        Stats {
            batches: self.batches,
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
            stages: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_names_the_part_that_is_waited_for() {
        let stats = |waited_since_first_s| Stats {
            batches: 10,
            elapsed_s: 12.0,
            first_batch_s: Some(2.0),
            waited_since_first_s,
            ..Stats::default()
        };
        assert!(Stats { batches: 1, ..stats(0.0) }.verdict().contains("too early"));
        let none = Stats { batches: 0, first_batch_s: None, waited_s: 50.0, ..stats(0.0) };
        assert_eq!(none.verdict(), "no batch has arrived yet: the trainer has waited 50.0 s for the first");
        let one = Stats { batches: 1, ..stats(9.5) }.verdict();
        assert_eq!(one, "the loader sets the pace: the trainer waited for batches 95 % of its time");
        assert_eq!(stats(0.05).verdict(), "the trainer sets the pace: it waited for batches 0.5 % of its time");
        let slow = "the loader sets the pace: the trainer waited for batches 40 % of its time";
        assert_eq!(stats(4.0).verdict(), slow);
        let serving = Serving { home: Some("node-0".to_owned()), ..Serving::default() };
        let served = Stats { serving, ..stats(4.0) };
        assert_eq!(served.verdict(), format!("{slow}; what its home `node-0` is short of is in `spdl-ctl status`"));
        let stage = |stage, busy_ns, p50_ns| StageStats { busy_ns, p50_ns, ..StageStats::new(stage) };
        let stages = vec![stage(Stage::Fetch, 5, 1_500_000), stage(Stage::Decode, 18_000_000_000, 7)];
        let verdict = Stats { stages, ..stats(4.0) }.verdict();
        assert!(
            verdict.ends_with("decoding kept 1.5 cores busy, half of the fetches took more than 1.5 ms"),
            "{verdict}"
        );
    }
}
