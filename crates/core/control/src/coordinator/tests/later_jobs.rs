//! Ranks that know a later version of their job than the coordinator, whose state is an earlier one.

use super::changes::{again, at_of, beat, of_job, of_two, redact, training};
use crate::{
    coordinator::{
        MemoryState,
        testing::{heartbeat, join},
        tests::world::{CoordinatorWorld, core},
    },
    messages::{FromCoordinator, JobHold, JobReplacement, Join, RankHeartbeat, Refusal, ToCoordinator},
};
use spdl_job::Job;
use spdl_types::{Position, SessionId};

/// Replaces the coordinator's state by an earlier copy.
fn roll_back(world: &mut CoordinatorWorld, copy: &MemoryState) {
    world.state = copy.clone();
    world.restart();
}

fn job_of(world: &CoordinatorWorld) -> Job {
    let jobs = world.state.durable().jobs;
    *jobs.into_iter().find(|record| record.job.name == "two").unwrap().job
}

/// Lets two ranks train, and redacts a sample. Returns the world, what the ranks waited for, the job before and after, and a copy of the
/// state from before.
fn changed() -> (CoordinatorWorld, JobHold, Job, Job, MemoryState) {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    beat(&mut world, 1, 8, None);
    let (copy, before) = (world.state.clone(), job_of(&world));
    at_of(redact(&mut world, None, &[5]));
    let hold = beat(&mut world, 0, 16, None).hold.unwrap();
    beat(&mut world, 0, 24, Some(hold));
    beat(&mut world, 1, 24, Some(hold));
    let after = job_of(&world);
    assert_eq!(after.fingerprint(), hold.change);
    (world, hold, before, after, copy)
}

/// Sends the heartbeat of a rank that goes by a version of the job.
fn by(world: &mut CoordinatorWorld, rank: u32, handed: u64, job: &Job, promise: Option<JobHold>) -> FromCoordinator {
    world.now_ms += 1;
    let says = heartbeat(1, rank, 10 + u64::from(rank), 8);
    let (handed, fingerprint) = (Position::new(0, handed), job.fingerprint());
    let says = RankHeartbeat { handed, fingerprint, promise, number: world.now_ms, ..of_job(world, says) };
    world.ask(ToCoordinator::RankHeartbeat(says))
}

#[test]
fn a_later_job_of_a_rank_is_taken_over_and_made_with_the_promises_of_the_others() {
    let (mut world, hold, before, after, copy) = changed();
    roll_back(&mut world, &copy);
    // Rank 1 has promised, and may go on only when it is known what has become of the change.
    let FromCoordinator::RankAcknowledged { notice, .. } = by(&mut world, 1, 24, &before, Some(hold)) else {
        panic!("it is unknown")
    };
    assert_eq!((notice.fingerprint, notice.hold), (before.fingerprint(), Some(hold)));
    let unknown = FromCoordinator::Refused(Refusal::UnknownSession { session: SessionId(1) });
    assert_eq!(by(&mut world, 0, 40, &after, None), unknown, "so that it joins again and brings its job along");
    let (session, _) = world.try_join(again(1, &after, 40, join(0, 2, 10))).unwrap();
    assert_eq!((session.id, &session.job), (SessionId(1), &after));
    assert!(world.log.iter().any(|line| line.contains("rank 0 of run `first` goes by job `two`")), "{:?}", world.log);
    let FromCoordinator::RankAcknowledged { notice, .. } = by(&mut world, 1, 24, &before, Some(hold)) else {
        panic!("it is unknown")
    };
    assert_eq!((notice.fingerprint, notice.hold), (hold.change, None));
    assert_eq!(job_of(&world), after, "with what came before it");
}

#[test]
fn launches_that_begin_while_a_later_job_waits_for_promises_have_it() {
    let (mut world, hold, before, after, copy) = changed();
    roll_back(&mut world, &copy);
    world.try_join(again(1, &after, 40, join(0, 2, 10))).unwrap();
    assert_eq!(job_of(&world), before, "rank 1 has not promised");
    let error = redact(&mut world, None, &[6]).unwrap_err().to_string();
    assert!(error.contains("another change of it waits"), "{error}");
    let other = Join { run: "second".to_owned(), ..of_two(join(0, 1, 50)) };
    assert_eq!(world.try_join(other).unwrap().0.job, after);
    let FromCoordinator::RankAcknowledged { notice, .. } = by(&mut world, 1, 16, &before, None) else {
        panic!("it is unknown")
    };
    assert_eq!(notice.hold, Some(hold));
    by(&mut world, 1, 16, &before, Some(hold));
    assert_eq!(job_of(&world), after);
}

#[test]
fn a_session_whose_ranks_are_past_a_change_by_different_jobs_is_over_and_the_change_is_made() {
    let (mut world, hold, before, after, copy) = changed();
    roll_back(&mut world, &copy);
    by(&mut world, 1, hold.from + 8, &before, None);
    let refused = world.try_join(again(1, &after, 40, join(0, 2, 10))).unwrap_err();
    assert!(matches!(refused, Refusal::SessionOutdated { session: SessionId(1), rank: 0, .. }), "{refused:?}");
    let unknown = FromCoordinator::Refused(Refusal::UnknownSession { session: SessionId(1) });
    assert_eq!(by(&mut world, 1, hold.from + 16, &before, None), unknown);
    let refused = world.try_join(again(1, &before, hold.from + 16, join(1, 2, 11))).unwrap_err();
    assert!(matches!(refused, Refusal::SessionOutdated { rank: 1, .. }), "{refused:?}");
    assert_eq!(job_of(&world), after);
}

#[test]
fn a_job_that_was_changed_otherwise_meanwhile_stays_and_ranks_by_the_other_one_end() {
    let (mut world, _, _, after, copy) = changed();
    roll_back(&mut world, &copy);
    world.pass_ms(60_000);
    let redacted = redact(&mut world, None, &[6]);
    assert!(matches!(redacted, Ok(FromCoordinator::Replaced(JobReplacement::Changed { .. }))), "{redacted:?}");
    let now = job_of(&world);
    let refused = world.try_join(again(1, &after, 40, join(0, 2, 10))).unwrap_err();
    assert!(matches!(refused, Refusal::SessionOutdated { .. }), "{refused:?}");
    assert_eq!(job_of(&world), now);
}

#[test]
fn no_job_changes_while_a_session_lacks_ranks_that_the_coordinator_may_have_forgotten() {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    let mut durable = world.state.durable();
    durable.sessions[0].ranks.truncate(1);
    world.core = core(durable, world.now_ms);
    at_of(redact(&mut world, None, &[5]));
    let hold = beat(&mut world, 0, 16, None).hold.unwrap();
    beat(&mut world, 0, 16, Some(hold));
    let asked = redact(&mut world, None, &[5]);
    let Ok(FromCoordinator::Changing { waiting, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!(waiting, "ranks of run `first` that are to join again");
}

#[test]
fn a_rank_that_claims_a_job_which_is_none_is_refused() {
    let (mut world, _, _, after, copy) = changed();
    roll_back(&mut world, &copy);
    let other = Job { seed: 99, ..after.clone() };
    let refused = world.try_join(again(1, &other, 40, join(0, 2, 10))).unwrap_err();
    assert!(matches!(refused, Refusal::FingerprintDiffers { .. }), "{refused:?}");
    let mut wrong = after;
    wrong.redactions[0].from = u64::MAX;
    let refused = world.try_join(again(1, &wrong, 40, join(0, 2, 10))).unwrap_err();
    assert!(matches!(refused, Refusal::JobInvalid { .. }), "{refused:?}");
}
