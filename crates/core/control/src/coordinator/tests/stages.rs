//! The stages of a job's sources: which may change while a run goes on, and which checkpoints are of the job.

use super::jobs::staged;
use crate::{
    coordinator::{
        Answer, Role,
        testing::{heartbeat, join},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, JobReplacement, Join, RankHeartbeat, Refusal, RunName, Start, ToCoordinator},
};
use spdl_job::Job;
use spdl_types::{Position, SessionId};

/// Returns a job whose sources have these weights from these samples on.
fn job(stages: &[(u64, u32, u32)]) -> Job {
    let table = |(from, web, code): &(u64, u32, u32)| {
        format!("[[stage]]\nfrom = {from}\nweights = {{ web = {web}, code = {code} }}\n")
    };
    // One that no test reaches, so that the job has `total_samples`.
    staged(4.0, &(stages.iter().map(table).collect::<String>() + &table(&(800, 1, 1))))
}

fn of_two(join: Join) -> Join {
    Join { job: "two".to_owned(), run: "first".to_owned(), ..join }
}

/// Lets the only rank of a launch leave at a position.
fn leave(world: &mut CoordinatorWorld, session: u64, nonce: u64, at: Position) {
    let last = heartbeat(session, 0, nonce, 0);
    world.leave(RankHeartbeat { job: "two".to_owned(), acknowledged: at, ..last });
}

#[test]
fn stages_change_from_the_position_on_that_a_run_has_reached_and_not_before() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[])), FromCoordinator::Done);
    let FromCoordinator::Refused(refusal) = world.create(job(&[(300, 1, 9)])) else { panic!("it is there") };
    assert!(refusal.to_string().ends_with("are changed by `spdl-ctl job submit --replace`"), "{refusal}");
    let id = world.join(of_two(join(0, 1, 10)));
    assert!(matches!(world.replace(job(&[(300, 1, 9)])), FromCoordinator::Refused(Refusal::RunInUse { .. })));
    leave(&mut world, id, 10, Position::new(1, 60));

    let FromCoordinator::Refused(refusal) = world.replace(job(&[(159, 1, 9)])) else { panic!("it is reached") };
    let text = refusal.to_string();
    assert!(
        text.contains("run `first` has reached sample 160 (1:60)") && text.contains("`from = 160` or later"),
        "{text}"
    );
    let replaced = world.replace(job(&[(160, 1, 9)]));
    let FromCoordinator::Replaced(JobReplacement::Changed { differences }) = replaced else { panic!("{replaced:?}") };
    assert!(differences.starts_with("`stage` (from 160: [6554, 58982]; from 800: "), "{differences}");
    world.restart();
    let status = world.core.status();
    let two = status.jobs.iter().find(|job| job.name == "two").unwrap();
    assert_eq!((two.acknowledged, two.dataset.as_str()), (Position::new(1, 60), "web 10.0 % + code 90.0 %"));
    let (session, _) = world.try_join(of_two(join(0, 1, 20))).unwrap();
    assert_eq!((session.start, session.job.stages[0].from), (Position::new(1, 60), 160));
    leave(&mut world, session.id.0, 20, Position::new(2, 0));

    // What was taken is fixed now. A launch that begins at an earlier position leaves it so.
    let earlier = Join { start: Start::At(Position::new(0, 80)), ..of_two(join(0, 1, 30)) };
    let again = world.join(earlier);
    leave(&mut world, again, 30, Position::new(0, 80));
    let refused = world.replace(job(&[]));
    assert!(matches!(refused, FromCoordinator::Refused(Refusal::JobInvalid { .. })), "{refused:?}");
    let run = RunName { job: "two".to_owned(), run: "first".to_owned() };
    world.send_as(Role::Admin, 1, ToCoordinator::ResetRun(run));
    let replaced = world.replace(job(&[]));
    assert!(matches!(replaced, FromCoordinator::Replaced(JobReplacement::Changed { .. })), "{replaced:?}");
}

#[test]
fn a_rank_that_was_silent_while_stages_changed_does_not_go_on_with_the_old_ones() {
    for restarts in [false, true] {
        let mut world = CoordinatorWorld::new();
        assert_eq!(world.create(job(&[])), FromCoordinator::Done);
        let id = world.join(of_two(join(0, 1, 10)));
        let beat = |at: u64| RankHeartbeat { job: "two".to_owned(), ..heartbeat(id, 0, 10, at) };
        world.heartbeat(beat(40)).unwrap();
        world.pass_ms(60_000);
        assert!(matches!(world.replace(job(&[(40, 1, 9)])), FromCoordinator::Replaced(JobReplacement::Changed { .. })));
        if restarts {
            world.restart();
        }
        assert_eq!(world.heartbeat(beat(48)), Err(Refusal::UnknownSession { session: SessionId(id) }));
        let again =
            Join { session: Some(SessionId(id)), fingerprint: Some(job(&[]).fingerprint()), ..of_two(join(0, 1, 10)) };
        assert!(matches!(world.try_join(again), Err(Refusal::FingerprintDiffers { .. })));
        let (session, _) = world.try_join(of_two(join(0, 1, 10))).unwrap();
        assert!(session.id.0 > id, "a join whose answer was lost opens a session with the new stages");
        assert_eq!((session.start, session.job.stages[0].from), (Position::new(0, 40), 40));
    }
}

#[test]
fn an_admin_sets_weights_from_where_a_run_is_or_later_and_later_stages_go() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[(300, 1, 1)])), FromCoordinator::Done);
    let set = |world: &mut CoordinatorWorld, from: Option<u64>, weights: [u32; 2]| {
        let request = ToCoordinator::SetWeights { job: "two".to_owned(), from, weights: weights.into() };
        match world.send_as(Role::Admin, 1, request) {
            Answer::Reply(FromCoordinator::Replaced(JobReplacement::Changed { differences })) => Ok(differences),
            Answer::Reply(FromCoordinator::Refused(refusal)) => Err(refusal.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let error = set(&mut world, None, [1, 65_535]).unwrap_err();
    assert!(error.contains("no run of it has got anywhere: change `weight` in its file"), "{error}");
    let id = world.join(of_two(join(0, 1, 10)));
    assert!(set(&mut world, Some(400), [1, 65_535]).unwrap_err().contains("is in use"));
    leave(&mut world, id, 10, Position::new(1, 60));
    assert!(set(&mut world, Some(159), [1, 65_535]).unwrap_err().contains("has reached sample 160 (1:60)"));
    assert!(set(&mut world, None, [1, 1]).unwrap_err().contains("must be those of all sources, 65536 in all"));
    let changed = set(&mut world, None, [1, 65_535]).unwrap();
    assert!(changed.starts_with("`stage` (from 160: [1, 65535], was from 300: "), "{changed}");
    assert!(
        set(&mut world, Some(200), [65_536, 0]).unwrap().contains("(from 160: [1, 65535]; from 200: [65536, 0], was")
    );
    world.restart();
    let (session, _) = world.try_join(of_two(join(0, 1, 20))).unwrap();
    assert_eq!(session.job.stages.iter().map(|stage| stage.from).collect::<Vec<_>>(), [160, 200]);
    let one = ToCoordinator::SetWeights { job: "j".to_owned(), from: None, weights: vec![65_536] };
    let refused = world.send_as(Role::Admin, 1, one);
    assert!(matches!(refused, Answer::Reply(FromCoordinator::Refused(Refusal::JobInvalid { .. }))), "{refused:?}");
}

#[test]
fn a_job_that_differs_in_more_than_stages_is_another_one() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[])), FromCoordinator::Done);
    let id = world.join(of_two(join(0, 1, 10)));
    leave(&mut world, id, 10, Position::new(0, 40));
    let replaced = world.replace(Job { seed: 5, ..job(&[(8, 1, 1)]) });
    assert!(matches!(replaced, FromCoordinator::Replaced(JobReplacement::New { .. })), "{replaced:?}");
}

#[test]
fn a_checkpoint_is_taken_by_a_job_with_other_stages_from_its_position_on() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[(120, 1, 9)])), FromCoordinator::Done);
    let mut from = |before: &Job, at: Position| {
        let state =
            Join { start: Start::At(at), fingerprint: Some(before.fingerprint_up_to(at)), ..of_two(join(0, 1, 1)) };
        world.try_join(Join { takeover: true, nonce: at.offset + 2, ..state }).map(|(session, _)| session.start)
    };
    let before = [job(&[]), job(&[(120, 1, 9)]), job(&[(120, 1, 9), (200, 9, 1)])];
    for before in &before {
        assert_eq!(from(before, Position::new(1, 20)), Ok(Position::new(1, 20)), "all are the same up to there");
    }
    let late = Position::new(1, 24);
    assert!(matches!(from(&before[0], late), Err(Refusal::FingerprintDiffers { .. })));
    assert_eq!(from(&before[2], late), Ok(late));
    assert!(matches!(from(&before[2], Position::new(2, 8)), Err(Refusal::FingerprintDiffers { .. })));
}
