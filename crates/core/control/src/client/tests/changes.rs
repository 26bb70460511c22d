//! Changes of the job: what a rank promises, that it waits, and that it takes over the changed job from its position on.

use super::*;
use crate::messages::JobHold;
use spdl_job::Job;
use spdl_order::{RedactedSamples, Redaction};
use spdl_types::SampleId;

/// Returns the job with a redaction from sample `from` on.
fn changed(from: u64) -> Job {
    Job { redactions: vec![Redaction { from, samples: RedactedSamples::new(vec![SampleId(1)]) }], ..job() }
}

/// Returns what a rank promises that waits for the job with that redaction.
fn hold(from: u64) -> Option<JobHold> {
    Some(JobHold { change: changed(from).fingerprint(), from })
}

fn proposed(from: u64) -> JobNotice {
    JobNotice { fingerprint: job().fingerprint(), hold: hold(from) }
}

fn made(from: u64) -> JobNotice {
    JobNotice { fingerprint: changed(from).fingerprint(), hold: None }
}

/// Advances time until the rank sends a request, and returns that.
fn next_request(rank: &mut TestRank) -> ToCoordinator {
    for _ in 0..10 {
        for effect in rank.wake() {
            if let SessionEffect::Ask(request) = effect {
                return request;
            }
        }
    }
    panic!("no request: {}", rank.core.wait_reason(rank.now_ms));
}

fn next_heartbeat(rank: &mut TestRank) -> RankHeartbeat {
    match next_request(rank) {
        ToCoordinator::RankHeartbeat(heartbeat) => heartbeat,
        other => panic!("{other:?}"),
    }
}

fn handed(effects: &[SessionEffect]) -> Vec<u32> {
    let slot = |effect: &SessionEffect| match effect {
        SessionEffect::HandOver { slot, .. } => Some(*slot),
        _ => None,
    };
    effects.iter().filter_map(slot).collect()
}

#[test]
fn a_rank_promises_at_once_and_hands_over_nothing_past_the_change_before_it_has_the_changed_job() {
    let mut rank = TestRank::attached();
    let first = next_heartbeat(&mut rank);
    assert_eq!((first.promise, first.handed), (None, at(0)));
    assert_eq!(handed(&rank.filled(L0, 0, 0, 0)), [0]);
    rank.heard_of(Some(home(1)), proposed(60));
    let promise = next_heartbeat(&mut rank);
    assert_eq!((promise.promise, promise.handed), (hold(60), at(24)));
    assert!(promise.number > first.number);

    assert_eq!(handed(&rank.filled(L0, 1, 1, 24)), [1]);
    assert_eq!(handed(&rank.filled(L0, 2, 2, 48)), [0; 0], "the batch from 48 to 72 has sample 60");
    assert!(rank.core.wait_reason(rank.now_ms).to_string().contains("the job is about to change here"));

    rank.heard_of(Some(home(1)), made(60));
    let expected = ToCoordinator::SessionJob { session: SessionId(7), job: "train".into(), rank: 1, nonce: 42 };
    assert_eq!(next_request(&mut rank), expected);
    let effects = rank.answered(FromCoordinator::Job(Box::new(changed(60))));
    let [SessionEffect::JobChanged(session), SessionEffect::Detach { link: L0 }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(session.job.redactions.len(), 1);
    // The batch that had to wait is dropped with its link.
    let effects = rank.on(SessionEvent::Freed { link: L0, slot: 2 });
    let [SessionEffect::Attach { link: L1, from, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*from, at(48));
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(handed(&rank.filled(L1, 0, 0, 48)), [0], "it is made again");
    assert_eq!(next_heartbeat(&mut rank).promise, None);
    rank.heard_of(Some(home(1)), made(60));
    assert!(matches!(next_request(&mut rank), ToCoordinator::RankHeartbeat(_)), "it has the job");
}

#[test]
fn a_rank_that_is_past_a_change_promises_nothing_and_one_that_is_released_goes_on() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.filled(L0, 1, 1, 24);
    next_heartbeat(&mut rank);
    rank.heard_of(Some(home(1)), proposed(40));
    let late = next_heartbeat(&mut rank);
    assert_eq!((late.promise, late.handed), (None, at(48)));
    rank.heard_of(Some(home(1)), proposed(50));
    assert_eq!(handed(&rank.filled(L0, 2, 2, 48)), [0; 0]);
    assert_eq!(next_heartbeat(&mut rank).promise, hold(50));
    let effects = rank.heard(Some(home(1)));
    assert_eq!(handed(&effects), [2], "the change is not made");
    assert_eq!(next_heartbeat(&mut rank).promise, None);
}

#[test]
fn a_rank_whose_job_has_changed_before_its_position_fails() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.filled(L0, 1, 1, 24);
    next_heartbeat(&mut rank);
    rank.heard_of(Some(home(1)), made(40));
    next_request(&mut rank);
    let effects = rank.answered(FromCoordinator::Job(Box::new(changed(40))));
    let [.., SessionEffect::Fail(error)] = &effects[..] else { panic!("{effects:?}") };
    assert!(error.to_string().contains("fingerprint"), "{error}");
}

#[test]
fn a_trainer_that_goes_to_a_position_past_a_change_waits_there_until_it_is_made() {
    let mut rank = TestRank::attached();
    next_heartbeat(&mut rank);
    rank.heard_of(Some(home(1)), proposed(60));
    assert!(next_heartbeat(&mut rank).promise.is_some());
    rank.on(SessionEvent::Restart { from: at(72) });
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(handed(&rank.filled(L1, 0, 0, 72)), [0; 0]);
    rank.heard_of(Some(home(1)), proposed(60));
    assert_eq!(next_heartbeat(&mut rank).handed, at(72), "so another position is proposed");
    rank.heard_of(Some(home(1)), proposed(200));
    assert_eq!(next_heartbeat(&mut rank).promise, hold(200));
}

#[test]
fn a_rank_that_waits_for_a_change_gets_no_end_and_one_that_has_got_it_promises_nothing_before_it() {
    let ending = Job { total_samples: Some(60), ..job() };
    let fingerprint = ending.fingerprint();
    let (mut rank, _) = TestRank::new(join_request());
    rank.joined(Session { job: ending, ..session() }, Some(home(1)));
    rank.on(SessionEvent::Attached { link: L0, slots: 3 });
    for (slot, offset) in [(0, 0), (1, 24)] {
        assert_eq!(handed(&rank.filled(L0, slot.into(), slot, offset)), [slot]);
    }
    let hold = |from| Some(JobHold { change: Fingerprint(9), from });
    let notice = |hold| JobNotice { fingerprint, hold };
    next_heartbeat(&mut rank);
    rank.heard_of(Some(home(1)), notice(hold(55)));
    assert_eq!(next_heartbeat(&mut rank).promise, hold(55), "the change may move the end, which is at sample 60");
    assert_eq!(rank.on(SessionEvent::End { link: L0, sequence: 2, position: at(48) }), []);
    assert!(rank.core.wait_reason(rank.now_ms).to_string().contains("the job is about to change here"));
    let effects = rank.heard_of(Some(home(1)), notice(None));
    assert!(effects.contains(&SessionEffect::End { position: at(48) }), "the change is not made: {effects:?}");

    assert_eq!(next_heartbeat(&mut rank).handed, at(61));
    for from in [55, 60] {
        rank.heard_of(Some(home(1)), notice(hold(from)));
        assert_eq!(next_heartbeat(&mut rank).promise, None, "a change from {from} on could move the end");
    }
    rank.heard_of(Some(home(1)), notice(hold(61)));
    assert_eq!(next_heartbeat(&mut rank).promise, hold(61));
    // Its process can go on from its last batch with another launch.
    let [SessionEffect::Ask(ToCoordinator::RankLeave(leave))] = &rank.on(SessionEvent::Close)[..] else {
        panic!("it leaves")
    };
    assert_eq!(leave.handed, at(48));
}
