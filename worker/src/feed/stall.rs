//! The log of a rank that waits for its storage: once when it has waited long, then at growing intervals, and once when
//! it goes on.

use std::time::Duration;

use spdl_wire::messages::Stall;

use super::view::FeedView;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// A wait is told of after this time, and again each time it has doubled.
const FIRST_MS: u64 = 5_000;
/// Longest time between two lines about the same wait.
const MAX_GAP_MS: u64 = 600_000;

/// What there is to be said of a rank's wait. Pure.
#[derive(Debug, Default)]
struct StallLog {
    /// How long it had waited when it was told of last; 0 for a wait that was not told of.
    told_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Say {
    Waits,
    GoesOn { after_ms: u64 },
}

impl StallLog {
    /// What the rank waits for now; `None` when a batch is there.
    fn look(&mut self, stall: Option<&Stall>) -> Option<Say> {
        // A trainer that keeps its batches is no fault of ours, and decoding ends.
        let waited_ms = stall.filter(|stall| matches!(&*stall.stage, "fetch" | "open")).map(|stall| stall.waited_ms);
        match waited_ms {
            None | Some(0..FIRST_MS) if self.told_ms > 0 => {
                Some(Say::GoesOn { after_ms: std::mem::take(&mut self.told_ms) })
            }
            Some(waited_ms) if waited_ms >= self.next_ms() => {
                self.told_ms = waited_ms;
                Some(Say::Waits)
            }
            _ => None,
        }
    }

    fn next_ms(&self) -> u64 {
        if self.told_ms == 0 { FIRST_MS } else { (self.told_ms * 2).min(self.told_ms + MAX_GAP_MS) }
    }
}

/// Watches a rank until it is dropped.
pub(super) async fn watch(view: FeedView, rank: u32) {
    let mut log = StallLog::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let stall = view.stall();
        match (log.look(stall.as_ref()), stall) {
            (Some(Say::Waits), Some(stall)) => {
                tracing::warn!(job = view.job(), rank, "no batch: {stall}");
            }
            (Some(Say::GoesOn { after_ms }), _) => {
                tracing::info!(job = view.job(), rank, waited_ms = after_ms, "batches come again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(stage: &str, waited_ms: u64) -> Stall {
        Stall { worker: "w".into(), stage: stage.into(), waiting_for: "x".into(), waited_ms }
    }

    #[test]
    fn a_long_wait_is_told_of_at_growing_intervals_and_its_end_once() {
        let mut log = StallLog::default();
        let told: Vec<u64> = (0..10_000)
            .map(|second| second * 1000)
            .filter(|ms| log.look(Some(&stall("fetch", *ms))) == Some(Say::Waits))
            .collect();
        assert_eq!(told[..6], [5_000, 10_000, 20_000, 40_000, 80_000, 160_000]);
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] <= MAX_GAP_MS), "{told:?}");
        let last = *told.last().unwrap();
        assert_eq!(log.look(None), Some(Say::GoesOn { after_ms: last }));
        assert_eq!(log.look(None), None);
        assert_eq!(log.look(Some(&stall("fetch", 4_999))), None);
        assert_eq!(log.look(Some(&stall("hand-over", 90_000))), None, "the trainer takes its time");
    }
}
