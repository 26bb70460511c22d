//! Late events of a link that was left do not change the state of the current link.

use super::*;

/// A rank that was attached to home 1 on [`L0`] and then moved to home 2 on [`L1`].
fn moved() -> TestRank {
    let mut rank = TestRank::attached();
    rank.wake();
    assert_eq!(rank.heard(Some(home(2))), [SessionEffect::Detach { link: L0 }, attach(L1, home(2), local(2), 0)]);
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    rank
}

#[test]
fn nothing_that_comes_late_over_a_link_that_was_left_touches_the_one_that_serves() {
    let next = at(24);
    let late = [
        SessionEvent::LinkLost { link: L0, cause: "its task ended".into() },
        SessionEvent::Attached { link: L0, slots: 3 },
        SessionEvent::End { link: L0, sequence: 0, position: Position::new(2, 0) },
        SessionEvent::Leaving { link: L0 },
        SessionEvent::Fault { link: L0, message: "the store is away".into(), is_retryable: true },
        SessionEvent::Fault { link: L0, message: "no such job".into(), is_retryable: false },
    ];
    for event in late {
        let mut rank = moved();
        assert_eq!(rank.on(event.clone()), [], "{event:?}");
        assert_eq!(rank.core.attached_link(), Some(L1), "{event:?}");
        assert_eq!(rank.core.link.unreachable(), None, "{event:?}");
        assert_eq!(rank.filled(L1, 0, 0, 0), [SessionEffect::HandOver { link: L1, slot: 0 }], "after {event:?}");
    }
    let mut rank = moved();
    let filled = SessionEvent::Filled { link: L0, sequence: 0, slot: 0, from: at(0), next };
    assert_eq!(rank.on(filled), [SessionEffect::Discard { link: L0, slot: 0 }]);
    assert_eq!(rank.on(SessionEvent::Freed { link: L0, slot: 0 }), []);
    assert_eq!(rank.filled(L1, 0, 0, 0), [SessionEffect::HandOver { link: L1, slot: 0 }]);
}

#[test]
fn a_link_that_is_renewed_is_opened_again_and_its_slots_are_not_filled_again() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.filled(L0, 1, 1, 24);
    assert_eq!(rank.on(SessionEvent::Renew { link: L1 }), [], "that is no link of this rank's");
    assert_eq!(
        rank.on(SessionEvent::Renew { link: L0 }),
        [SessionEffect::Detach { link: L0 }, attach(L1, home(1), local(1), 48)],
        "at once, at the same home, after what was handed over"
    );
    assert_eq!(rank.on(SessionEvent::Freed { link: L0, slot: 0 }), [], "the home does not learn of it");
    assert_eq!(rank.core.link.unreachable(), None, "the home is not to blame");
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(rank.filled(L1, 0, 0, 48), [SessionEffect::HandOver { link: L1, slot: 0 }]);
}

#[test]
fn a_late_attached_of_a_link_that_was_left_does_not_attach_the_one_that_is_being_opened() {
    let mut rank = TestRank::attached();
    rank.wake();
    rank.heard(Some(home(2)));
    assert_eq!(rank.on(SessionEvent::Attached { link: L0, slots: 3 }), []);
    assert_eq!(rank.core.attached_link(), None, "home 2 has not answered");
    assert_eq!(rank.on(SessionEvent::LinkLost { link: L0, cause: "its task ended".into() }), []);
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(rank.core.attached_link(), Some(L1));
}

#[test]
fn a_late_batch_of_a_link_that_was_left_frees_no_slot_of_the_one_that_serves() {
    let mut rank = moved();
    rank.filled(L1, 0, 0, 0);
    rank.on(SessionEvent::Filled { link: L0, sequence: 0, slot: 0, from: at(0), next: at(24) });
    assert_eq!(
        rank.on(SessionEvent::Freed { link: L0, slot: 0 }),
        [],
        "the home of L1 does not learn that slot 0 is free"
    );
    assert_eq!(rank.core.slots_held(), 1, "the trainer has the batch in slot 0 of L1");
    assert_eq!(rank.on(SessionEvent::Freed { link: L1, slot: 0 }), [SessionEffect::Free { link: L1, slot: 0 }]);
    assert_eq!(rank.core.slots_held(), 0);
}

#[test]
fn a_link_whose_batches_are_all_freed_leaves_nothing_behind_that_is_waited_for() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.on(SessionEvent::Freed { link: L0, slot: 0 });
    rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() });
    assert_eq!(rank.core.slots_held(), 0);
    assert!(rank.core.left_behind.is_empty(), "{:?}", rank.core.left_behind);
    assert_eq!(rank.heard(Some(home(2))), [attach(L1, home(2), local(2), 24)]);
}

#[test]
fn a_rank_that_waits_for_a_home_to_answer_wakes_to_give_it_up() {
    let (mut rank, _) = TestRank::new(JoinRequest { transports: AllowedTransports::Quic, ..join_request() });
    rank.joined(session(), Some(home(1)));
    assert_eq!(rank.core.link_wake_ms(), Some(10_000));
    rank.on(SessionEvent::Attached { link: L0, slots: 3 });
    assert_eq!(rank.core.link_wake_ms(), None, "a home that serves is waited for");
}

#[test]
fn the_first_failure_of_a_row_is_logged_and_the_others_are_not() {
    let mut rank = TestRank::attached();
    let mut reported = Vec::new();
    for _ in 0..3 {
        let link = rank.core.attached_link().unwrap();
        rank.core.handle(rank.now_ms, SessionEvent::LinkLost { link, cause: "reset".into() });
        let effects = rank.effects();
        reported.push(
            effects
                .iter()
                .filter(|effect| {
                    matches!(effect, SessionEffect::Log(SessionNote::HomeLost { cause: LinkFailure::Broken(_), .. }))
                })
                .count(),
        );
        rank.on(SessionEvent::Unanswered { cause: "away".into() });
        rank.wake_until_attach();
        rank.on(SessionEvent::Attached { link: LinkId(link.0 + 1), slots: 3 });
    }
    assert_eq!(reported, [1, 0, 0]);
}

#[test]
fn a_trainer_that_holds_every_batch_is_what_a_rank_waits_for_and_one_that_holds_fewer_is_not() {
    let mut rank = TestRank::attached();
    assert!(rank.core.wait_reason(0).is_up_to_the_home());
    rank.filled(L0, 0, 0, 0);
    rank.filled(L0, 1, 1, 24);
    assert!(rank.core.wait_reason(0).is_up_to_the_home(), "one slot is free");
    rank.filled(L0, 2, 2, 48);
    let wait_reason = rank.core.wait_reason(0);
    assert!(!wait_reason.is_up_to_the_home() && wait_reason.to_string().contains("all 3 slots"), "{wait_reason}");
}

#[test]
fn what_is_waited_for_is_named_from_the_join_to_the_end() {
    let (mut rank, _) = TestRank::new(join_request());
    let text = |rank: &TestRank| rank.core.wait_reason(rank.now_ms).to_string();
    assert!(text(&rank).contains("has not joined at `coord:1`"), "{}", text(&rank));
    rank.joined(session(), None);
    assert!(text(&rank).contains("knows no worker"), "{}", text(&rank));
    rank.wake();
    rank.heard(Some(home(1)));
    assert_eq!(text(&rank), "the home has not answered yet");
    rank.on(SessionEvent::Attached { link: L0, slots: 3 });
    assert!(text(&rank).contains("home `w1` has sent none over the local queue"), "{}", text(&rank));
    rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() });
    assert!(text(&rank).contains("no home serves the rank: home `w1`: killed"), "{}", text(&rank));
    rank.heard(None);
    assert!(
        text(&rank).contains("knows no worker that could serve the rank after it lost home `w1`"),
        "{}",
        text(&rank)
    );
    rank.on(SessionEvent::Close);
    assert_eq!(text(&rank), "the session is over");
}
