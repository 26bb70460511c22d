//! Which session a rank takes part in, and where it starts.

use crate::{
    coordinator::{
        MAX_WORLD, SUPERSEDED_SESSIONS,
        testing::{heartbeat, job, join},
        tests::world::CoordinatorWorld,
    },
    messages::{Holder, Join, RankHeartbeat, Refusal, RunName, Start, StartReason},
};
use spdl_job::Job;
use spdl_types::{Fingerprint, Position, SessionId};

fn run(name: &str) -> Box<RunName> {
    Box::new(RunName { job: "j".into(), run: name.into() })
}

fn holder(rank: u32, world: u32, nonce: u64) -> Holder {
    Holder { rank, world, client: format!("client-{nonce}"), others: 0, since_unix_s: 0 }
}

#[test]
fn the_first_join_fixes_world_batch_and_start_for_all_ranks() {
    let mut world = CoordinatorWorld::new();
    let start = Position::new(1, 96);
    let first = Join { global_batch: Some(48), start: Start::At(start), ..join(1, 3, 11) };
    let (session, _) = world.try_join(first).unwrap();
    assert_eq!((session.world, session.global_batch, session.start), (3, 48, start));
    let (second, _) = world.try_join(join(0, 3, 10)).unwrap();
    assert_eq!(second, session, "a rank that leaves batch and start open takes the session's");
}

#[test]
fn a_later_rank_that_disagrees_gets_both_values() {
    let mut world = CoordinatorWorld::new();
    world.join(Join { start: Start::At(Position::new(0, 96)), ..join(0, 4, 10) });
    for (other, field, theirs, ours) in [
        (Join { epochs: Some(5), ..join(1, 4, 11) }, "epochs", "5", "3"),
        (Join { start: Start::Beginning, ..join(1, 4, 11) }, "start", "0:0", "0:96"),
        (Join { global_batch: Some(64), ..join(1, 4, 11) }, "global_batch", "64", "96"),
        (Join { start: Start::At(Position::new(2, 0)), ..join(1, 4, 11) }, "start", "2:0", "0:96"),
    ] {
        let expected = Refusal::SessionDisagrees {
            run: run("j"),
            session: SessionId(1),
            rank: 1,
            field: field.into(),
            theirs: theirs.into(),
            ours: ours.into(),
            holder: Box::new(holder(0, 4, 10)),
            liveness_ms: 5_000,
        };
        assert_eq!(world.try_join(other), Err(expected));
    }
}

#[test]
fn a_repeated_join_of_one_client_is_idempotent() {
    let mut world = CoordinatorWorld::new();
    let (session, _) = world.try_join(join(0, 2, 10)).unwrap();
    assert_eq!(world.try_join(join(0, 2, 10)).unwrap().0, session);
    assert_eq!(world.core.status().sessions.len(), 1);
}

#[test]
fn a_rank_that_joins_again_starts_a_new_session_and_the_old_ones_ranks_get_its_name() {
    let mut world = CoordinatorWorld::new();
    let old = world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    let new = world.join(join(0, 2, 20));
    assert_ne!(new, old);
    let expected =
        Refusal::SessionSuperseded { run: run("j"), session: SessionId(old), rank: 0, client: "client-20".into() };
    assert_eq!(world.heartbeat(heartbeat(old, 1, 11, 0)), Err(expected.clone()));
    assert_eq!(
        world.heartbeat(heartbeat(old, 0, 10, 0)),
        Err(expected.clone()),
        "of two clients with one rank the first goes"
    );
    assert_eq!(world.try_join(join(1, 2, 11)).unwrap_err(), expected, "a join that was underway changes nothing");
    world.heartbeat(heartbeat(new, 0, 20, 0)).unwrap();
}

#[test]
fn all_ranks_of_a_restarted_launch_meet_in_one_session_in_whatever_order_they_come() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut world = CoordinatorWorld::new();
        for rank in 0..4 {
            world.join(join(rank, 4, 10 + u64::from(rank)));
        }
        let ids: Vec<u64> = order.iter().map(|rank| world.join(join(*rank, 4, 20 + u64::from(*rank)))).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && *id == 2), "{ids:?}");
    }
}

#[test]
fn a_launch_with_another_world_meets_in_one_session_though_the_one_before_looks_alive() {
    for (before, after) in [(2, 4), (4, 2), (3, 1), (1, 3)] {
        for reversed in [false, true] {
            let mut world = CoordinatorWorld::new();
            for rank in 0..before {
                world.join(join(rank, before, 10 + u64::from(rank)));
            }
            let mut order: Vec<u32> = (0..after).collect();
            if reversed {
                order.reverse();
            }
            for rank in order {
                assert_eq!(world.join(join(rank, after, 20 + u64::from(rank))), 2, "{before} -> {after}, rank {rank}");
            }
        }
    }
}

#[test]
fn when_everyone_left_the_next_join_starts_a_new_session() {
    let mut world = CoordinatorWorld::new();
    let old = world.join(join(0, 4, 10));
    world.leave(heartbeat(old, 0, 10, 96));
    assert_eq!(world.join(join(3, 8, 23)), old + 1, "even with a rank that had not joined and another world");
}

#[test]
fn when_everyone_fell_silent_the_next_join_starts_a_new_session() {
    let mut world = CoordinatorWorld::new();
    let old = world.join(join(0, 4, 10));
    let other = || Join { launch: None, ..join(3, 8, 23) };
    world.pass_ms(4_000);
    assert!(world.try_join(other()).is_err(), "rank 0 may be alive");
    world.pass_ms(1_200);
    assert_eq!(world.join(other()), old + 1);
}

#[test]
fn a_rank_that_was_silent_comes_back_by_the_sessions_id_at_its_own_position() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 2, 10));
    world.pass_ms(60_000);
    world.heartbeat(heartbeat(id, 0, 10, 960)).unwrap();
    assert_eq!(world.core.status().sessions[0].ranks[0].position, Position::new(0, 960));
    assert!(world.core.status().sessions[0].ranks[0].is_alive);
}

#[test]
fn a_heartbeat_for_an_unknown_session_or_from_an_unknown_client_asks_it_to_join_again() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 2, 10));
    for heartbeat in [heartbeat(id + 1, 0, 10, 0), heartbeat(id, 1, 11, 0), heartbeat(id, 0, 99, 0)] {
        let session = heartbeat.session;
        assert_eq!(world.heartbeat(heartbeat), Err(Refusal::UnknownSession { session }));
    }
}

#[test]
fn a_rank_that_is_not_below_its_world_is_refused() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.try_join(join(4, 4, 1)), Err(Refusal::RankOutOfRange { rank: 4, world: 4 }));
    assert_eq!(world.try_join(join(0, 0, 1)), Err(Refusal::RankOutOfRange { rank: 0, world: 0 }));
    assert_eq!(world.core.status().sessions, []);
}

#[test]
fn a_world_larger_than_the_batch_or_the_limit_is_refused() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.try_join(join(0, 97, 1)), Err(Refusal::WorldTooLarge { world: 97, global_batch: 96 }));
    let small = Join { global_batch: Some(0), ..join(0, 1, 1) };
    assert_eq!(world.try_join(small), Err(Refusal::WorldTooLarge { world: 1, global_batch: 0 }));
    let huge = Join { global_batch: Some(u32::MAX), ..join(0, MAX_WORLD + 1, 1) };
    assert_eq!(world.try_join(huge).unwrap_err().to_string(), "world is 65537; the most is 65536");
    world.create(Job { samples: 1 << 20, ..job("large") });
    let largest = Join { job: "large".into(), global_batch: Some(MAX_WORLD), ..join(0, MAX_WORLD, 1) };
    assert_eq!(world.try_join(largest).unwrap().0.world, MAX_WORLD);
}

#[test]
fn a_state_of_another_job_is_refused_with_both_fingerprints() {
    let mut world = CoordinatorWorld::new();
    let theirs = Fingerprint(3);
    let ours = job("j").fingerprint();
    let wrong = Join { fingerprint: Some(theirs), ..join(0, 2, 1) };
    assert_eq!(world.try_join(wrong), Err(Refusal::FingerprintDiffers { job: "j".into(), theirs, ours }));
    world.join(Join { fingerprint: Some(ours), ..join(0, 2, 1) });
}

#[test]
fn a_start_that_is_not_in_the_stream_is_refused_with_the_range() {
    let mut world = CoordinatorWorld::new();
    for (start, cause) in [
        ((0, 10_001), "start 0:10001 of job `j`: offset 10001 is past the end of an epoch: it has 10000 samples"),
        ((3, 0), "start 3:0 of job `j`: epoch 3 is past the end: there are 3, from 0 to 2"),
        ((2, 9_950), "start 2:9950 of job `j`: no batch of 96 is left there"),
    ] {
        let start = Start::At(Position::new(start.0, start.1));
        let text = world.try_join(Join { start, ..join(0, 2, 1) }).unwrap_err().to_string();
        assert!(text.starts_with(cause), "{text}");
    }
    let state = Join { fingerprint: Some(job("j").fingerprint()), ..join(0, 2, 1) };
    world.join(Join { start: Start::At(Position::new(3, 0)), ..state.clone() });
    let damaged = Join { start: Start::At(Position::new(0, 10_001)), ..state };
    assert!(
        matches!(world.try_join(damaged), Err(Refusal::StartOutOfRange { .. })),
        "a state may be the end and no more"
    );
}

#[test]
fn a_launch_begins_at_the_beginning_though_the_run_has_got_further() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 1, 10));
    world.leave(heartbeat(id, 0, 10, 960));
    let (session, _) = world.try_join(Join { start: Start::Beginning, ..join(0, 1, 20) }).unwrap();
    assert_eq!(session.start, Position::START);
    assert_eq!(world.core.status().sessions[1].reason, StartReason::Beginning);
}

#[test]
fn a_run_that_has_had_no_session_is_resumed_at_the_beginning() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.try_join(join(0, 2, 1)).unwrap().0.start, Position::START);
    assert_eq!(world.core.status().sessions[0].reason, StartReason::Beginning);
}

#[test]
fn a_run_that_is_finished_is_not_resumed_and_begins_again_or_goes_on_with_more_epochs() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 1, 10));
    let end = RankHeartbeat { acknowledged: Position::new(3, 0), ..heartbeat(id, 0, 10, 0) };
    world.leave(end);
    let finished = world.try_join(join(0, 1, 20)).unwrap_err();
    assert_eq!(
        finished.to_string(),
        "job `j` is finished: session 1 got to 3:0, and no batch of its 3 epoch(s) is left"
    );
    assert!(world.core.status().jobs[0].runs[0].is_finished);
    let (session, _) = world.try_join(Join { epochs: Some(5), ..join(0, 1, 30) }).unwrap();
    assert_eq!((session.start, session.job.epochs), (Position::new(3, 0), 5));
    assert_eq!(session.job.fingerprint(), job("j").fingerprint(), "it is the same job");
    world.leave(RankHeartbeat { acknowledged: Position::new(4, 0), ..heartbeat(session.id.0, 0, 30, 0) });
    world.restart();
    let (session, _) = world.try_join(join(0, 1, 40)).unwrap();
    assert_eq!((session.start, session.job.epochs), (Position::new(4, 0), 5), "the run keeps its epochs");
    let again = Join { start: Start::Beginning, ..join(0, 1, 50) };
    assert_eq!(world.try_join(again).unwrap().0.start, Position::START);
}

#[test]
fn a_launch_that_resumes_goes_on_where_every_rank_of_the_last_session_had_acknowledged() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.heartbeat(heartbeat(id, 0, 10, 960)).unwrap();
    world.heartbeat(heartbeat(id, 1, 11, 768)).unwrap();
    world.heartbeat(heartbeat(id, 1, 11, 672)).unwrap();
    let (session, _) = world.try_join(join(0, 4, 20)).unwrap();
    assert_eq!(
        session.start,
        Position::new(0, 768),
        "the least of the ranks, and a heartbeat that was overtaken is no way back"
    );
    let (session, _) = world.try_join(join(0, 4, 30)).unwrap();
    assert_eq!(session.start, Position::new(0, 768), "no rank acknowledged anything since");
}

#[test]
fn a_rank_that_never_joined_is_still_at_the_start() {
    let mut world = CoordinatorWorld::new();
    let start = Position::new(1, 0);
    let id = world.join(Join { start: Start::At(start), ..join(0, 2, 10) });
    world.heartbeat(heartbeat(id, 0, 10, 9_600)).unwrap();
    assert_eq!(world.try_join(join(0, 2, 20)).unwrap().0.start, start);
}

#[test]
fn an_explicit_start_wins_over_what_was_acknowledged() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 1, 10));
    world.heartbeat(heartbeat(id, 0, 10, 960)).unwrap();
    let back = Join { start: Start::At(Position::START), ..join(0, 1, 20) };
    assert_eq!(world.try_join(back).unwrap().0.start, Position::START);
}

#[test]
fn an_acknowledgement_past_the_stream_is_ignored() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 1, 10));
    world.heartbeat(heartbeat(id, 0, 10, 10_001)).unwrap();
    assert_eq!(world.core.status().sessions[0].acknowledged, Position::START);
}

#[test]
fn only_a_few_superseded_sessions_are_remembered() {
    let mut world = CoordinatorWorld::new();
    for nonce in 0..20 {
        world.join(join(0, 2, nonce));
    }
    assert_eq!(world.core.status().sessions.len(), SUPERSEDED_SESSIONS + 1);
    world.restart();
    assert_eq!(world.core.status().sessions.len(), SUPERSEDED_SESSIONS + 1);
}

#[test]
fn a_global_batch_that_the_samples_never_fill_is_refused_when_a_launch_asks_for_it() {
    let mut world = CoordinatorWorld::new();
    let samples = u32::try_from(job("j").samples).unwrap();
    let refused = world.try_join(Join { global_batch: Some(samples + 1), ..join(0, 1, 1) }).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with("job `j` cannot be run like this: `global_batch` is 10001") && text.contains("never fill"),
        "{text}"
    );
    world.join(Join { global_batch: Some(samples), ..join(0, 1, 1) });
}
