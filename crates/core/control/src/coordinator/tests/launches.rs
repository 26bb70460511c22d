//! Launches that meet, follow or would end each other: which are admitted, which are refused, and with what refusal.

use crate::{
    coordinator::{
        MAX_RUNS,
        testing::{heartbeat, join},
        tests::world::CoordinatorWorld,
    },
    messages::{Join, Refusal, Start},
};
use spdl_types::{Position, SessionId};

/// Returns the join of a rank whose launcher provides no id.
fn by_hand(rank: u32, world: u32, nonce: u64) -> Join {
    Join { launch: None, ..join(rank, world, nonce) }
}

fn of(launch: &str, join: Join) -> Join {
    Join { launch: Some(launch.to_owned()), ..join }
}

fn in_use(answer: &Result<(crate::messages::Session, Option<u64>), Refusal>) -> bool {
    matches!(answer, Err(Refusal::RunInUse { .. }))
}

/// Returns a world with two ranks without a launch id in session 1, both of which send heartbeats.
fn running() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    world.join(Join { since_unix_s: 1_795_309_262, ..by_hand(0, 2, 10) });
    world.join(by_hand(1, 2, 11));
    world
}

fn keep_sending_heartbeats(world: &mut CoordinatorWorld, ranks: &[(u32, u64)], seconds: u64) {
    for _ in 0..seconds {
        world.pass_ms(1_000);
        for (rank, nonce) in ranks {
            world.heartbeat(heartbeat(1, *rank, *nonce, 96)).unwrap();
        }
    }
}

#[test]
fn a_second_launch_is_refused_with_the_holder_of_the_run_and_since_when_and_the_first_goes_on() {
    let mut world = running();
    for (rank, size) in [(0, 1), (0, 2), (1, 2), (3, 4)] {
        let refusal = world.try_join(by_hand(rank, size, 20)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "job `j` is in use: session 1 is held by rank 0 of 2 (client-10) and 1 more rank, since 2026-11-22 01:01:02 UTC"
        );
    }
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    world.heartbeat(heartbeat(1, 1, 11, 96)).unwrap();
}

#[test]
fn a_launch_that_takes_over_supersedes_and_its_ranks_meet_though_each_of_them_takes_over() {
    for order in [[0, 1], [1, 0]] {
        let mut world = running();
        for rank in order {
            let taking = Join { takeover: true, ..by_hand(rank, 2, 20 + u64::from(rank)) };
            assert_eq!(world.join(taking), 2, "rank {rank}");
        }
        assert!(matches!(world.heartbeat(heartbeat(1, 0, 10, 96)), Err(Refusal::SessionSuperseded { .. })));
        let again = Join { takeover: true, ..by_hand(0, 2, 20) };
        assert_eq!(world.join(again), 2, "a repeated join takes over nothing");
    }
}

#[test]
fn a_launch_that_takes_over_joins_no_half_joined_session_of_another() {
    let mut world = CoordinatorWorld::new();
    world.join(by_hand(0, 2, 10));
    for (rank, nonce) in [(1, 21), (0, 20)] {
        assert_eq!(world.join(Join { takeover: true, ..by_hand(rank, 2, nonce) }), 2);
    }
}

#[test]
fn a_restart_of_the_same_launch_needs_no_takeover_and_another_launch_does() {
    let mut world = CoordinatorWorld::new();
    for rank in 0..2 {
        world.join(of("a", join(rank, 2, 10 + u64::from(rank))));
    }
    for other in [of("b", join(0, 2, 20)), by_hand(0, 2, 20)] {
        assert!(in_use(&world.try_join(other)));
    }
    assert_eq!(world.join(of("a", join(1, 2, 31))), 2);
    assert!(
        in_use(&world.try_join(of("b", join(0, 2, 20)))),
        "a free rank is that of the launch that opened the session"
    );
    assert_eq!(world.join(of("a", join(0, 2, 30))), 2);
}

#[test]
fn a_launch_by_hand_after_a_crash_waits_until_the_dead_ranks_are_known_to_be_dead() {
    let mut world = running();
    keep_sending_heartbeats(&mut world, &[(0, 10), (1, 11)], 3);
    world.pass_ms(4_800);
    assert!(in_use(&world.try_join(by_hand(1, 2, 21))));
    world.pass_ms(400);
    assert_eq!(world.join(by_hand(1, 2, 21)), 2);
    assert_eq!(world.join(by_hand(0, 2, 20)), 2);
}

#[test]
fn a_launch_by_hand_joins_no_session_some_of_whose_ranks_are_late() {
    let mut world = CoordinatorWorld::new();
    world.join(by_hand(0, 3, 10));
    world.pass_ms(2_600);
    assert!(in_use(&world.try_join(by_hand(1, 3, 21))), "rank 0 may have been killed");
    world.heartbeat(heartbeat(1, 0, 10, 0)).unwrap();
    assert_eq!(world.join(by_hand(1, 3, 21)), 1, "it was not");
    world.leave(heartbeat(1, 0, 10, 96));
    world.pass_ms(2_000);
    assert_eq!(world.join(by_hand(2, 3, 22)), 1, "a rank that left in order is no sign of a crash");
}

#[test]
fn a_straggler_in_a_half_joined_session_ends_no_launch_of_another_world_for_ever() {
    let straggles = |world: &mut CoordinatorWorld, launch: Option<&str>| {
        world.join(Join { launch: launch.map(str::to_owned), ..join(2, 4, 12) });
        for _ in 0..20 {
            world.pass_ms(1_000);
            world.heartbeat(heartbeat(1, 2, 12, 0)).unwrap();
        }
    };
    // Without a launch id the refusal names the straggler, and a takeover ends it.
    let mut world = CoordinatorWorld::new();
    straggles(&mut world, None);
    let refusal = world.try_join(by_hand(0, 2, 20)).unwrap_err().to_string();
    assert!(refusal.contains("held by rank 2 of 4 (client-12)"), "{refusal}");
    for rank in 0..2 {
        assert_eq!(world.join(Join { takeover: true, ..by_hand(rank, 2, 20 + u64::from(rank)) }), 2);
    }
    // With a launch id a restart needs no leave.
    let mut world = CoordinatorWorld::new();
    straggles(&mut world, Some("a"));
    for rank in 0..2 {
        assert_eq!(world.join(of("a", join(rank, 2, 20 + u64::from(rank)))), 2);
    }
}

#[test]
fn two_living_clients_with_one_rank_of_one_session_are_an_error_for_the_second() {
    let mut world = CoordinatorWorld::new();
    world.join(by_hand(0, 2, 10));
    let refusal = world.try_join(by_hand(0, 2, 20)).unwrap_err().to_string();
    assert!(refusal.contains("held by rank 0 of 2 (client-10), since"), "{refusal}");
}

#[test]
fn runs_of_one_job_live_side_by_side_and_each_has_its_own_position() {
    let mut world = CoordinatorWorld::new();
    let named = |run: &str, nonce| Join { run: run.to_owned(), ..by_hand(0, 1, nonce) };
    let (first, second) = (world.join(named("lr-1", 10)), world.join(named("lr-2", 20)));
    world.heartbeat(heartbeat(first, 0, 10, 960)).unwrap();
    world.heartbeat(heartbeat(second, 0, 20, 192)).unwrap();
    let refusal = world.try_join(named("lr-1", 11)).unwrap_err().to_string();
    assert!(refusal.starts_with("run `lr-1` of job `j` is in use: session 1"), "{refusal}");
    world.leave(heartbeat(first, 0, 10, 960));
    world.leave(heartbeat(second, 0, 20, 192));
    world.restart();
    for (run, offset) in [("lr-1", 960), ("lr-2", 192), ("lr-3", 0)] {
        let (session, _) = world.try_join(named(run, 30)).unwrap();
        assert_eq!(session.start, Position::new(0, offset), "{run}");
    }
    let status = world.core.status();
    let runs: Vec<(&str, u64)> =
        status.jobs[0].runs.iter().map(|run| (run.name.as_str(), run.acknowledged.offset)).collect();
    assert_eq!(runs, [("lr-1", 960), ("lr-2", 192), ("lr-3", 0)]);
}

#[test]
fn a_run_needs_a_plain_name_and_there_are_only_so_many() {
    let mut world = CoordinatorWorld::new();
    let named = |run: &str, nonce| Join { run: run.to_owned(), ..by_hand(0, 1, nonce) };
    for bad in ["", "a b", "../x"] {
        let refusal = world.try_join(named(bad, 1)).unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("`{bad}` is not a name for a run of job `j`")), "{refusal}");
    }
    for run in 0..MAX_RUNS as u64 {
        world.join(named(&format!("r{run}"), run));
    }
    let refusal = world.try_join(named("more", 9_999)).unwrap_err().to_string();
    assert_eq!(refusal, "the number of runs of job `j` is 1001; the most is 1000");
}

#[test]
fn a_rank_of_a_session_that_was_superseded_and_forgotten_does_not_end_the_living_one() {
    let mut world = CoordinatorWorld::new();
    for nonce in 0..10 {
        world.join(join(0, 1, nonce));
    }
    let start = Start::At(Position::START);
    let back = Join { session: Some(SessionId(2)), start, takeover: true, ..join(0, 1, 1) };
    assert!(matches!(world.try_join(back), Err(Refusal::SessionSuperseded { session: SessionId(2), .. })));
    world.heartbeat(heartbeat(10, 0, 9, 96)).unwrap();
}

#[test]
fn ranks_of_a_session_that_a_coordinator_without_its_state_never_knew_meet_in_one_that_replaces_it() {
    let mut world = CoordinatorWorld::new();
    let start = Start::At(Position::new(1, 96));
    let back = |rank, nonce| Join { session: Some(SessionId(7)), start, ..by_hand(rank, 3, nonce) };
    let id = world.join(back(1, 11));
    world.pass_ms(3_000);
    assert_eq!(world.join(back(0, 10)), id, "though rank 1 is late: it is the same session");
    let other = Join { run: "other".to_owned(), ..by_hand(0, 1, 40) };
    (0..8).for_each(|more| drop(world.try_join(Join { nonce: more, takeover: true, ..other.clone() })));
    assert_eq!(world.join(back(2, 12)), id);
    assert_eq!(world.core.status().jobs[0].runs[0].acknowledged, Position::new(1, 96));
}
