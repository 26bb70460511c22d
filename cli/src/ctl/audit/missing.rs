//! What an audit of a run cannot know yet: batches that ranks have not reported, and bad samples that workers have not.

use std::time::Duration;

use spdl_control::coordinator::{RankStatus, SessionStatus, Status, WorkerStatus};
use tokio::time::Instant;

use crate::ctl::{CtlError, coordinator::Connection, status};

/// A worker that was heard for so long after the last rank has reported all bad samples that the rank got.
const REPORTED_MS: u64 = 3_000;
/// The longest wait for the reports of workers.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The pause between two looks at the workers.
const LOOK: Duration = Duration::from_millis(200);

/// Returns whether ranks of the newest session have ended so lately that workers may not have reported all bad samples.
pub(super) fn is_recent(sessions: &[SessionStatus], workers: &[WorkerStatus]) -> bool {
    let has_ended =
        |newest: &&SessionStatus| newest.progress.is_finished || newest.ranks.iter().all(|rank| !rank.is_alive);
    let Some(newest) = sessions.last().filter(has_ended) else { return false };
    let Some(last_ms) = newest.ranks.iter().map(|rank| rank.heartbeat_age_ms).min() else { return false };
    workers.iter().any(|worker| last_ms < worker.heartbeat_age_ms.saturating_add(REPORTED_MS))
}

/// Waits until all workers have reported what they know now, or for some seconds if one is silent. A report may have been on its way when
/// the wait began; the next one is not.
pub(super) async fn wait_for_workers(connection: &Connection) -> Result<(), CtlError> {
    let began = Instant::now();
    for _ in 0..2 {
        let since = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            let (_, Status { workers, .. }) = status::ask(connection).await?;
            let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            if workers.iter().all(|worker| worker.heartbeat_age_ms < waited_ms) || began.elapsed() > LONGEST_WAIT {
                break;
            }
        }
    }
    Ok(())
}

/// Says what the reports of ranks may lack, a sentence each.
pub(super) fn missing(sessions: &[SessionStatus]) -> Vec<String> {
    let Some(newest) = sessions.last().filter(|newest| !newest.progress.is_finished) else { return Vec::new() };
    let of_ranks = |is_it: fn(&&RankStatus) -> bool| {
        let ranks: Vec<&RankStatus> = newest.ranks.iter().filter(is_it).collect();
        let first = ranks.first().copied()?;
        let who = match ranks.len() as u64 - 1 {
            0 => format!("rank {}", first.rank),
            more => format!("rank {} and {more} more", first.rank),
        };
        Some((who, first))
    };
    let mut missing = Vec::new();
    if let Some((who, first)) = of_ranks(|rank| rank.is_alive) {
        missing.push(format!(
            "{who} of session {} may have got further than reported: rank {} to {}",
            newest.session, first.rank, first.position
        ));
    }
    if let Some((who, first)) = of_ranks(|rank| !rank.is_alive && !rank.left) {
        missing.push(format!(
            "{who} of session {} ended without a last report: rank {} had reported {}",
            newest.session, first.rank, first.position
        ));
    }
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ctl::status::tests::{ended, rank, session, worker};

    fn sessions(all: Vec<Value>) -> Vec<SessionStatus> {
        all.into_iter().map(|session| serde_json::from_value(session).unwrap()).collect()
    }

    fn heard(age_ms: u64) -> WorkerStatus {
        let mut heard = worker("w0");
        heard["heartbeat_age_ms"] = age_ms.into();
        serde_json::from_value(heard).unwrap()
    }

    #[test]
    fn nothing_is_missing_of_ranks_that_have_left() {
        let over = sessions(vec![session(1, &[rank(0, 0.0)]), ended(2, true)]);
        assert_eq!((missing(&over), missing(&[])), (Vec::new(), Vec::new()));
    }

    #[test]
    fn ranks_that_go_on_or_were_killed_are_named() {
        let killed = |number| {
            let mut killed = rank(number, 0.0);
            killed["is_alive"] = false.into();
            killed
        };
        let all = sessions(vec![ended(1, false), session(2, &[rank(0, 0.0), killed(1), killed(2)])]);
        assert_eq!(
            missing(&all),
            [
                "rank 0 of session 2 may have got further than reported: rank 0 to 2:4096",
                "rank 1 and 1 more of session 2 ended without a last report: rank 1 had reported 2:4096",
            ]
        );
    }

    #[test]
    fn an_audit_waits_for_workers_that_were_not_heard_well_after_the_last_rank() {
        let of = |rank_ms: u64, worker_ms: u64| {
            let mut over = ended(1, true);
            over["ranks"].as_array_mut().unwrap().iter_mut().for_each(|rank| rank["heartbeat_age_ms"] = rank_ms.into());
            is_recent(&sessions(vec![over]), &[heard(worker_ms)])
        };
        assert!(of(10, 400) && of(2_000, 0) && of(5_000, 2_500));
        assert!(!of(4_000, 400) && !of(60_000, 900));
        assert!(!is_recent(&sessions(vec![session(1, &[rank(0, 0.0)])]), &[heard(400)]), "it goes on");
        assert!(!is_recent(&[], &[heard(400)]));
    }
}
