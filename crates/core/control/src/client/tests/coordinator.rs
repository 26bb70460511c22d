//! Tests of the session's relation to the coordinator, event by event.

use crate::messages::{Holder, RunName};

use super::*;

fn run() -> Box<RunName> {
    Box::new(RunName { job: "train".into(), run: "train".into() })
}

#[test]
fn an_answer_that_was_under_way_when_the_home_was_lost_is_followed_by_another_question() {
    let mut rank = TestRank::attached();
    assert!(matches!(rank.wake()[..], [SessionEffect::Ask(ToCoordinator::RankHeartbeat(_))]));
    assert_eq!(
        rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() }),
        [SessionEffect::Detach { link: L0 }]
    );
    assert_eq!(rank.heard(Some(home(1))), [], "the old answer");
    let effects = rank.wake();
    assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)));
}

#[test]
fn a_superseded_session_or_a_failed_job_ends_the_session_with_its_reason() {
    let superseded =
        Refusal::SessionSuperseded { run: run(), session: SessionId(7), rank: 0, client: "9@there".into() };
    let failed = Refusal::JobFailed { job: "train".into(), cause: "2 % bad samples".into() };
    for refusal in [superseded, failed] {
        let mut rank = TestRank::attached();
        rank.wake();
        let effects = rank.answered(FromCoordinator::Refused(refusal.clone()));
        assert_eq!(effects, [SessionEffect::Detach { link: L0 }, SessionEffect::Fail(refusal.into())]);
        assert_eq!(rank.on(SessionEvent::Close), [], "no coordinator is left to inform");
    }
}

#[test]
fn a_coordinator_that_forgot_the_session_is_joined_again_from_its_start_without_stopping() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.wake();
    rank.answered(FromCoordinator::Refused(Refusal::UnknownSession { session: SessionId(7) }));
    let effects = rank.wake();
    let join = effects
        .iter()
        .find_map(|e| if let SessionEffect::Ask(ToCoordinator::Join(join)) = e { Some(join) } else { None });
    let join = join.expect("a join");
    assert_eq!(join.session, Some(SessionId(7)));
    assert_eq!((join.start, join.global_batch, join.nonce), (Start::At(Position::START), Some(24), 42));
    assert_eq!(rank.joined(Session { id: SessionId(8), ..session() }, Some(home(1))), []);
    assert_eq!(rank.filled(L0, 1, 1, 24), [SessionEffect::HandOver { link: L0, slot: 1 }]);
    assert_eq!(heartbeat_of(&rank.wake()).session, SessionId(8));
}

#[test]
fn a_session_that_is_not_ours_is_refused_with_both_values() {
    let wanting = |change: fn(&mut JoinRequest)| {
        let mut join_request = join_request();
        change(&mut join_request);
        let (mut rank, _) = TestRank::new(join_request);
        match rank.joined(session(), None).pop() {
            Some(SessionEffect::Fail(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for (error, values) in [
        (wanting(|i| i.world = 4), ["world 2", "4"]),
        (wanting(|i| i.global_batch = Some(48)), ["global batch 24", "48"]),
        (wanting(|i| i.start = Start::At(at(48))), ["start 0:0", "0:48"]),
        (wanting(|i| i.fingerprint = Some(Fingerprint(9))), ["fingerprint", "0000009"]),
    ] {
        assert!(values.iter().all(|value| error.contains(value)), "{error}");
    }
}

#[test]
fn a_coordinator_that_never_answers_is_an_error_with_address_and_cause() {
    let (mut rank, _) = TestRank::new(join_request());
    for _ in 0..1000 {
        let effects = rank.on(SessionEvent::Unanswered { cause: "connection refused".into() });
        if let [SessionEffect::Fail(error)] = &effects[..] {
            assert_eq!(rank.now_ms, 5000, "not before and not after");
            let text = error.to_string();
            assert!(["`coord:1`", "connection refused", "5000 ms"].iter().all(|part| text.contains(part)), "{text}");
            assert!(error.hint().is_some());
            return;
        }
        rank.wake();
    }
    panic!("it never gave up");
}

#[test]
fn a_coordinator_that_goes_away_stops_no_batch_and_shows_in_the_wait_reason() {
    let mut rank = TestRank::attached();
    for _ in 0..50 {
        rank.wake();
        rank.on(SessionEvent::Unanswered { cause: "timed out".into() });
    }
    assert_eq!(rank.filled(L0, 0, 0, 0), [SessionEffect::HandOver { link: L0, slot: 0 }]);
    let wait_reason = rank.core.wait_reason(rank.now_ms);
    assert!(wait_reason.is_up_to_the_home());
    assert!(wait_reason.to_string().contains("timed out"), "{wait_reason}");
    rank.wake();
    rank.heard(None);
    assert!(!rank.core.wait_reason(rank.now_ms).to_string().contains("timed out"));
    assert!(rank.core.attached().is_some(), "no worker in the list is no reason to leave the home");
}

#[test]
fn a_heartbeat_carries_the_wait_in_progress() {
    let mut rank = TestRank::attached();
    rank.core.waited(1_500);
    assert_eq!(heartbeat_of(&rank.wake()).waited_ms, 1_500);
}

#[test]
fn closing_reports_the_last_position_and_sends_nothing_more() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.on(SessionEvent::Delivered(Progress { position: at(24), receipt: Receipt(5), waited_ms: 8 }));
    let effects = rank.on(SessionEvent::Close);
    assert_eq!(effects[0], SessionEffect::Detach { link: L0 });
    assert!(matches!(effects[1], SessionEffect::Ask(ToCoordinator::RankLeave(_))));
    let heartbeat = heartbeat_of(&effects);
    assert_eq!((heartbeat.acknowledged, heartbeat.receipt, heartbeat.waited_ms), (at(24), Receipt(5), 8));
    assert_eq!(rank.heard(Some(home(2))), []);
    assert_eq!(rank.core.wake_ms(), None);
}

#[test]
fn requests_to_a_coordinator_that_does_not_answer_back_off() {
    let mut rank = TestRank::attached();
    rank.wake();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let (before_ms, effects) = (rank.now_ms, rank.on(SessionEvent::Unanswered { cause: "away".into() }));
        assert_eq!(effects, [], "it is not asked again at once");
        assert_eq!(rank.on(SessionEvent::Delivered(Progress::default())), [], "and not before the pause is over");
        let wake_ms = rank.core.wake_ms().unwrap();
        rank.core.handle_timeout(wake_ms - 1);
        assert_eq!(rank.effects(), []);
        rank.wake();
        pauses.push(rank.now_ms - before_ms);
    }
    assert!(pauses[0] <= 50 && pauses[7] >= 1_000, "{pauses:?}");
    rank.on(SessionEvent::Unanswered { cause: "away".into() });
    rank.wake();
    rank.heard(Some(home(1)));
    assert_eq!(rank.core.wake_ms(), Some(rank.now_ms + 1_000), "once it has answered, heartbeats go on");
}

#[test]
fn while_a_question_is_open_no_other_is_asked() {
    let mut rank = TestRank::attached();
    assert!(matches!(rank.wake()[..], [SessionEffect::Ask(_)]));
    rank.now_ms += 60_000;
    rank.core.handle_timeout(rank.now_ms);
    assert_eq!(rank.effects(), []);
}

#[test]
fn the_first_silence_of_a_row_is_logged_and_the_others_are_not() {
    let mut rank = TestRank::attached();
    let mut reported = Vec::new();
    for _ in 0..3 {
        rank.wake();
        rank.core.handle(rank.now_ms, SessionEvent::Unanswered { cause: "away".into() });
        reported.push(
            rank.effects()
                .iter()
                .filter(|effect| matches!(effect, SessionEffect::Log(SessionNote::CoordinatorAway { .. })))
                .count(),
        );
    }
    assert_eq!(reported, [1, 0, 0]);
}

fn in_use() -> Refusal {
    let holder = Holder { rank: 0, world: 2, client: "9@there".into(), others: 1, since_unix_s: 0 };
    Refusal::RunInUse { run: run(), session: SessionId(6), holder: Box::new(holder), liveness_ms: 2_000 }
}

#[test]
fn a_run_that_is_in_use_is_asked_for_until_its_ranks_would_be_known_to_be_dead_and_then_it_is_an_error() {
    let (mut rank, _) = TestRank::new(join_request());
    let mut joins = 0;
    let error = loop {
        match &rank.answered(FromCoordinator::Refused(in_use()))[..] {
            [SessionEffect::Fail(error)] => break error.clone(),
            [] => joins += usize::from(matches!(rank.wake()[..], [SessionEffect::Ask(ToCoordinator::Join(_))])),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((rank.now_ms, joins), (4_000, 20), "twice the liveness timeout");
    assert!(error.to_string().contains("held by rank 0 of 2 (9@there) and 1 more rank"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("takeover")));
}

#[test]
fn a_run_whose_ranks_were_dead_is_joined_once_the_liveness_timeout_is_over() {
    let (mut rank, _) = TestRank::new(join_request());
    for _ in 0..10 {
        assert_eq!(rank.answered(FromCoordinator::Refused(in_use())), []);
        rank.wake();
    }
    assert!(matches!(rank.joined(session(), None)[..], [SessionEffect::Joined(..)]));
}

#[test]
fn a_coordinator_that_was_away_is_given_the_time_again_in_which_it_finds_the_dead() {
    let (mut rank, _) = TestRank::new(join_request());
    let refused_until = |rank: &mut TestRank, end_ms: u64| {
        while rank.now_ms < end_ms {
            assert_eq!(rank.answered(FromCoordinator::Refused(in_use())), [], "at {}", rank.now_ms);
            rank.wake();
        }
    };
    refused_until(&mut rank, 3_000);
    rank.on(SessionEvent::Unanswered { cause: "killed".into() });
    rank.wake();
    let back_ms = rank.now_ms;
    refused_until(&mut rank, back_ms + 3_900);
}

#[test]
fn the_first_rank_logs_where_its_session_starts_and_why() {
    let (mut rank, _) = TestRank::new(JoinRequest { rank: 0, run: "lr-1".into(), ..join_request() });
    let reason = StartReason::Resumed { session: SessionId(6) };
    let session = Box::new(Session { start: at(48), ..session() });
    rank.core.handle(
        0,
        SessionEvent::Answered(Box::new(FromCoordinator::Joined { session, reason, home: None, heartbeat_ms: 1_000 })),
    );
    let logged = rank
        .effects()
        .into_iter()
        .find_map(|effect| if let SessionEffect::Log(note) = effect { Some(note.to_string()) } else { None });
    let expected = "session 7 of run `lr-1` of job `train` starts at 0:48, where all ranks of session 6 had got to";
    assert_eq!(logged.as_deref(), Some(expected));
}
