//! Which session a rank takes part in, and where it starts.

use spdl_shard::{Fingerprint, Position};
use spdl_wire::messages::{Join, Refusal, SessionId};

use crate::core::{
    MAX_WORLD, SUPERSEDED_SESSIONS,
    testing::{World, beat, job, join},
};

#[test]
fn the_first_join_fixes_world_batch_and_start_for_all_ranks() {
    let mut world = World::new();
    let start = Position::new(1, 96);
    let first = Join { global_batch: Some(48), start: Some(start), ..join(1, 3, 11) };
    let (session, _) = world.try_join(first).unwrap();
    assert_eq!((session.world, session.global_batch, session.start), (3, 48, start));
    let (second, _) = world.try_join(join(0, 3, 10)).unwrap();
    assert_eq!(second, session, "a rank that leaves batch and start open takes the session's");
}

#[test]
fn a_later_rank_that_disagrees_is_told_both_values() {
    let mut world = World::new();
    world.join(Join { start: Some(Position::new(0, 96)), ..join(0, 4, 10) });
    for (other, field, theirs, ours) in [
        (join(1, 8, 11), "world", "8", "4"),
        (Join { global_batch: Some(64), ..join(1, 4, 11) }, "global_batch", "64", "96"),
        (Join { start: Some(Position::new(2, 0)), ..join(1, 4, 11) }, "start", "2:0", "0:96"),
    ] {
        let expected = Refusal::SessionDisagrees {
            job: "j".into(),
            session: SessionId(1),
            rank: 1,
            field: field.into(),
            theirs: theirs.into(),
            ours: ours.into(),
        };
        assert_eq!(world.try_join(other), Err(expected));
    }
}

#[test]
fn a_repeated_join_of_one_client_is_idempotent() {
    let mut world = World::new();
    let (session, _) = world.try_join(join(0, 2, 10)).unwrap();
    assert_eq!(world.try_join(join(0, 2, 10)).unwrap().0, session);
    assert_eq!(world.core.status().sessions.len(), 1);
}

#[test]
fn a_rank_that_joins_again_starts_a_new_session_and_the_old_ones_ranks_learn_who_it_was() {
    let mut world = World::new();
    let old = world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    let new = world.join(join(0, 2, 20));
    assert_ne!(new, old);
    let expected =
        Refusal::SessionSuperseded { job: "j".into(), session: SessionId(old), rank: 0, client: "client-20".into() };
    assert_eq!(world.beat(beat(old, 1, 11, 0)), Err(expected.clone()));
    assert_eq!(world.beat(beat(old, 0, 10, 0)), Err(expected.clone()), "of two clients with one rank the first goes");
    assert_eq!(world.try_join(join(1, 2, 11)).unwrap_err(), expected, "a join that was underway changes nothing");
    world.beat(beat(new, 0, 20, 0)).unwrap();
}

#[test]
fn all_ranks_of_a_restarted_launch_meet_in_one_session_in_whatever_order_they_come() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut world = World::new();
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
            let mut world = World::new();
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
    let mut world = World::new();
    let old = world.join(join(0, 4, 10));
    world.leave(beat(old, 0, 10, 96));
    assert_eq!(world.join(join(3, 8, 23)), old + 1, "even with a rank that had not joined and another world");
}

#[test]
fn when_everyone_fell_silent_the_next_join_starts_a_new_session() {
    let mut world = World::new();
    let old = world.join(join(0, 4, 10));
    world.pass_ms(4_000);
    assert!(world.try_join(join(3, 8, 23)).is_err(), "rank 0 may be alive");
    world.pass_ms(1_200);
    assert_eq!(world.join(join(3, 8, 23)), old + 1);
}

#[test]
fn a_rank_that_was_silent_comes_back_by_the_sessions_id_at_its_own_position() {
    let mut world = World::new();
    let id = world.join(join(0, 2, 10));
    world.pass_ms(60_000);
    world.beat(beat(id, 0, 10, 960)).unwrap();
    assert_eq!(world.core.status().sessions[0].ranks[0].position, Position::new(0, 960));
    assert!(world.core.status().sessions[0].ranks[0].is_alive);
}

#[test]
fn a_beat_for_a_session_or_by_a_client_that_is_unknown_asks_it_to_join_again() {
    let mut world = World::new();
    let id = world.join(join(0, 2, 10));
    for beat in [beat(id + 1, 0, 10, 0), beat(id, 1, 11, 0), beat(id, 0, 99, 0)] {
        let session = beat.session;
        assert_eq!(world.beat(beat), Err(Refusal::UnknownSession { session }));
    }
}

#[test]
fn a_rank_that_is_not_below_its_world_is_refused() {
    let mut world = World::new();
    assert_eq!(world.try_join(join(4, 4, 1)), Err(Refusal::RankOutOfRange { rank: 4, world: 4 }));
    assert_eq!(world.try_join(join(0, 0, 1)), Err(Refusal::RankOutOfRange { rank: 0, world: 0 }));
    assert_eq!(world.core.status().sessions, []);
}

#[test]
fn a_world_larger_than_the_batch_or_the_limit_is_refused() {
    let mut world = World::new();
    assert_eq!(world.try_join(join(0, 97, 1)), Err(Refusal::WorldTooLarge { world: 97, global_batch: 96 }));
    let small = Join { global_batch: Some(0), ..join(0, 1, 1) };
    assert_eq!(world.try_join(small), Err(Refusal::WorldTooLarge { world: 1, global_batch: 0 }));
    let huge = Join { global_batch: Some(u32::MAX), ..join(0, MAX_WORLD + 1, 1) };
    assert_eq!(world.try_join(huge).unwrap_err().to_string(), "world is 65537; the most is 65536");
}

#[test]
fn a_state_of_another_job_is_refused_with_both_fingerprints() {
    let mut world = World::new();
    let theirs = Fingerprint(3);
    let ours = job("j").fingerprint();
    let wrong = Join { fingerprint: Some(theirs), ..join(0, 2, 1) };
    assert_eq!(world.try_join(wrong), Err(Refusal::FingerprintDiffers { job: "j".into(), theirs, ours }));
    world.join(Join { fingerprint: Some(ours), ..join(0, 2, 1) });
}

#[test]
fn a_start_past_the_end_of_the_stream_is_refused() {
    let mut world = World::new();
    let past = Join { start: Some(Position::new(0, 10_001)), ..join(0, 2, 1) };
    let text = world.try_join(past).unwrap_err().to_string();
    assert_eq!(text, "the offset of the start is 10001; the most is 10000");
}

#[test]
fn without_a_start_a_first_session_starts_at_the_beginning() {
    assert_eq!(World::new().try_join(join(0, 2, 1)).unwrap().0.start, Position::START);
}

#[test]
fn without_a_start_a_session_goes_on_where_every_rank_of_the_last_had_acknowledged() {
    let mut world = World::new();
    let id = world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.beat(beat(id, 0, 10, 960)).unwrap();
    world.beat(beat(id, 1, 11, 768)).unwrap();
    world.beat(beat(id, 1, 11, 672)).unwrap();
    let (session, _) = world.try_join(join(0, 4, 20)).unwrap();
    assert_eq!(
        session.start,
        Position::new(0, 768),
        "the least of the ranks, and a beat that was overtaken is no way back"
    );
    let (session, _) = world.try_join(join(0, 4, 30)).unwrap();
    assert_eq!(session.start, Position::new(0, 768), "nobody acknowledged anything since");
}

#[test]
fn a_rank_that_never_joined_is_still_at_the_start() {
    let mut world = World::new();
    let start = Position::new(1, 0);
    let id = world.join(Join { start: Some(start), ..join(0, 2, 10) });
    world.beat(beat(id, 0, 10, 9_600)).unwrap();
    assert_eq!(world.try_join(join(0, 2, 20)).unwrap().0.start, start);
}

#[test]
fn an_explicit_start_wins_over_what_was_acknowledged() {
    let mut world = World::new();
    let id = world.join(join(0, 1, 10));
    world.beat(beat(id, 0, 10, 960)).unwrap();
    let back = Join { start: Some(Position::START), ..join(0, 1, 20) };
    assert_eq!(world.try_join(back).unwrap().0.start, Position::START);
}

#[test]
fn an_acknowledgement_past_the_stream_is_not_believed() {
    let mut world = World::new();
    let id = world.join(join(0, 1, 10));
    world.beat(beat(id, 0, 10, 10_001)).unwrap();
    assert_eq!(world.core.status().sessions[0].acknowledged, Position::START);
}

#[test]
fn only_a_few_superseded_sessions_are_remembered() {
    let mut world = World::new();
    for nonce in 0..20 {
        world.join(join(0, 2, nonce));
    }
    assert_eq!(world.core.status().sessions.len(), SUPERSEDED_SESSIONS + 1);
    world.restart();
    assert_eq!(world.core.status().sessions.len(), SUPERSEDED_SESSIONS + 1);
}

#[test]
fn a_global_batch_that_the_samples_never_fill_is_refused_when_a_launch_asks_for_it() {
    let mut world = World::new();
    let samples = u32::try_from(job("j").samples).unwrap();
    let refused = world.try_join(Join { global_batch: Some(samples + 1), ..join(0, 1, 1) }).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with("job `j` cannot be run like this: `global_batch` is 10001") && text.contains("never fill"),
        "{text}"
    );
    world.join(Join { global_batch: Some(samples), ..join(0, 1, 1) });
}
