//! Logs that a rank waits for its worker: once after a long wait, then at growing intervals, and once when batches
//! come again.

use std::time::Duration;

use spdl_insight::Stall;
use spdl_types::Stage;

use super::view::FeedView;

/// How often a rank's wait is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A wait is logged after this time, and again each time it has doubled.
const FIRST_MS: u64 = 5_000;
/// Longest time between two log lines about the same wait.
const MAX_GAP_MS: u64 = 600_000;

/// Decides when a rank's wait is logged. It has no clock of its own.
#[derive(Debug, Default)]
struct StallLog {
    /// Length of the wait when it was last logged; 0 if this wait was not logged.
    logged_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum LogEntry {
    Waiting,
    Resumed { after_ms: u64 },
}

impl StallLog {
    /// Takes what the rank waits for; `None` if a batch is ready. Returns the line to log, if any.
    fn check(&mut self, stall: Option<&Stall>) -> Option<LogEntry> {
        // Waits for the trainer are not the worker's fault.
        let is_own = |stage: &Stage| matches!(stage, Stage::Open | Stage::Fetch | Stage::Decode | Stage::Transform);
        let waited_ms = stall.filter(|stall| is_own(&stall.stage)).map(|stall| stall.waited_ms);
        match waited_ms {
            None | Some(0..FIRST_MS) if self.logged_ms > 0 => {
                Some(LogEntry::Resumed { after_ms: std::mem::take(&mut self.logged_ms) })
            }
            Some(waited_ms) if waited_ms >= self.next_ms() => {
                self.logged_ms = waited_ms;
                Some(LogEntry::Waiting)
            }
            _ => None,
        }
    }

    fn next_ms(&self) -> u64 {
        if self.logged_ms == 0 { FIRST_MS } else { (self.logged_ms * 2).min(self.logged_ms + MAX_GAP_MS) }
    }
}

/// Watches a rank and logs its waits; never returns.
pub(super) async fn watch(view: FeedView) {
    let mut log = StallLog::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let stall = view.stall();
        match (log.check(stall.as_ref()), stall) {
            (Some(LogEntry::Waiting), Some(stall)) => {
                tracing::warn!("no batch: {stall}");
            }
            (Some(LogEntry::Resumed { after_ms }), _) => {
                tracing::info!(waited_ms = after_ms, "batches are ready again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(stage: Stage, waited_ms: u64) -> Stall {
        Stall { worker: "w".into(), stage, waiting_for: "x".into(), waited_ms }
    }

    #[test]
    fn a_long_wait_is_logged_at_growing_intervals_and_its_end_once() {
        let mut log = StallLog::default();
        let warned: Vec<u64> = (0..10_000)
            .map(|second| second * 1000)
            .filter(|ms| log.check(Some(&stall(Stage::Fetch, *ms))) == Some(LogEntry::Waiting))
            .collect();
        assert_eq!(warned[..6], [5_000, 10_000, 20_000, 40_000, 80_000, 160_000]);
        assert!(warned.windows(2).all(|pair| pair[1] - pair[0] <= MAX_GAP_MS), "{warned:?}");
        let last = *warned.last().unwrap();
        assert_eq!(log.check(None), Some(LogEntry::Resumed { after_ms: last }));
        assert_eq!(log.check(None), None);
        assert_eq!(log.check(Some(&stall(Stage::Fetch, 4_999))), None);
        assert_eq!(log.check(Some(&stall(Stage::HandOver, 90_000))), None, "the trainer takes its time");
    }
}
