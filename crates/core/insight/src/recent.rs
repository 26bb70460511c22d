//! Recent rates of counters, computed for people from totals.

/// A rate covers at least this time, once there is that much history, and at most twice this time.
const SPAN_MS: u64 = 5_000;

/// Keeps an earlier value of a counter and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentEvents<T> {
    /// The value to compare with: between one and two spans old, once there is that much history.
    base: Option<(u64, T)>,
    /// The value that becomes the base next.
    next: Option<(u64, T)>,
}

impl<T> Default for RecentEvents<T> {
    fn default() -> Self {
        Self { base: None, next: None }
    }
}

impl<T: Clone> RecentEvents<T> {
    /// Records the value of `now_ms`.
    pub fn note(&mut self, now_ms: u64, value: &T) {
        match &self.next {
            Some((since_ms, _)) if now_ms.saturating_sub(*since_ms) < SPAN_MS => {}
            _ => self.base = self.next.replace((now_ms, value.clone())),
        }
    }

    /// Returns the earlier value to compare with that of `at_ms`, and the seconds between them; `None` if there is none
    /// yet.
    #[must_use]
    pub fn before(&self, at_ms: u64) -> Option<(f64, &T)> {
        let (since_ms, value) = self.base.as_ref().or(self.next.as_ref())?;
        let elapsed_ms = at_ms.checked_sub(*since_ms).filter(|elapsed_ms| *elapsed_ms > 0)?;
        Some((elapsed_ms as f64 / 1e3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_seconds_and_not_of_all_time() {
        let mut recent = RecentEvents::default();
        assert_eq!(recent.before(0), None);
        recent.note(1_000, &10u64);
        assert_eq!(recent.before(1_000), None, "no time has passed");
        assert_eq!(recent.before(3_000), Some((2.0, &10)), "what little there is");
        for second in 2..=60 {
            recent.note(second * 1_000, &(second * 10));
            let (seconds, value) = recent.before(second * 1_000).unwrap();
            assert_eq!(*value as f64, (second as f64 - seconds) * 10.0);
            let enough = SPAN_MS as f64 / 1e3;
            assert!(seconds < 2.0 * enough && (seconds >= enough || second < 7), "{seconds} s at {second} s");
        }
    }
}
