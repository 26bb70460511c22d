//! What stages did lately: the rates of the last 1, 10 and 60 seconds, from the totals that each process counts.
//!
//! Processes send totals, and the reader takes the differences. So a lost message costs nothing, each reader chooses
//! its windows, and heartbeats stay short.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use spdl_types::{Stage, StageStats};

/// The lengths of the windows, in milliseconds.
pub const WINDOWS_MS: [u64; 3] = [1_000, 10_000, 60_000];
/// A window is longer than its nominal length by at most one part in this many.
const STEPS: u64 = 10;

/// What the stages of a process did in a window of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageWindow {
    /// Which of [`WINDOWS_MS`] it is.
    pub window_ms: u64,
    /// The actual length of the window: shorter while the process has not run for longer, and up to a tenth longer.
    pub seconds: f64,
    /// The stages, in the order in which a sample passes them.
    pub stages: Vec<StageRate>,
}

/// What a stage did in a window of time, per second. Times are seconds per second, summed over all units, so that the
/// four times add up to the mean number of units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StageRate {
    #[serde(rename = "name")]
    pub stage: Stage,
    pub items_per_s: f64,
    pub bytes_per_s: f64,
    pub failures_per_s: f64,
    pub busy: f64,
    pub input_wait: f64,
    pub output_wait: f64,
    pub throttled: f64,
    /// Cores that the stage used, where it counts CPU time.
    pub cpu: f64,
}

impl StageRate {
    fn between(before: Option<&StageStats>, now: &StageStats, seconds: f64) -> Self {
        let per_s = |value: fn(&StageStats) -> u64| now_minus(value(now), before.map_or(0, value)) / seconds;
        let units = |value| thousandths(per_s(value) / 1e9);
        Self {
            stage: now.stage.clone(),
            items_per_s: thousandths(per_s(|stage| stage.items)),
            bytes_per_s: per_s(|stage| stage.bytes).round(),
            failures_per_s: thousandths(per_s(|stage| stage.failures)),
            busy: units(|stage| stage.busy_ns),
            input_wait: units(|stage| stage.input_wait_ns),
            output_wait: units(|stage| stage.output_wait_ns),
            throttled: units(|stage| stage.throttled_ns),
            cpu: units(|stage| stage.cpu_ns),
        }
    }

    /// Returns the fraction of its busy time for which the stage had a core; `None` where it counts no CPU time.
    #[must_use]
    pub fn core_share(&self) -> Option<f64> {
        (self.busy > 0.0 && self.cpu > 0.0).then(|| (self.cpu / self.busy).min(1.0))
    }

    /// Returns the mean number of units.
    #[must_use]
    pub fn units(&self) -> f64 {
        self.busy + self.input_wait + self.output_wait + self.throttled
    }
}

/// Rounds to thousandths, so that a status with many numbers stays short.
fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn now_minus(now: u64, before: u64) -> f64 {
    now.saturating_sub(before) as f64
}

/// Keeps earlier totals: at most a dozen for each window.
#[derive(Clone, Debug, PartialEq)]
pub struct History<T> {
    /// For each window the totals since its beginning, with their time.
    windows: [VecDeque<(u64, T)>; WINDOWS_MS.len()],
}

/// The totals of the stages of a process.
pub type StageHistory = History<Vec<StageStats>>;

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { windows: Default::default() }
    }
}

impl<T: Clone> History<T> {
    /// Records the totals of `at_ms`, by the clock of the process that counted them. A clock that goes back belongs to
    /// a new process, so the earlier totals are dropped.
    pub fn note(&mut self, at_ms: u64, totals: &T) {
        for (kept, window_ms) in self.windows.iter_mut().zip(WINDOWS_MS) {
            match kept.back() {
                Some((last_ms, _)) if at_ms < *last_ms => kept.clear(),
                Some((last_ms, _)) if at_ms - last_ms < window_ms / STEPS => continue,
                _ => {}
            }
            kept.push_back((at_ms, totals.clone()));
            while kept.get(1).is_some_and(|(next_ms, _)| at_ms - next_ms >= window_ms) {
                kept.pop_front();
            }
        }
    }

    /// Returns the totals at the beginning of a window of [`WINDOWS_MS`] that ends at `at_ms`, and the window's length in
    /// seconds; `None` before a millisecond has passed since the first record.
    #[must_use]
    pub fn since(&self, window_ms: u64, at_ms: u64) -> Option<(f64, &T)> {
        let at = WINDOWS_MS.iter().position(|known_ms| *known_ms == window_ms)?;
        let kept = &self.windows[at];
        let old_enough = |(since_ms, _): &&(u64, T)| at_ms.saturating_sub(*since_ms) >= window_ms;
        let (since_ms, before) = kept.iter().rev().find(old_enough).or_else(|| kept.front())?;
        let elapsed_ms = at_ms.checked_sub(*since_ms).filter(|elapsed_ms| *elapsed_ms > 0)?;
        Some((elapsed_ms as f64 / 1e3, before))
    }
}

impl StageHistory {
    /// Returns what the stages did in the window that ends at `at_ms`, when their totals are `totals`; `None` before a
    /// millisecond has passed since the first record.
    #[must_use]
    pub fn window(&self, window_ms: u64, at_ms: u64, totals: &[StageStats]) -> Option<StageWindow> {
        let (seconds, before) = self.since(window_ms, at_ms)?;
        let rate = |now: &StageStats| {
            let before = before.iter().find(|before| before.stage == now.stage);
            StageRate::between(before, now, seconds)
        };
        Some(StageWindow { window_ms, seconds, stages: totals.iter().map(rate).collect() })
    }

    /// Returns what the stages did in each window, as [`window`](Self::window) does.
    #[must_use]
    pub fn windows(&self, at_ms: u64, totals: &[StageStats]) -> Vec<StageWindow> {
        WINDOWS_MS.iter().filter_map(|window_ms| self.window(*window_ms, at_ms, totals)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The totals of a stage with two units, one busy, that does an item in a tenth of a second, after `ms`.
    fn totals(ms: u64) -> Vec<StageStats> {
        let ns = ms * 1_000_000;
        let stats = StageStats::new(Stage::Decode);
        vec![StageStats { items: ms / 100, busy_ns: ns, input_wait_ns: ns, units: 2, ..stats }]
    }

    #[test]
    fn each_window_is_as_long_as_its_name_once_there_is_that_much_history() {
        let mut history = StageHistory::default();
        assert_eq!(history.windows(0, &totals(0)), []);
        for second in 0..200 {
            let at_ms = second * 1_000;
            history.note(at_ms, &totals(at_ms));
            let windows = history.windows(at_ms, &totals(at_ms));
            for (window, window_ms) in windows.iter().zip(WINDOWS_MS) {
                let named = window_ms as f64 / 1e3;
                let most = named * (1.0 + 1.0 / STEPS as f64);
                let least = named.min(second as f64);
                assert!((least..=most).contains(&window.seconds), "{} s at {second} s", window.seconds);
                let [stage] = &window.stages[..] else { panic!("{window:?}") };
                assert!((stage.items_per_s - 10.0).abs() < 1e-9 && (stage.busy - 1.0).abs() < 1e-9, "{stage:?}");
                assert!((stage.units() - 2.0).abs() < 1e-9 && window.window_ms == window_ms, "{stage:?}");
            }
            assert_eq!(windows.len(), if second == 0 { 0 } else { 3 });
        }
    }

    #[test]
    fn a_window_shows_what_happens_now_and_not_what_was() {
        let mut history = StageHistory::default();
        let busy_until = |ms: u64| totals(ms.min(30_000));
        (0..=60).for_each(|second| history.note(second * 1_000, &busy_until(second * 1_000)));
        let windows = history.windows(60_000, &busy_until(60_000));
        let rates: Vec<f64> = windows.iter().map(|window| window.stages[0].items_per_s).collect();
        assert_eq!(rates, [0.0, 0.0, 5.0]);
    }

    #[test]
    fn however_often_totals_come_few_are_kept() {
        let mut history = StageHistory::default();
        (0..100_000).for_each(|ms| history.note(ms, &totals(ms)));
        assert!(history.windows.iter().all(|kept| kept.len() <= STEPS as usize + 2), "{history:?}");
        history.note(5, &totals(5));
        assert!(history.windows.iter().all(|kept| kept.len() == 1), "another process has begun to count");
    }

    #[test]
    fn a_stage_that_is_new_counts_from_nothing_and_totals_that_shrank_are_no_rate() {
        let mut history = StageHistory::default();
        history.note(0, &totals(5_000));
        let fetch = StageStats { items: 4, ..StageStats::new(Stage::Fetch) };
        let windows = history.windows(2_000, &[fetch, totals(1_000).remove(0)]);
        assert_eq!(windows[0].stages[0].items_per_s, 2.0);
        assert_eq!(windows[0].stages[1].items_per_s, 0.0);
    }
}
