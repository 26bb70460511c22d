//! Peers that report more about themselves than the limits allow.

use crate::{
    coordinator::{
        limits::{MAX_RANKS_OF_WORKER, MAX_STAGES, MAX_TEXT_BYTES},
        testing::{join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Refusal, WorkerHeartbeat},
};
use spdl_insight::tuning::{SHOWN_CHANGES, Tunable, TuningChange};
use spdl_types::{NodeId, Stage, StageStats};

#[test]
fn a_worker_that_sends_too_much_is_refused_with_the_limit() {
    let stats = super::rank_stats(1, 0);
    let long = || "x".repeat(MAX_TEXT_BYTES + 1);
    let tuned = |reason| TuningChange { value: Tunable::Requests, from: 1, to: 2, reason, at_ms: 0 };
    type HeartbeatEdit<'a> = &'a dyn Fn(&mut WorkerHeartbeat);
    let changes: [(HeartbeatEdit<'_>, &str); 7] = [
        (&|heartbeat| heartbeat.home.name = long(), "a worker's name"),
        (&|heartbeat| heartbeat.home.socket = Some(long()), "a socket's path"),
        (&|heartbeat| heartbeat.ranks = vec![stats.clone(); MAX_RANKS_OF_WORKER + 1], "a worker's ranks"),
        (&|heartbeat| heartbeat.stages = vec![StageStats::new(Stage::Fetch); MAX_STAGES + 1], "a worker's stages"),
        (&|heartbeat| heartbeat.stages = vec![StageStats::new(Stage::Other(long()))], "a stage's name"),
        (&|heartbeat| heartbeat.tuning.changes = vec![tuned(String::new()); SHOWN_CHANGES + 1], "tuned values"),
        (&|heartbeat| heartbeat.tuning.changes = vec![tuned(long())], "the reason of a change"),
    ];
    for (change, subject) in changes {
        let mut heartbeat = worker(1, "a");
        change(&mut heartbeat);
        let reply = CoordinatorWorld::new().worker(heartbeat);
        let FromCoordinator::Refused(refusal @ Refusal::OverLimit { .. }) = reply else { panic!("{reply:?}") };
        assert!(refusal.to_string().contains(subject), "{refusal}");
    }
}

#[test]
fn a_rank_with_a_long_name_is_refused() {
    let mut long = join(0, 1, 1);
    long.node = NodeId("x".repeat(MAX_TEXT_BYTES + 1));
    let refusal = CoordinatorWorld::new().try_join(long).unwrap_err();
    assert!(refusal.to_string().contains("a node's name"), "{refusal}");
}
