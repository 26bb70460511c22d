//! The state of a coordinator after it was killed and restarted.

use crate::{
    coordinator::{
        Change,
        testing::{bad_sample, heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{RankHeartbeat, Refusal, WorkerHeartbeat},
};
use spdl_types::{Position, WorkerId};

fn serving(id: u64, session: u64, rank: u32) -> WorkerHeartbeat {
    let stats = super::rank_stats(session, rank);
    WorkerHeartbeat { ranks: vec![stats], ..worker(id, "somewhere") }
}

/// Returns a world with two ranks in session 1, whose coordinator was restarted at once.
fn restarted() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.pass_ms(1_000);
    world.restart();
    world
}

#[test]
fn heartbeats_of_running_sessions_are_recognised() {
    let mut world = restarted();
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    world.heartbeat(heartbeat(1, 1, 11, 96)).unwrap();
    assert_eq!(world.core.status().sessions[0].acknowledged, Position::new(0, 96));
}

#[test]
fn a_place_that_a_rank_has_got_is_not_given_away_by_a_restart() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.restart();
    assert_eq!(world.join(join(1, 2, 99)), 2, "another life of the rank starts another session");
    let superseded = world.heartbeat(heartbeat(1, 1, 11, 96));
    assert!(matches!(superseded, Err(Refusal::SessionSuperseded { .. })), "{superseded:?}");
}

#[test]
fn a_rank_that_joined_in_the_last_moment_goes_on() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.restart();
    world.heartbeat(heartbeat(1, 1, 11, 96)).unwrap();
}

#[test]
fn an_answer_that_depends_on_the_changes_of_others_waits_until_they_are_durable() {
    use crate::{coordinator::CoordinatorCore, messages::ToCoordinator};

    let waits = |request| CoordinatorCore::answer_waits_for_earlier(&request);
    assert!(waits(ToCoordinator::Join(join(0, 2, 10))), "another rank may have opened the session just then");
    let with_bad = WorkerHeartbeat { bad_samples: vec![bad_sample(3)], ..worker(1, "a") };
    assert!(waits(ToCoordinator::WorkerHeartbeat(with_bad)), "another worker may have reported it just then");
    assert!(!waits(ToCoordinator::WorkerHeartbeat(worker(1, "a"))), "a slow disk takes no worker for dead");
    assert!(!waits(ToCoordinator::RankHeartbeat(heartbeat(1, 0, 10, 96))));
}

#[test]
fn ranks_stay_with_the_worker_that_serves_them() {
    let mut world = restarted();
    assert_eq!(
        world.heartbeat(heartbeat(1, 0, 10, 96)),
        Ok(None),
        "its worker has not reported it yet; the rank keeps its home"
    );
    world.worker(worker(1, "node-0"));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(None), "and that is not the nearest");
    world.worker(serving(2, 1, 0));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
}

#[test]
fn a_rank_that_no_worker_claims_within_the_liveness_timeout_gets_a_home() {
    let mut world = restarted();
    for _ in 0..5 {
        world.worker(worker(1, "x"));
        assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(None));
        world.pass_ms(1_000);
    }
    world.pass_ms(200);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(1)));
}

#[test]
fn a_rank_whose_home_has_left_does_not_wait_to_be_claimed() {
    let mut world = restarted();
    world.worker(worker(1, "x"));
    let alone = RankHeartbeat { unreachable: Some(WorkerId(7)), ..heartbeat(1, 0, 10, 96) };
    assert_eq!(world.heartbeat(alone), Ok(Some(1)));
}

#[test]
fn a_launch_without_a_state_goes_on_at_the_position_that_was_durable() {
    let mut world = restarted();
    world.heartbeat(heartbeat(1, 0, 10, 960)).unwrap();
    world.heartbeat(heartbeat(1, 1, 11, 768)).unwrap();
    world.pass_ms(1_000);
    world.heartbeat(heartbeat(1, 0, 10, 1_920)).unwrap();
    world.heartbeat(heartbeat(1, 1, 11, 1_920)).unwrap();
    world.restart();
    assert_eq!(world.try_join(join(0, 2, 20)).unwrap().0.start, Position::new(0, 768));
}

#[test]
fn positions_are_written_at_most_once_per_interval_and_when_a_rank_leaves() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    world.pass_ms(1_000);
    let writes = |world: &CoordinatorWorld| world.changes.iter().filter(|c| matches!(c, Change::PutSession(_))).count();
    let before = writes(&world);
    for step in 1..=40 {
        world.heartbeat(heartbeat(1, 0, 10, step * 96)).unwrap();
        world.pass_ms(100);
    }
    assert!((3..=5).contains(&(writes(&world) - before)), "{}", writes(&world) - before);
    world.leave(heartbeat(1, 0, 10, 9_600));
    world.restart();
    assert_eq!(world.core.status().sessions[0].acknowledged, Position::new(0, 9_600));
}

#[test]
fn a_flush_writes_what_the_interval_still_holds_back() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    world.core.flush();
    world.carry_out();
    world.restart();
    assert_eq!(world.core.status().sessions[0].acknowledged, Position::new(0, 96));
}

#[test]
fn a_superseded_session_stays_superseded() {
    let mut world = restarted();
    world.join(join(0, 2, 20));
    world.restart();
    assert!(matches!(world.heartbeat(heartbeat(1, 1, 11, 0)), Err(Refusal::SessionSuperseded { rank: 0, .. })));
}
