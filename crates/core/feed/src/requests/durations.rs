//! One quantile of the durations of recent requests, by size.

use std::time::Duration;

/// Number of durations that are kept for one size class.
const RECENT: usize = 256;
/// Number of requests after which the quantile is computed again, once that many durations are kept.
const REFRESH: usize = 16;
/// Sizes below 2^MIN_BITS bytes are one class, and so are sizes from 2^MAX_BITS on; between them, each doubling is a
/// class.
const MIN_BITS: u32 = 16;
const MAX_BITS: u32 = 24;
const CLASSES: usize = (MAX_BITS - MIN_BITS + 1) as usize;

/// A quantile of the recent durations of requests of each size class.
#[derive(Debug)]
pub(super) struct RecentDurations {
    classes: [ClassDurations; CLASSES],
    percent: usize,
    /// Minimum number of durations of a class for an estimate.
    enough: usize,
}

/// The durations of the last requests of one size class.
#[derive(Debug, Default)]
struct ClassDurations {
    micros: Vec<u32>,
    next: usize,
    quantile: Option<Duration>,
    since_refresh: usize,
}

impl RecentDurations {
    pub(super) fn new(percent: usize, enough: usize) -> Self {
        Self { classes: Default::default(), percent, enough }
    }

    /// Records that a request for `bytes` bytes took this long.
    pub(super) fn note(&mut self, bytes: u64, took: Duration) {
        let (percent, enough) = (self.percent, self.enough);
        let class = &mut self.classes[class_of(bytes)];
        class.add(took);
        let is_due = class.since_refresh >= REFRESH.min(class.micros.len() / 4);
        if class.micros.len() >= enough && (class.quantile.is_none() || is_due) {
            class.refresh(percent);
        }
    }

    /// Returns the quantile of requests of about `bytes` bytes; `None` while that is unknown.
    pub(super) fn of_class(&self, bytes: u64) -> Option<Duration> {
        self.classes[class_of(bytes)].quantile
    }

    /// Returns the quantile of requests of about `bytes` bytes. Where that is unknown, returns the quantile of the next
    /// larger known class, or else that of the next smaller one, scaled to the size.
    pub(super) fn of_class_or_others(&self, bytes: u64) -> Option<Duration> {
        let class = class_of(bytes);
        let known = self.classes[class..].iter().find_map(|class| class.quantile);
        known.or_else(|| {
            let smaller = (1..).zip(self.classes[..class].iter().rev());
            smaller.filter_map(|(doublings, class)| Some(class.quantile? * (1 << doublings))).next()
        })
    }
}

impl ClassDurations {
    fn add(&mut self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.micros.len() < RECENT {
            self.micros.push(micros);
        } else {
            self.micros[self.next] = micros;
            self.next = (self.next + 1) % RECENT;
        }
        self.since_refresh += 1;
    }

    fn refresh(&mut self, percent: usize) {
        self.since_refresh = 0;
        let mut sorted = self.micros.clone();
        let rank = (sorted.len() * percent).div_ceil(100) - 1;
        let (_, quantile, _) = sorted.select_nth_unstable(rank);
        self.quantile = Some(Duration::from_micros((*quantile).into()));
    }
}

fn class_of(bytes: u64) -> usize {
    let bits = u64::BITS - bytes.leading_zeros();
    (bits.clamp(MIN_BITS, MAX_BITS) - MIN_BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_unknown_of_a_size_is_taken_from_larger_ones_or_else_from_smaller_ones() {
        let mut recent = RecentDurations::new(50, 4);
        let note = |recent: &mut RecentDurations, bytes, ms| {
            (0..4).for_each(|_| recent.note(bytes, Duration::from_millis(ms)));
        };
        assert_eq!(recent.of_class_or_others(MIB), None);
        note(&mut recent, MIB, 10);
        assert_eq!(recent.of_class(4 * MIB), None);
        assert_eq!(recent.of_class_or_others(4 * MIB), Some(Duration::from_millis(40)));
        assert_eq!(recent.of_class_or_others(100), Some(Duration::from_millis(10)));
        note(&mut recent, 2 * MIB, 15);
        assert_eq!(recent.of_class_or_others(4 * MIB), Some(Duration::from_millis(30)));
        assert_eq!(recent.of_class_or_others(MIB), Some(Duration::from_millis(10)));
    }

    #[test]
    fn the_quantile_follows_what_requests_take() {
        let mut recent = RecentDurations::new(50, 4);
        (0..300).for_each(|_| recent.note(MIB, Duration::from_millis(10)));
        (0..300).for_each(|_| recent.note(MIB, Duration::from_millis(80)));
        assert_eq!(recent.of_class(MIB), Some(Duration::from_millis(80)));
    }
}
