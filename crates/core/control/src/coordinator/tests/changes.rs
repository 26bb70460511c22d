//! Changes of a job from a position on: which are made while a run goes on, when, and which checkpoints are of the job.

use super::jobs::staged;
use crate::{
    coordinator::{
        Answer, Change, CoordinatorCore, Role,
        testing::{heartbeat, join},
        tests::world::CoordinatorWorld,
    },
    messages::{
        FromCoordinator, JobHold, JobNotice, JobReplacement, Join, KnownChanges, RankHeartbeat, Refusal, RunName,
        Start, ToCoordinator,
    },
};
use spdl_job::Job;
use spdl_order::{BlendStage, RedactedSamples, WhenDone};
use spdl_types::{Position, SampleId, SessionId};

/// Returns a job whose sources have these weights from these samples on.
fn job(stages: &[(u64, u32, u32)]) -> Job {
    let table = |(from, web, code): &(u64, u32, u32)| {
        format!("[[stage]]\nfrom = {from}\nweights = {{ web = {web}, code = {code} }}\n")
    };
    // One that no test reaches, so that the job has `total_samples`.
    staged(4.0, &(stages.iter().map(table).collect::<String>() + &table(&(800, 1, 1))))
}

pub(super) fn of_two(join: Join) -> Join {
    Join { job: "two".to_owned(), run: "first".to_owned(), ..join }
}

/// Returns the heartbeat of a rank that goes by the job `two` as it is.
pub(super) fn of_job(world: &CoordinatorWorld, says: RankHeartbeat) -> RankHeartbeat {
    RankHeartbeat { job: "two".to_owned(), fingerprint: world.fingerprint("two"), ..says }
}

/// Returns the join of a rank of a session that goes by a version of the job `two`.
pub(super) fn again(session: u64, job: &Job, handed: u64, join: Join) -> Join {
    let (stages, redactions, earlier) = (job.stages.clone(), job.redactions.clone(), job.earlier.clone());
    let changes = KnownChanges { stages, redactions, earlier, handed: Position::new(0, handed), hold: None };
    let (session, fingerprint) = (Some(SessionId(session)), Some(job.fingerprint()));
    let start = Start::At(Position::START);
    Join { session, fingerprint, changes: Some(Box::new(changes)), start, ..of_two(join) }
}

/// Lets the only rank of a launch leave at a position.
fn leave(world: &mut CoordinatorWorld, session: u64, nonce: u64, at: Position) {
    let last = of_job(world, heartbeat(session, 0, nonce, 0));
    world.leave(RankHeartbeat { acknowledged: at, ..last });
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
        let before = of_job(&world, heartbeat(id, 0, 10, 40));
        let beat = |at: u64| RankHeartbeat { acknowledged: Position::new(0, at), ..before.clone() };
        world.heartbeat(beat(40)).unwrap();
        world.pass_ms(60_000);
        assert!(matches!(world.replace(job(&[(40, 1, 9)])), FromCoordinator::Replaced(JobReplacement::Changed { .. })));
        if restarts {
            world.restart();
        }
        assert_eq!(world.heartbeat(beat(48)), Err(Refusal::UnknownSession { session: SessionId(id) }));
        let refused = world.try_join(again(id, &job(&[]), 40, join(0, 1, 10))).unwrap_err();
        assert!(matches!(refused, Refusal::SessionOutdated { .. }), "{refused:?}");
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

/// A request of the admin to change the job `two`.
fn set(world: &mut CoordinatorWorld, from: Option<u64>, weights: [u32; 2]) -> Result<FromCoordinator, Refusal> {
    request(world, ToCoordinator::SetWeights { job: "two".to_owned(), from, weights: weights.into() })
}

pub(super) fn redact(world: &mut CoordinatorWorld, from: Option<u64>, ids: &[u64]) -> Result<FromCoordinator, Refusal> {
    let samples = RedactedSamples::new(ids.iter().copied().map(SampleId).collect());
    request(world, ToCoordinator::Redact { job: "two".to_owned(), from, samples })
}

fn request(world: &mut CoordinatorWorld, request: ToCoordinator) -> Result<FromCoordinator, Refusal> {
    match world.send_as(Role::Admin, 1, request) {
        Answer::Reply(FromCoordinator::Refused(refusal)) => Err(refusal),
        Answer::Reply(reply) => Ok(reply),
        other => panic!("{other:?}"),
    }
}

/// Sends the heartbeat of a rank of session 1 of the job `two`, and returns what it learns of changes.
pub(super) fn beat(world: &mut CoordinatorWorld, rank: u32, handed: u64, promise: Option<JobHold>) -> JobNotice {
    let says = heartbeat(1, rank, 10 + u64::from(rank), handed);
    let number = world.now_ms;
    let says = RankHeartbeat { handed: Position::new(0, handed), promise, number, ..of_job(world, says) };
    world.now_ms += 1;
    match world.send_as(Role::Client, 1 << 40, ToCoordinator::RankHeartbeat(says)) {
        Answer::Reply(FromCoordinator::RankAcknowledged { notice, heartbeat_ms, .. }) => {
            assert_eq!(heartbeat_ms < 1_000, notice.hold.is_some(), "ranks report often while it is proposed");
            notice
        }
        other => panic!("{other:?}"),
    }
}

/// Creates a world in which two ranks train with the job `two`.
pub(super) fn training() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[])), FromCoordinator::Done);
    for rank in [0, 1] {
        assert_eq!(world.join(of_two(join(rank, 2, 10 + u64::from(rank)))), 1);
    }
    world
}

pub(super) fn at_of(reply: Result<FromCoordinator, Refusal>) -> u64 {
    match reply {
        Ok(FromCoordinator::Changing { at, .. }) => at.epoch * 100 + at.offset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_made_once_all_ranks_have_promised_and_is_durable_before_a_rank_gets_it() {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    beat(&mut world, 1, 8, None);
    let from = at_of(set(&mut world, None, [1, 65_535]));
    assert!(from >= 32, "two batches of 8 ahead of the furthest rank: {from}");
    let hold = beat(&mut world, 0, 24, None).hold.unwrap();
    assert_eq!(hold.from, from);
    beat(&mut world, 0, 24, Some(hold));
    assert_eq!(at_of(set(&mut world, None, [1, 65_535])), from, "rank 1 has not promised");
    assert!(set(&mut world, None, [2, 65_534]).unwrap_err().to_string().contains("another change of it waits"));
    let before = world.changes.len();
    let notice = beat(&mut world, 1, 16, Some(hold));
    assert_eq!((notice.fingerprint, notice.hold), (hold.change, None));
    assert!(world.changes[before..].iter().any(|change| matches!(change, Change::PutJob(_))));
    let asked = ToCoordinator::SessionJob { session: SessionId(1), job: "two".to_owned(), rank: 1, nonce: 11 };
    assert!(CoordinatorCore::answer_must_last(&asked, false));
    let Answer::Reply(FromCoordinator::Job(job)) = world.send_as(Role::Client, 1 << 40, asked) else {
        panic!("no job")
    };
    assert_eq!((job.fingerprint(), job.stages[0].from), (hold.change, from));
    assert_eq!(set(&mut world, None, [1, 65_535]), Ok(FromCoordinator::Replaced(JobReplacement::Unchanged)));

    // The ranks go on past it in the same session, also after the coordinator was killed.
    world.restart();
    assert_eq!(beat(&mut world, 0, from, None).fingerprint, hold.change);
    let changes = &world.core.status().jobs.iter().find(|job| job.name == "two").unwrap().changes.clone();
    assert!(changes.iter().any(|change| change.from == from && change.shares[1].1 > 0.99 && !change.is_proposed));
}

#[test]
fn another_position_is_proposed_if_a_rank_is_past_it_and_a_position_that_the_admin_named_is_refused() {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    let from = at_of(redact(&mut world, None, &[5]));
    let hold = beat(&mut world, 0, from + 8, None).hold.unwrap();
    assert!(hold.from > from + 8, "{hold:?}");
    beat(&mut world, 0, from + 8, Some(hold));
    assert_eq!(beat(&mut world, 1, from, Some(hold)).fingerprint, hold.change);

    let named = Some(hold.from + 40);
    assert_eq!(at_of(redact(&mut world, named, &[6])), hold.from + 40);
    let notice = beat(&mut world, 1, hold.from + 48, None);
    assert_eq!((notice.fingerprint, notice.hold), (hold.change, None));
    assert!(world.log.iter().any(|line| line.contains("is not made") && line.contains("has reached sample")));
    assert!(redact(&mut world, named, &[6]).unwrap_err().to_string().contains("has reached sample"));
}

#[test]
fn a_change_waits_for_a_silent_rank_and_is_made_without_the_session_once_all_are_silent() {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    let from = at_of(redact(&mut world, None, &[5, 6]));
    let hold = beat(&mut world, 0, 16, None).hold.unwrap();
    for _ in 0..60 {
        world.pass_ms(200);
        beat(&mut world, 0, 16, Some(hold));
    }
    let Ok(FromCoordinator::Changing { waiting, .. }) = redact(&mut world, None, &[5, 6]) else { panic!("it is made") };
    assert_eq!(waiting, "rank 1 of run `first`");
    world.pass_ms(60_000);
    assert_eq!(redact(&mut world, None, &[5, 6]), Ok(FromCoordinator::Replaced(JobReplacement::Unchanged)));
    let says = of_job(&world, heartbeat(1, 1, 11, 16));
    assert_eq!(world.heartbeat(says), Err(Refusal::UnknownSession { session: SessionId(1) }));
    let (session, _) = world.try_join(of_two(join(0, 1, 30))).unwrap();
    let [redaction] = &session.job.redactions[..] else { panic!("{:?}", session.job.redactions) };
    assert!(redaction.from <= from && redaction.samples.len() == 2, "where the ranks were: {redaction:?}");
}

#[test]
fn a_proposal_that_is_lost_with_the_coordinator_releases_the_ranks() {
    let mut world = training();
    beat(&mut world, 0, 16, None);
    at_of(set(&mut world, None, [1, 65_535]));
    let hold = beat(&mut world, 0, 16, None).hold.unwrap();
    world.restart();
    assert_eq!(beat(&mut world, 0, 16, Some(hold)).hold, Some(hold), "rank 1 may know that it was made");
    beat(&mut world, 1, 16, None);
    let notice = beat(&mut world, 0, 16, Some(hold));
    assert_eq!((notice.hold, notice.fingerprint), (None, job(&[]).fingerprint()));
    at_of(set(&mut world, None, [1, 65_535]));
}

#[test]
fn weights_that_an_admin_sets_leave_out_a_source_that_is_used_up() {
    let mut limited = job(&[]);
    (limited.sources[1].max_epochs, limited.sources[1].when_done) = (Some(1), Some(WhenDone::Reweight));
    let limited = limited.with_limits().unwrap();
    let froms = |job: &Job| job.stages.iter().map(|stage| stage.from).collect::<Vec<_>>();
    let [used_up, 800] = froms(&limited)[..] else { panic!("{:?}", limited.stages) };
    assert!((250..=254).contains(&used_up), "a fifth of 250 are all 50 samples: {used_up}");
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(limited), FromCoordinator::Done);
    let id = world.join(of_two(join(0, 1, 10)));
    leave(&mut world, id, 10, Position::new(1, 60));
    let more_code = [16_384, 49_152];
    assert!(matches!(set(&mut world, None, more_code), Ok(FromCoordinator::Replaced(JobReplacement::Changed { .. }))));
    assert_eq!(
        set(&mut world, None, more_code),
        Ok(FromCoordinator::Replaced(JobReplacement::Unchanged)),
        "what follows from it is no other change"
    );
    let (session, _) = world.try_join(of_two(join(0, 1, 20))).unwrap();
    let [160, used_up] = froms(&session.job)[..] else { panic!("{:?}", session.job.stages) };
    assert!((182..=189).contains(&used_up), "32 of 160 and three quarters of 24 are all: {used_up}");
    assert_eq!(session.job.stages[1].weights, [65_536, 0]);
    // A source can end the stream as well, and changes are listed with that.
    let mut ending = session.job;
    ending.name = "ending".to_owned();
    ending.sources[1].when_done = Some(WhenDone::Stop);
    ending.stages.truncate(1);
    let ending = ending.with_limits().unwrap();
    assert!(ending.stages.last().is_some_and(BlendStage::is_end));
    assert_eq!(world.create(ending), FromCoordinator::Done);
    let status = world.core.status();
    let listed = status.jobs.iter().find(|job| job.name == "ending").unwrap();
    assert_eq!(listed.changes.len(), 3);
    assert!(listed.changes[2].shares.is_empty() && listed.changes[2].redacted == 0, "{:?}", listed.changes[2]);
}

#[test]
fn redactions_stay_with_a_job_whose_file_is_submitted_again_and_with_another_job_of_the_same_samples() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[])), FromCoordinator::Done);
    assert!(matches!(
        redact(&mut world, Some(50), &[5]),
        Ok(FromCoordinator::Replaced(JobReplacement::Changed { .. }))
    ));
    assert_eq!(world.create(job(&[])), FromCoordinator::Done, "the file has no redactions");
    let replaced = world.replace(Job { seed: 5, ..job(&[]) });
    assert!(matches!(replaced, FromCoordinator::Replaced(JobReplacement::New { .. })), "{replaced:?}");
    let (session, _) = world.try_join(of_two(join(0, 1, 20))).unwrap();
    let [redaction] = &session.job.redactions[..] else { panic!("they are gone") };
    assert_eq!((redaction.from, redaction.samples.len()), (0, 1));
    let error = redact(&mut world, Some(90), &[1 << 40]).unwrap_err().to_string();
    assert!(error.contains("and ids are below"), "{error}");
}

#[test]
fn a_join_that_is_repeated_after_its_session_was_outdated_gets_the_session_that_it_has_opened_since() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.create(job(&[])), FromCoordinator::Done);
    let again = of_two(join(0, 1, 10));
    assert_eq!(world.join(again.clone()), 1);
    world.pass_ms(60_000);
    assert!(matches!(world.replace(job(&[(40, 1, 9)])), FromCoordinator::Replaced(JobReplacement::Changed { .. })));
    assert_eq!((world.join(again.clone()), world.join(again)), (2, 2));
}
