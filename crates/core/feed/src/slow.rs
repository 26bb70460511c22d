//! Which samples take many times as long as most: as their sizes predict before they are decoded, and as they took once they are.

use std::{cmp::Ordering, collections::BTreeMap};

use spdl_types::SampleId;

/// A sample is slow if it takes more than this many times what most take.
pub const SLOW: u64 = 8;
/// A sample that takes less than this delays no batch, however fast the others are; and any may wait that long for a core.
const LEAST_SLOW_NS: u64 = 5_000_000;
/// A job has a heavy tail if its slow samples took at least one part in this many of the time of all. A sample that
/// only waited for a core makes no tail for long; while it does, samples are copied once more.
const SHARE: u64 = 8;
/// Nothing is called slow before this many samples were decoded.
const LEAST_SAMPLES: u64 = 64;
/// At most so many samples are known by their time, in 1 MB of memory.
const MOST_KNOWN: usize = 1 << 14;
/// What is usual moves by one part in this many with each sample, and what is long with each slow one.
const SLOWNESS: u64 = 32;
/// Times count for half after this many samples.
const HALF: u64 = 4096;
/// Samples are decoded ahead as if none took more than this many times what most take.
const MOST_TIMES: u64 = 64;

/// What the samples of a job take. Call [`note`](Self::note) for each that was decoded.
///
/// A sample that was slow in one epoch is expected to be so in the next one. Of others, the bytes predict the time. What is usual
/// is an estimate of the median, which a few slow samples do not move.
#[derive(Clone, Debug, Default)]
pub struct SlowSamples {
    samples: u64,
    usual_ns: u64,
    usual_bytes: u64,
    /// What those took whose time was slow, or not what their bytes predicted.
    known_ns: BTreeMap<SampleId, u64>,
    /// What the slow samples, and all, took of late.
    slow_ns: u64,
    all_ns: u64,
    /// What the slowest of late took.
    long_ns: u64,
}

impl SlowSamples {
    /// Notes that a sample of `bytes` took `took_ns` to decode.
    pub fn note(&mut self, id: SampleId, bytes: u64, took_ns: u64) {
        if self.samples >= LEAST_SAMPLES {
            let (is_slow, by_size) = (self.is_long(took_ns), self.is_long(self.predicted_ns(bytes)));
            if is_slow {
                self.slow_ns += took_ns;
                self.long_ns = (self.long_ns - self.long_ns / SLOWNESS).max(took_ns);
            }
            self.all_ns += took_ns;
            if is_slow || by_size {
                if self.known_ns.len() < MOST_KNOWN || self.known_ns.contains_key(&id) {
                    self.known_ns.insert(id, took_ns);
                }
            } else if !self.known_ns.is_empty() {
                self.known_ns.remove(&id);
            }
        }
        self.samples += 1;
        if self.samples.is_multiple_of(HALF) {
            (self.slow_ns, self.all_ns) = (self.slow_ns / 2, self.all_ns / 2);
        }
        follow(&mut self.usual_ns, took_ns);
        follow(&mut self.usual_bytes, bytes);
    }

    /// Returns whether the job has a heavy tail: slow samples that take a good part of the time of all.
    #[must_use]
    pub const fn has_tail(&self) -> bool {
        self.slow_ns > 0 && self.slow_ns.saturating_mul(SHARE) >= self.all_ns
    }

    /// Returns how many samples `threads` threads decode while one of them has a slow sample, and a few more: so many have to be decoded
    /// ahead for batches to come in time. 0 if the job has no heavy tail.
    #[must_use]
    pub fn wanted_ahead(&self, threads: usize) -> usize {
        if !self.has_tail() {
            return 0;
        }
        let times = (self.long_ns / self.usual_ns.max(1)).min(MOST_TIMES);
        threads * usize::try_from(times + times / 4).unwrap_or(usize::MAX)
    }

    /// Returns how long a sample is likely to take, in nanoseconds; of samples that nothing is known of, those with more bytes take
    /// longer.
    #[must_use]
    pub fn expected_ns(&self, id: SampleId, bytes: u64) -> u64 {
        self.known_ns.get(&id).copied().unwrap_or_else(|| self.predicted_ns(bytes))
    }

    /// Returns whether a sample is likely to be slow.
    #[must_use]
    pub fn is_slow(&self, id: SampleId, bytes: u64) -> bool {
        self.has_tail() && self.is_long(self.expected_ns(id, bytes))
    }

    fn predicted_ns(&self, bytes: u64) -> u64 {
        let ns = u128::from(self.usual_ns.max(1)) * u128::from(bytes) / u128::from(self.usual_bytes.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn is_long(&self, ns: u64) -> bool {
        ns > self.usual_ns.saturating_mul(SLOW).max(LEAST_SLOW_NS)
    }
}

/// Moves an estimate of the median towards a value.
fn follow(usual: &mut u64, value: u64) {
    let step = (*usual / SLOWNESS).max(1);
    match value.cmp(usual) {
        _ if *usual == 0 => *usual = value,
        Ordering::Greater => *usual += step.min(value - *usual),
        Ordering::Less => *usual -= step.min(*usual - value),
        Ordering::Equal => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns samples of 100 bytes and a millisecond, but for one in a hundred that takes `slow_ms` and has `slow_bytes`.
    fn samples(slow_ms: u64, slow_bytes: u64) -> SlowSamples {
        let mut samples = SlowSamples::default();
        for id in 0..1000 {
            let (bytes, ms) = if id % 100 == 37 { (slow_bytes, slow_ms) } else { (100, 1) };
            samples.note(SampleId(id), bytes, ms * MS);
        }
        samples
    }

    #[test]
    fn a_sample_that_was_slow_is_expected_to_be_slow_again_whatever_its_size() {
        let samples = samples(50, 100);
        let slow: Vec<u64> = (0..1000).filter(|id| samples.is_slow(SampleId(*id), 100)).collect();
        // The first came before anything was known to be usual.
        assert_eq!(slow, (1..10).map(|hundred| 100 * hundred + 37).collect::<Vec<_>>());
        assert_eq!(samples.expected_ns(SampleId(137), 100), 50 * MS);
    }

    #[test]
    fn the_size_of_a_sample_predicts_its_time_if_samples_have_been_slow() {
        let samples = samples(50, 5000);
        assert!(samples.is_slow(SampleId(5000), 5000) && !samples.is_slow(SampleId(5000), 300));
        assert!(samples.expected_ns(SampleId(5000), 200) > samples.expected_ns(SampleId(5000), 100));
        let even = self::samples(1, 5000);
        assert!(!even.has_tail() && !even.is_slow(SampleId(5000), 5000), "large samples take no longer");
    }

    #[test]
    fn large_samples_that_are_quick_are_known_as_such() {
        let mut samples = samples(50, 5000);
        samples.note(SampleId(37), 5000, MS);
        assert!(!samples.is_slow(SampleId(37), 5000) && samples.is_slow(SampleId(137), 5000));
    }

    #[test]
    fn nothing_that_takes_little_is_slow() {
        let mut samples = SlowSamples::default();
        (0..1000).for_each(|id| samples.note(SampleId(id), 100, if id % 100 == 37 { MS } else { 10_000 }));
        assert!(!samples.has_tail());
    }

    #[test]
    fn what_is_decoded_ahead_is_what_the_threads_do_while_one_has_a_slow_sample() {
        assert_eq!(samples(50, 100).wanted_ahead(2), 2 * (50 + 12));
        assert_eq!(samples(1000, 100).wanted_ahead(2), 2 * (64 + 16));
        assert_eq!(samples(1, 100).wanted_ahead(2), 0, "all take the same");
        let mut few = SlowSamples::default();
        (0..100_000).for_each(|id| few.note(SampleId(id), 100, if id % 333 == 300 { 20 * MS } else { MS }));
        assert_eq!(few.wanted_ahead(2), 0, "they take little of the time");
    }

    #[test]
    fn the_first_slow_sample_makes_a_tail_and_one_that_stays_alone_is_forgotten() {
        let mut samples = SlowSamples::default();
        (0..100).for_each(|id| samples.note(SampleId(id), 100, if id == 70 { 50 * MS } else { MS }));
        assert_eq!(samples.wanted_ahead(2), 2 * (50 + 12));
        (100..1000).for_each(|id| samples.note(SampleId(id), 100, MS));
        assert!(!samples.has_tail(), "it may have waited for a core");
    }

    #[test]
    fn what_is_usual_is_the_median() {
        let mut samples = SlowSamples::default();
        (0..5000).for_each(|id| samples.note(SampleId(id), 1 + id * 7919 % 1000, MS * (1 + id * 7919 % 1000)));
        assert!((300 * MS..700 * MS).contains(&samples.usual_ns), "{}", samples.usual_ns);
        assert!((300..700).contains(&samples.usual_bytes), "{}", samples.usual_bytes);
    }

    #[test]
    fn the_number_of_known_samples_is_bounded() {
        let mut samples = samples(50, 100);
        (0..2 * MOST_KNOWN as u64).for_each(|id| {
            samples.note(SampleId(id), 100, 50 * MS);
            (0..3).for_each(|_| samples.note(SampleId(u64::MAX), 100, MS));
        });
        assert_eq!(samples.known_ns.len(), MOST_KNOWN);
    }
}
