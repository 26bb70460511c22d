//! What a rank has had and how long it has waited for it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spdl_wire::messages::StageFigures;

use crate::Serving;

/// Figures of a loader since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Batches handed over.
    pub batches: u64,
    /// Samples in them, without padding and invalid entries.
    pub samples: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Seconds since the loader was made.
    pub elapsed_s: f64,
    /// Seconds from then to the first batch.
    pub first_batch_s: Option<f64>,
    /// Seconds that the trainer has waited in all, for the first batch too.
    pub waited_s: f64,
    /// Milliseconds that it waited for a batch in the middle of cases, the first aside; within 7 %.
    pub wait_ms_p50: f64,
    /// Milliseconds that it waited for a batch in all but one of a hundred cases, the first aside; within 7 %.
    pub wait_ms_p99: f64,
    /// By whom and how it is served.
    pub serving: Serving,
    /// The stages of the pipeline, where it runs in this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageFigures>,
}

/// Keeps the figures.
#[derive(Debug)]
pub(crate) struct Tally {
    started: Instant,
    first_batch: Option<Duration>,
    batches: u64,
    samples: u64,
    bytes: u64,
    waited: Duration,
    waits: Waits,
}

impl Tally {
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            first_batch: None,
            batches: 0,
            samples: 0,
            bytes: 0,
            waited: Duration::ZERO,
            waits: Waits::default(),
        }
    }

    /// A batch of `bytes` came after the trainer had waited for it so long.
    pub(crate) fn add(&mut self, bytes: u64, samples: u64, waited: Duration) {
        self.batches += 1;
        self.samples += samples;
        self.bytes += bytes;
        self.waited += waited;
        if self.first_batch.is_none() {
            self.first_batch = Some(self.started.elapsed());
        } else {
            self.waits.add(waited);
        }
    }

    pub(crate) fn waited_ms(&self) -> u64 {
        u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn stats(&self, serving: Serving) -> Stats {
        Stats {
            batches: self.batches,
            samples: self.samples,
            bytes: self.bytes,
            elapsed_s: self.started.elapsed().as_secs_f64(),
            first_batch_s: self.first_batch.map(|time| time.as_secs_f64()),
            waited_s: self.waited.as_secs_f64(),
            wait_ms_p50: self.waits.quantile_ms(0.5),
            wait_ms_p99: self.waits.quantile_ms(0.99),
            serving,
            stages: Vec::new(),
        }
    }
}

/// Buckets per doubling: neighbours differ by at most 1/8, so a bucket's middle is within 7 %.
const STEPS: u32 = 8;

/// Counts of durations by size: 512 numbers, whatever comes.
#[derive(Debug)]
struct Waits {
    counts: Box<[u64; 64 * STEPS as usize]>,
    total: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self { counts: Box::new([0; 64 * STEPS as usize]), total: 0 }
    }
}

impl Waits {
    fn add(&mut self, wait: Duration) {
        let ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.total += 1;
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        let wanted = (quantile * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |bucket| middle_ns(bucket) / 1e6)
    }
}

/// Durations below [`STEPS`] nanoseconds have a bucket each; above, each power of two is cut in [`STEPS`].
fn bucket(ns: u64) -> usize {
    if ns < u64::from(STEPS) {
        return ns as usize;
    }
    let power = ns.ilog2();
    let step = (ns >> (power - STEPS.ilog2())) as u32 - STEPS;
    ((power - STEPS.ilog2() + 1) * STEPS + step) as usize
}

fn middle_ns(bucket: usize) -> f64 {
    let (power, step) = (bucket as u32 / STEPS, bucket as u32 % STEPS);
    if power == 0 {
        return f64::from(step);
    }
    (f64::from(STEPS + step) + 0.5) * 2f64.powi(power as i32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_seven_percent_from_nanoseconds_to_hours() {
        for ns in [1u64, 7, 8, 9, 1000, 123_456, 1_000_000, 987_654_321, 7_200_000_000_000] {
            let mut waits = Waits::default();
            waits.add(Duration::from_nanos(ns));
            let found = waits.quantile_ms(0.5) * 1e6;
            assert!((found - ns as f64).abs() <= 0.07 * ns as f64, "{found} for {ns}");
        }
        assert!(bucket(u64::MAX) < 64 * STEPS as usize);
    }

    #[test]
    fn one_long_wait_in_fifty_is_in_the_last_hundredth_and_not_in_the_middle() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile_ms(0.5), 0.0);
        for wait in 0..50 {
            waits.add(Duration::from_millis(if wait == 20 { 500 } else { 2 }));
        }
        assert!((1.8..2.2).contains(&waits.quantile_ms(0.5)), "{}", waits.quantile_ms(0.5));
        assert!((460.0..540.0).contains(&waits.quantile_ms(0.99)), "{}", waits.quantile_ms(0.99));
    }
}
