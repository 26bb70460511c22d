//! The rates of a counter over time, in steps: fine ones for minutes and coarse ones for an hour, in fixed memory.

use std::collections::VecDeque;

/// The lengths of the steps in milliseconds, and how many of each are kept: 5 minutes of seconds, and 75 minutes of tens
/// of seconds.
pub(super) const TIERS: [(u64, usize); 2] = [(1_000, 300), (10_000, 450)];

/// The change of a counter's totals `T` in each step, as a point `P`.
#[derive(Clone, Debug)]
pub(super) struct Series<T, P> {
    tiers: [Tier<T, P>; TIERS.len()],
    /// When the last totals came, in milliseconds.
    heard_ms: u64,
}

/// The steps of one length. They have no gaps: if totals come late, all steps since the last ones get the mean.
#[derive(Clone, Debug)]
struct Tier<T, P> {
    /// The totals from which the step in progress counts, and their time in milliseconds.
    base: Option<(u64, T)>,
    /// The number of the first step that is not over. Step `k` begins `k` steps after time zero.
    end: u64,
    points: VecDeque<P>,
}

impl<T, P> Default for Series<T, P> {
    fn default() -> Self {
        let tier = || Tier { base: None, end: 0, points: VecDeque::new() };
        Self { tiers: [tier(), tier()], heard_ms: 0 }
    }
}

impl<T: Clone, P: Copy> Series<T, P> {
    /// Records the totals of `now_ms`. `point` computes a point from earlier totals, these totals and the seconds
    /// between.
    pub(super) fn note(&mut self, now_ms: u64, totals: &T, point: impl Fn(&T, &T, f64) -> P) {
        self.heard_ms = now_ms;
        for (tier, (step_ms, kept)) in self.tiers.iter_mut().zip(TIERS) {
            tier.note(now_ms, totals, step_ms, kept, &point);
        }
    }

    /// Returns when the last totals came, in milliseconds.
    pub(super) const fn heard_ms(&self) -> u64 {
        self.heard_ms
    }

    /// Returns the points of the steps of this length from number `first` on, and the number of the first of them.
    pub(super) fn since(&self, step_ms: u64, first: u64) -> (u64, Vec<P>) {
        let tier = TIERS.iter().position(|(length, _)| *length == step_ms).map(|at| &self.tiers[at]);
        tier.map_or((first, Vec::new()), |tier| tier.since(first))
    }
}

impl<T: Clone, P: Copy> Tier<T, P> {
    fn note(&mut self, now_ms: u64, totals: &T, step_ms: u64, kept: usize, point: impl Fn(&T, &T, f64) -> P) {
        let step = now_ms / step_ms;
        if let Some((since_ms, before)) = &self.base {
            let over = step.saturating_sub(since_ms / step_ms);
            if over == 0 {
                return;
            }
            let point = point(before, totals, (now_ms - since_ms) as f64 / 1e3);
            let new = usize::try_from(over).unwrap_or(kept).min(kept);
            self.points.drain(..(self.points.len() + new).saturating_sub(kept));
            self.points.reserve_exact(kept - self.points.len());
            self.points.extend(std::iter::repeat_n(point, new));
        }
        self.base = Some((now_ms, totals.clone()));
        self.end = step;
    }

    fn since(&self, first: u64) -> (u64, Vec<P>) {
        let oldest = self.end - self.points.len() as u64;
        let first = first.clamp(oldest, self.end);
        let skipped = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        (first, self.points.iter().skip(skipped).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(before: &u64, now: &u64, seconds: f64) -> f64 {
        (now - before) as f64 / seconds
    }

    /// The totals of a counter that counts 100 a second, noted at irregular times.
    fn steady(seconds: u64) -> Series<u64, f64> {
        let mut series = Series::default();
        for now_ms in (0..=seconds * 1_000).step_by(700) {
            series.note(now_ms, &(now_ms / 10), rate);
        }
        series
    }

    #[test]
    fn a_steady_rate_is_steady_in_every_step_however_the_totals_come() {
        for (step_ms, kept) in TIERS {
            let (first, points) = steady(7_200).since(step_ms, 0);
            assert_eq!((points.len(), first), (kept, 7_199_500 / step_ms - kept as u64));
            assert!(points.iter().all(|rate| (rate - 100.0).abs() < 1e-9), "{points:?}");
        }
    }

    #[test]
    fn a_step_is_shown_once_it_is_over_and_only_new_steps_are_asked_for() {
        let mut series = Series::default();
        for (now_ms, total) in [(500, 0), (900, 1), (1_500, 10), (2_500, 30)] {
            series.note(now_ms, &total, rate);
        }
        assert_eq!(series.since(1_000, 0), (0, vec![10.0, 20.0]));
        assert_eq!(series.since(1_000, 1), (1, vec![20.0]));
        assert_eq!(series.since(1_000, 9), (2, vec![]), "it has not come yet");
        assert_eq!(series.since(10_000, 0), (0, vec![]));
        assert_eq!(series.since(7, 5), (5, vec![]), "there is no such step");
    }

    #[test]
    fn silence_is_filled_with_the_mean_of_what_was_counted_in_it() {
        let mut series = Series::default();
        series.note(0, &0, rate);
        series.note(4_000, &100, rate);
        assert_eq!(series.since(1_000, 0), (0, vec![25.0; 4]));
        series.note(1_000_000_000_000, &100, rate);
        let (first, points) = series.since(1_000, 0);
        assert_eq!((first, points), (1_000_000_000 - 300, vec![0.0; 300]));
    }

    #[test]
    fn a_clock_that_goes_back_adds_no_steps() {
        let mut series = steady(10);
        let before = series.since(1_000, 0);
        series.note(3_000, &1, |_, _, _| panic!("no step is over"));
        assert_eq!(series.since(1_000, 0), before);
    }
}
