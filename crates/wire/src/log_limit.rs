//! Limits the rate of log lines that remote peers can cause: any peer that can send a packet could fill a disk with
//! them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The period of lines that remote peers can cause.
pub(crate) const LOG_PERIOD: Duration = Duration::from_secs(30);

/// Allows one line in a period, and counts the others. Use one for each kind of line.
#[derive(Debug)]
pub struct LogLimit {
    period: Duration,
    state: Mutex<LimitState>,
}

#[derive(Debug, Default)]
struct LimitState {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Allows at most one line in `period`.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self { period, state: Mutex::default() }
    }

    /// Returns the number of lines left out since the last one if a line may be written now, and `None` if not.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.period) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }

    /// Like [`admit`](Self::admit), but returns the end of the line: empty, or how many similar lines were left out.
    pub fn admit_text(&self) -> Option<String> {
        self.admit(Instant::now()).map(|left_out| match left_out {
            0 => String::new(),
            more => format!(" ({more} more like it since the last such line)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_in_a_period_with_the_number_of_suppressed_ones() {
        let limit = LogLimit::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| limit.admit(start + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(1), at(9), at(10), at(11), at(30), at(40)],
            [Some(0), None, None, Some(2), None, Some(1), Some(0)]
        );
    }
}
