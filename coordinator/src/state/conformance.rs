//! The conformance suite for every [`StateStore`], run by each implementation's tests.

use std::sync::Arc;

use spdl_control::{
    coordinator::{
        Answer, BadSampleRecord, BadSampleReport, Change, ConnectionId, CoordinatorConfig, CoordinatorCore, Durable,
        JobRecord, NearestThenLeastLoaded, RankRecord, RequestPeer, Role, SessionRecord, Successor, testing,
    },
    messages::{FromCoordinator, Join, Start, StartReason, ToCoordinator},
};
use spdl_job::Job;
use spdl_order::Receipt;
use spdl_types::{Fingerprint, NodeId, Position, SampleId, SessionId};

use super::StateStore;

fn job(name: &str) -> JobRecord {
    // A fraction that short decimal text does not reproduce, and a fingerprint that needs all 128 bits.
    let fraction = f64::from_bits(0.1f64.to_bits() + 1) / 3.0;
    let job = Job { dataset_fingerprint: Fingerprint(u128::MAX - 5), max_bad_fraction: fraction, ..testing::job(name) };
    JobRecord {
        fingerprint: job.fingerprint(),
        max_bad_fraction_bits: fraction.to_bits(),
        failed: None,
        job: job.into(),
    }
}

fn session(id: u64, job: &str) -> SessionRecord {
    SessionRecord {
        id: SessionId(id),
        job: job.to_owned(),
        run: "lr-3e-4".to_owned(),
        world: 2,
        global_batch: 64,
        epochs: u64::MAX,
        start: Position::new(1, 2),
        reason: StartReason::Resumed { session: SessionId(u64::MAX) },
        launch: Some("1234.0".to_owned()),
        is_takeover: true,
        replaces: Some(SessionId(2)),
        superseded_by: None,
        is_reset: true,
        is_outdated: true,
        ranks: vec![Arc::new(RankRecord {
            rank: 1,
            nonce: u64::MAX,
            client: "pid 3 on ä".to_owned(),
            since_unix_s: 1_795_309_262,
            node: NodeId("n".to_owned()),
            acknowledged: Position::new(u64::MAX, 7),
            receipt: Some(Receipt(u128::MAX)),
            left: false,
        })],
    }
}

fn bad_sample(job: &str, sample: u64, named: bool) -> BadSampleRecord {
    let cause = BadSampleReport { shard: "s.tar".to_owned(), key: "a/b".to_owned(), cause: "short".to_owned() };
    BadSampleRecord { job: job.to_owned(), sample: SampleId(sample), named: named.then_some(cause) }
}

/// A session of job `j` in format 1: rank 1 of 2 has advanced further than rank 0.
pub(crate) const SESSION_OF_FORMAT_1: &str = r#"{"id":7,"job":"j","world":2,"global_batch":96,"start":{"epoch":0,"offset":0},
    "superseded_by":null,"ranks":[
    {"rank":0,"nonce":10,"client":"process 1 on a","node":"a","acknowledged":{"epoch":1,"offset":96},"left":true},
    {"rank":1,"nonce":11,"client":"process 2 on a","node":"a","acknowledged":{"epoch":1,"offset":192},"left":true}]}"#;

/// Checks that a launch resumes where the ranks of [`SESSION_OF_FORMAT_1`] had got to, in the run with the job's name.
pub(crate) fn goes_on_from_format_1(durable: Durable) {
    let mut core = CoordinatorCore::new(CoordinatorConfig::default(), Box::new(NearestThenLeastLoaded), durable, 0);
    let join = Join { start: Start::Resume, ..testing::join(0, 2, 20) };
    let peer = RequestPeer { connection: ConnectionId(1), role: Role::Client, name: "c".to_owned() };
    let answer = core.handle_request(1, &peer, ToCoordinator::Join(join));
    let Answer::Reply(FromCoordinator::Joined { session, reason, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!((session.id, session.start, session.job.epochs), (SessionId(8), Position::new(1, 96), 3));
    assert_eq!(reason, StartReason::Resumed { session: SessionId(7) });
}

/// Returns changes that reach each table.
pub(crate) fn some_changes() -> Vec<Change> {
    vec![
        Change::PutJob(job("a")),
        Change::PutJob(job("b")),
        Change::PutSession(session(3, "a")),
        Change::PutSession(session(9, "b")),
        Change::PutBadSample(bad_sample("a", 1, true)),
        Change::PutBadSample(bad_sample("b", u64::MAX, false)),
    ]
}

/// Runs the suite. `open(None)` opens a fresh state; `open(Some(state))` closes that state and opens it again.
pub(crate) fn run<S: StateStore>(open: impl Fn(Option<S>) -> S) {
    fresh_state_is_empty(&open);
    what_was_put_is_there_after_opening_again(&open);
    putting_again_replaces(&open);
    deleting_a_job_takes_its_own_with_it_and_nothing_else(&open);
    session_ids_are_never_given_twice(&open);
    changes_apply_in_order(&open);
}

fn fresh_state_is_empty<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    assert_eq!(open(None).load().unwrap(), Durable::default());
}

fn what_was_put_is_there_after_opening_again<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    let mut state = open(None);
    let expected = Durable {
        jobs: vec![job("a"), JobRecord { failed: Some("too many".to_owned()), ..job("b") }],
        sessions: vec![session(3, "a"), session(9, "b")],
        bad_samples: vec![bad_sample("a", 1, true), bad_sample("a", u64::MAX, false), bad_sample("b", 0, true)],
        last_session: 9,
    };
    let mut changes: Vec<Change> = expected.jobs.iter().cloned().map(Change::PutJob).collect();
    changes.extend(expected.sessions.iter().cloned().map(Change::PutSession));
    changes.extend(expected.bad_samples.iter().cloned().map(Change::PutBadSample));
    state.apply(&changes).unwrap();
    assert_eq!(state.load().unwrap(), expected);
    assert_eq!(open(Some(state)).load().unwrap(), expected);
}

fn putting_again_replaces<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    let mut state = open(None);
    state.apply(&[Change::PutJob(job("a")), Change::PutSession(session(1, "a"))]).unwrap();
    let failed = JobRecord { failed: Some("why".to_owned()), ..job("a") };
    let successor = Successor { session: SessionId(2), rank: 0, client: "c".to_owned() };
    let superseded = SessionRecord { superseded_by: Some(successor), ..session(1, "a") };
    state.apply(&[Change::PutJob(failed.clone()), Change::PutSession(superseded.clone())]).unwrap();
    let durable = open(Some(state)).load().unwrap();
    assert_eq!(durable.jobs, [failed]);
    assert_eq!(durable.sessions, [superseded]);
}

fn deleting_a_job_takes_its_own_with_it_and_nothing_else<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    let mut state = open(None);
    for (id, name) in [(1, "a"), (2, "ab"), (3, "b")] {
        let changes = [
            Change::PutJob(job(name)),
            Change::PutSession(session(id, name)),
            Change::PutBadSample(bad_sample(name, 0, true)),
            Change::PutBadSample(bad_sample(name, u64::MAX, true)),
        ];
        state.apply(&changes).unwrap();
    }
    state.apply(&[Change::DeleteJob("a".to_owned()), Change::DeleteJob("never there".to_owned())]).unwrap();
    let durable = open(Some(state)).load().unwrap();
    assert_eq!(durable.jobs.iter().map(|record| record.job.name.as_str()).collect::<Vec<_>>(), ["ab", "b"]);
    assert_eq!(durable.sessions.iter().map(|record| record.id.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(durable.bad_samples.len(), 4);
    assert!(durable.bad_samples.iter().all(|record| record.job != "a"));
}

fn session_ids_are_never_given_twice<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    let mut state = open(None);
    state.apply(&[Change::PutSession(session(41, "a")), Change::PutSession(session(7, "a"))]).unwrap();
    state.apply(&[Change::DeleteSession(SessionId(41))]).unwrap();
    let durable = open(Some(state)).load().unwrap();
    assert_eq!(durable.last_session, 41);
    assert_eq!(durable.sessions, [session(7, "a")]);
}

fn changes_apply_in_order<S: StateStore>(open: &impl Fn(Option<S>) -> S) {
    let mut state = open(None);
    let changes = [
        Change::PutJob(job("a")),
        Change::DeleteJob("a".to_owned()),
        Change::PutSession(session(1, "a")),
        Change::DeleteSession(SessionId(1)),
        Change::PutJob(job("b")),
    ];
    state.apply(&changes).unwrap();
    let durable = open(Some(state)).load().unwrap();
    assert_eq!(durable.jobs, [job("b")]);
    assert_eq!(durable.sessions, []);
}
