//! Tests of the session, event by event.

use crate::messages::{JobNotice, Join, RankHeartbeat, Refusal};
use spdl_types::{SessionId, WorkerId};

use super::{testing::job, *};

mod changes;
mod coordinator;
mod links;

const L0: LinkId = LinkId(0);
const L1: LinkId = LinkId(1);
const L2: LinkId = LinkId(2);

fn session() -> Session {
    Session { id: SessionId(7), job: job(), world: 2, global_batch: 24, start: Position::START }
}

fn home(worker: u64) -> Home {
    Home {
        worker: WorkerId(worker),
        name: format!("w{worker}"),
        node: NodeId("here".into()),
        quic: "127.0.0.1:9000".parse().unwrap(),
        socket: Some(format!("/run/w{worker}.sock")),
    }
}

fn join_request() -> JoinRequest {
    JoinRequest {
        job: "train".into(),
        run: "train".into(),
        rank: 1,
        world: 2,
        global_batch: None,
        epochs: None,
        start: Start::Resume,
        fingerprint: None,
        launch: None,
        takeover: false,
        since_unix_s: 0,
        node: NodeId("here".into()),
        client: "1@here".into(),
        nonce: 42,
        slots: 3,
        transports: AllowedTransports::Auto,
        socket: None,
        coordinators: "coord:1".into(),
    }
}

fn at(offset: u64) -> Position {
    Position::new(0, offset)
}

/// A core with a clock.
struct TestRank {
    core: SessionCore,
    now_ms: u64,
}

impl TestRank {
    fn new(join_request: JoinRequest) -> (Self, Vec<SessionEffect>) {
        let core = SessionCore::new(join_request, Timing { join_timeout_ms: 5000, ..Timing::default() }, 0);
        let mut rank = Self { core, now_ms: 0 };
        let effects = rank.effects();
        (rank, effects)
    }

    /// A rank that has joined and is attached to home 1 on [`L0`].
    fn attached() -> Self {
        let (mut rank, _) = Self::new(join_request());
        rank.joined(session(), Some(home(1)));
        rank.on(SessionEvent::Attached { link: L0, slots: 3 });
        rank
    }

    fn effects(&mut self) -> Vec<SessionEffect> {
        std::iter::from_fn(|| self.core.poll_effect()).collect()
    }

    /// Handles an event, and returns the effects except notes for the log.
    fn on(&mut self, event: SessionEvent) -> Vec<SessionEffect> {
        self.core.handle(self.now_ms, event);
        let mut effects = self.effects();
        effects.retain(|effect| !matches!(effect, SessionEffect::Log(_)));
        effects
    }

    fn answered(&mut self, answer: FromCoordinator) -> Vec<SessionEffect> {
        self.on(SessionEvent::Answered(Box::new(answer)))
    }

    fn joined(&mut self, session: Session, home: Option<Home>) -> Vec<SessionEffect> {
        self.answered(FromCoordinator::Joined {
            session: Box::new(session),
            reason: StartReason::Beginning,
            home,
            heartbeat_ms: 1000,
        })
    }

    fn heard(&mut self, home: Option<Home>) -> Vec<SessionEffect> {
        self.heard_of(home, JobNotice { fingerprint: session().job.fingerprint(), hold: None })
    }

    fn heard_of(&mut self, home: Option<Home>, notice: JobNotice) -> Vec<SessionEffect> {
        self.answered(FromCoordinator::RankAcknowledged { home, heartbeat_ms: 1000, trace: None, notice })
    }

    fn filled(&mut self, link: LinkId, sequence: u64, slot: u32, offset: u64) -> Vec<SessionEffect> {
        self.on(SessionEvent::Filled { link, sequence, slot, from: at(offset), next: at(offset + 24) })
    }

    /// Advances time to the core's next timeout.
    fn wake(&mut self) -> Vec<SessionEffect> {
        self.now_ms = self.now_ms.max(self.core.wake_ms().expect("a live session waits for something"));
        self.core.handle_timeout(self.now_ms);
        self.effects()
    }

    /// Advances time until the core attaches, with no answer to its heartbeats.
    fn wake_until_attach(&mut self) -> SessionEffect {
        for _ in 0..100 {
            for effect in self.wake() {
                match effect {
                    SessionEffect::Ask(_) => drop(self.on(SessionEvent::Unanswered { cause: "away".into() })),
                    effect @ SessionEffect::Attach { .. } => return effect,
                    _ => {}
                }
            }
        }
        panic!("no attach: {}", self.core.wait_reason(self.now_ms));
    }
}

fn attach(link: LinkId, home: Home, way: HomeTransport, offset: u64) -> SessionEffect {
    SessionEffect::Attach { link, home, way, from: at(offset), slots: 3 }
}

fn local(worker: u64) -> HomeTransport {
    HomeTransport::Local { path: format!("/run/w{worker}.sock") }
}

fn join_of(effects: &[SessionEffect]) -> &Join {
    match effects {
        [SessionEffect::Ask(ToCoordinator::Join(join))] => join,
        other => panic!("not a join: {other:?}"),
    }
}

fn heartbeat_of(effects: &[SessionEffect]) -> &RankHeartbeat {
    let heartbeat = effects.iter().find_map(|effect| match effect {
        SessionEffect::Ask(ToCoordinator::RankHeartbeat(heartbeat) | ToCoordinator::RankLeave(heartbeat)) => {
            Some(heartbeat)
        }
        _ => None,
    });
    heartbeat.unwrap_or_else(|| panic!("no heartbeat: {effects:?}"))
}

#[test]
fn a_rank_joins_attaches_and_is_handed_batches_in_order() {
    let (mut rank, effects) = TestRank::new(join_request());
    assert_eq!((join_of(&effects).rank, join_of(&effects).start), (1, Start::Resume));
    let effects = rank.joined(session(), Some(home(1)));
    assert_eq!(
        effects,
        [SessionEffect::Joined(Box::new(session()), StartReason::Beginning), attach(L0, home(1), local(1), 0)]
    );
    assert_eq!(rank.on(SessionEvent::Attached { link: L0, slots: 3 }), []);
    assert_eq!(rank.filled(L0, 0, 0, 0), [SessionEffect::HandOver { link: L0, slot: 0 }]);
    assert_eq!(rank.filled(L0, 2, 2, 48), [], "number 1 is not there yet");
    let both = [SessionEffect::HandOver { link: L0, slot: 1 }, SessionEffect::HandOver { link: L0, slot: 2 }];
    assert_eq!(rank.filled(L0, 1, 1, 24), both);
    assert_eq!(rank.on(SessionEvent::Freed { link: L0, slot: 0 }), [SessionEffect::Free { link: L0, slot: 0 }]);
    assert_eq!(rank.filled(L0, 3, 0, 72), [SessionEffect::HandOver { link: L0, slot: 0 }]);
    assert_eq!(rank.core.received(), Some(at(96)));
}

#[test]
fn a_batch_that_the_trainer_had_is_never_handed_over_again() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.filled(L0, 1, 1, 24);
    rank.on(SessionEvent::LinkLost { link: L0, cause: "reset".into() });
    assert_eq!(rank.filled(L0, 2, 2, 48), [SessionEffect::Discard { link: L0, slot: 2 }], "its link has ended");
    assert_eq!(rank.wake_until_attach(), attach(L1, home(1), local(1), 48));
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(rank.filled(L1, 0, 0, 24), [SessionEffect::Discard { link: L1, slot: 0 }], "the home began too early");
    assert_eq!(rank.on(SessionEvent::Freed { link: L1, slot: 0 }), [SessionEffect::Free { link: L1, slot: 0 }]);
    assert_eq!(rank.filled(L1, 1, 1, 48), [SessionEffect::HandOver { link: L1, slot: 1 }]);
}

#[test]
fn a_home_that_leaves_a_batch_out_or_cuts_it_elsewhere_is_left() {
    for (from, next) in [(24, 48), (12, 36), (96, 120), (0, 0)] {
        let mut rank = TestRank::attached();
        let [from, next] = [at(from), at(next)];
        let effects = rank.on(SessionEvent::Filled { link: L0, sequence: 0, slot: 0, from, next });
        if next == at(0) {
            assert_eq!(effects, [SessionEffect::Discard { link: L0, slot: 0 }]);
            continue;
        }
        assert_eq!(effects[0], SessionEffect::Detach { link: L0 }, "{from} to {next}");
        assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)));
        assert_eq!(rank.core.received(), Some(at(0)));
    }
}

#[test]
fn what_came_before_a_wrong_batch_is_still_handed_over() {
    let mut rank = TestRank::attached();
    assert_eq!(rank.on(SessionEvent::Filled { link: L0, sequence: 1, slot: 1, from: at(72), next: at(96) }), []);
    let effects = rank.filled(L0, 0, 0, 0);
    assert_eq!(effects[..2], [SessionEffect::HandOver { link: L0, slot: 0 }, SessionEffect::Detach { link: L0 }]);
    assert_eq!(rank.core.received(), Some(at(24)));
}

#[test]
fn a_home_that_fills_a_slot_that_is_not_free_or_repeats_a_number_is_left() {
    for (sequence, slot) in [(1, 0), (1, 3), (0, 1), (9, 1)] {
        let mut rank = TestRank::attached();
        rank.filled(L0, 0, 0, 0);
        let effects = rank.filled(L0, sequence, slot, 24);
        assert_eq!(effects[0], SessionEffect::Detach { link: L0 }, "number {sequence} in slot {slot}");
    }
}

#[test]
fn an_epoch_that_drops_its_rest_goes_over_into_the_next() {
    let mut rank = TestRank::attached();
    for step in 0..4 {
        rank.filled(L0, step, (step % 3) as u32, step * 24);
        rank.on(SessionEvent::Freed { link: L0, slot: (step % 3) as u32 });
    }
    let (from, next) = (Position::new(1, 0), Position::new(1, 24));
    let effects = rank.on(SessionEvent::Filled { link: L0, sequence: 4, slot: 0, from, next });
    assert_eq!(effects, [SessionEffect::HandOver { link: L0, slot: 0 }]);
}

#[test]
fn the_end_comes_after_the_last_batch_and_not_before() {
    let mut early = TestRank::attached();
    early.filled(L0, 0, 0, 0);
    let effects = early.on(SessionEvent::End { link: L0, sequence: 1, position: Position::new(2, 0) });
    assert_eq!(effects[0], SessionEffect::Detach { link: L0 }, "seven batches are missing");

    let start = Position::new(1, 72);
    let (mut rank, _) = TestRank::new(JoinRequest { start: Start::At(start), ..join_request() });
    rank.joined(Session { start, ..session() }, Some(home(1)));
    rank.on(SessionEvent::Attached { link: L0, slots: 3 });
    assert_eq!(
        rank.on(SessionEvent::End { link: L0, sequence: 1, position: Position::new(2, 0) }),
        [],
        "number 0 is missing"
    );
    let next = Position::new(1, 96);
    let effects = rank.on(SessionEvent::Filled { link: L0, sequence: 0, slot: 0, from: start, next });
    let position = Position::new(2, 0);
    let expected = [
        SessionEffect::HandOver { link: L0, slot: 0 },
        SessionEffect::Detach { link: L0 },
        SessionEffect::End { position },
    ];
    assert_eq!(effects, expected);
    let progress = Progress { position, receipt: Receipt(9), waited_ms: 3 };
    rank.on(SessionEvent::Delivered(progress));
    let effects = rank.wake();
    assert_eq!(heartbeat_of(&effects).acknowledged, position, "heartbeats go on, so that the end is known");
}

#[test]
fn a_lost_home_is_reported_at_once_and_the_next_one_goes_on_at_the_same_position() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    let effects = rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() });
    assert_eq!(effects[0], SessionEffect::Detach { link: L0 });
    assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)));
    assert_eq!(heartbeat_of(&effects).transport, None);
    let elsewhere = Home { node: NodeId("there".into()), ..home(2) };
    assert_eq!(rank.heard(Some(elsewhere.clone())), [attach(L1, elsewhere, HomeTransport::Quic, 24)]);
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    let effects = rank.wake();
    assert_eq!(heartbeat_of(&effects).unreachable, None);
    assert_eq!(heartbeat_of(&effects).transport, Some(Transport::Quic));
}

#[test]
fn the_last_home_is_tried_again_while_the_coordinator_is_away() {
    let mut rank = TestRank::attached();
    rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() });
    rank.on(SessionEvent::Unanswered { cause: "refused".into() });
    let first = rank.wake_until_attach();
    assert_eq!(first, attach(L1, home(1), local(1), 0));
    assert!(rank.core.wake_ms().is_some());
}

#[test]
fn pauses_between_attempts_grow_and_stay_below_the_limit() {
    let (core, _) = TestRank::new(join_request());
    let pauses: Vec<u64> = (1..12).map(|failures| core.core.backoff_ms(failures)).collect();
    for (failures, pause) in (1_u32..).zip(&pauses) {
        let whole = (50 << (failures - 1)).min(2_000);
        assert!((whole / 2..=whole).contains(pause), "number {failures} of {pauses:?}");
    }
    let others: Vec<u64> =
        (0..50).map(|nonce| TestRank::new(JoinRequest { nonce, ..join_request() }).0.core.backoff_ms(11)).collect();
    let (least, most) = (others.iter().min().unwrap(), others.iter().max().unwrap());
    assert!(most - least > 500, "ranks that failed together do not come back together: {others:?}");
}

#[test]
fn a_batch_ends_a_row_of_failures() {
    let mut rank = TestRank::attached();
    for _ in 0..5 {
        let link = rank.core.attached_link().unwrap();
        rank.on(SessionEvent::LinkLost { link, cause: "reset".into() });
        rank.on(SessionEvent::Unanswered { cause: "away".into() });
        rank.wake_until_attach();
        rank.on(SessionEvent::Attached { link: LinkId(link.0 + 1), slots: 3 });
    }
    assert_eq!(rank.core.link.failures, 5, "attaching alone proves nothing");
    let link = rank.core.attached_link().unwrap();
    rank.filled(link, 0, 0, 0);
    assert_eq!(rank.core.link.failures, 0);
}

#[test]
fn a_socket_that_cannot_be_reached_makes_way_for_quic() {
    let (mut rank, _) = TestRank::new(join_request());
    rank.joined(session(), Some(home(1)));
    let effects = rank.on(SessionEvent::LinkLost { link: L0, cause: "no such file".into() });
    assert_eq!(effects, [SessionEffect::Detach { link: L0 }, attach(L1, home(1), HomeTransport::Quic, 0)]);
    let effects = rank.on(SessionEvent::LinkLost { link: L1, cause: "refused".into() });
    assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)), "both ways have failed");
    rank.on(SessionEvent::Unanswered { cause: "away".into() });
    assert_eq!(rank.wake_until_attach(), attach(L2, home(1), local(1), 0));
}

#[test]
fn the_way_follows_node_setting_and_socket() {
    let far = Home { node: NodeId("there".into()), ..home(1) };
    let none = Home { socket: None, ..home(1) };
    let mounted = JoinRequest { socket: Some("/pod/w.sock".into()), ..join_request() };
    for (join_request, home, way) in [
        (join_request(), home(1), local(1)),
        (join_request(), far.clone(), HomeTransport::Quic),
        (join_request(), none.clone(), HomeTransport::Quic),
        (JoinRequest { transports: AllowedTransports::Quic, ..join_request() }, home(1), HomeTransport::Quic),
        (mounted.clone(), home(1), HomeTransport::Local { path: "/pod/w.sock".into() }),
        (mounted.clone(), none, HomeTransport::Local { path: "/pod/w.sock".into() }),
        (mounted, far.clone(), HomeTransport::Quic),
    ] {
        let (mut rank, _) = TestRank::new(join_request);
        let effects = rank.joined(session(), Some(home.clone()));
        assert_eq!(effects[1], attach(L0, home, way, 0));
    }
    let (mut rank, _) = TestRank::new(JoinRequest { transports: AllowedTransports::Local, ..join_request() });
    let effects = rank.joined(session(), Some(far));
    assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)));
    assert!(rank.core.wait_reason(0).to_string().contains("node `there`"), "{}", rank.core.wait_reason(0));
}

#[test]
fn a_home_that_is_going_away_serves_until_there_is_another() {
    let mut rank = TestRank::attached();
    let effects = rank.on(SessionEvent::Leaving { link: L0 });
    assert_eq!(heartbeat_of(&effects).unreachable, Some(WorkerId(1)));
    assert_eq!(rank.filled(L0, 0, 0, 0), [SessionEffect::HandOver { link: L0, slot: 0 }]);
    assert_eq!(rank.heard(Some(home(1))), [], "there is no other yet");
    assert!(!rank.wake().is_empty());
    assert_eq!(rank.heard(Some(home(2))), [SessionEffect::Detach { link: L0 }, attach(L1, home(2), local(2), 24)]);
}

#[test]
fn a_silent_home_is_left_when_its_time_is_up() {
    let (mut rank, _) = TestRank::new(JoinRequest { transports: AllowedTransports::Quic, ..join_request() });
    rank.joined(session(), Some(home(1)));
    rank.now_ms = 9_999;
    rank.core.handle_timeout(rank.now_ms);
    assert!(!rank.effects().contains(&SessionEffect::Detach { link: L0 }));
    rank.heard(Some(home(1)));
    rank.now_ms = 10_000;
    rank.core.handle_timeout(rank.now_ms);
    let effects = rank.effects();
    assert!(effects.contains(&SessionEffect::Detach { link: L0 }), "{effects:?}");
    assert!(rank.core.wait_reason(rank.now_ms).to_string().contains("10000 ms"));
}

#[test]
fn a_fault_that_another_home_may_not_have_is_not_the_end() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    let fault = |is_retryable| SessionEvent::Fault { link: L0, message: "disk on fire".into(), is_retryable };
    let effects = rank.on(fault(true));
    assert_eq!(effects[0], SessionEffect::Detach { link: L0 });
    assert!(rank.core.wait_reason(0).to_string().contains("disk on fire"));

    let mut rank = TestRank::attached();
    let error = RankError::Fault { home: "w1".into(), message: "disk on fire".into() };
    assert_eq!(rank.on(fault(false)), [SessionEffect::Detach { link: L0 }, SessionEffect::Fail(error)]);
    assert_eq!(rank.core.wake_ms(), None);
}

#[test]
fn slots_left_behind_hold_up_the_next_attach_until_one_is_freed() {
    let mut rank = TestRank::attached();
    for step in 0..3 {
        rank.filled(L0, step, step as u32, step * 24);
    }
    assert!(rank.core.wait_reason(0).to_string().contains("all 3 slots"));
    rank.on(SessionEvent::LinkLost { link: L0, cause: "killed".into() });
    assert_eq!(rank.heard(Some(home(2))), []);
    assert_eq!(rank.core.slots_held(), 3);
    assert!(rank.core.wait_reason(0).to_string().contains("all 3 slots"));
    assert_eq!(rank.on(SessionEvent::Freed { link: L0, slot: 1 }), [attach(L1, home(2), local(2), 72)]);
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(rank.on(SessionEvent::Freed { link: L0, slot: 0 }), [], "its home has ended");
    assert_eq!(rank.core.slots_held(), 1);
}

#[test]
fn a_stream_that_is_restarted_comes_again_over_a_new_link_of_the_same_session() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    let again = SessionEvent::Restart { from: Position::START };
    let effects = rank.on(again.clone());
    assert_eq!(effects, [SessionEffect::Detach { link: L0 }, attach(L1, home(1), local(1), 0)]);
    assert_eq!(rank.filled(L0, 1, 1, 24), [SessionEffect::Discard { link: L0, slot: 1 }], "it is of the stream before");
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    assert_eq!(rank.filled(L1, 0, 0, 0), [SessionEffect::HandOver { link: L1, slot: 0 }]);

    let start = Position::new(1, 96);
    let (mut rank, _) = TestRank::new(JoinRequest { start: Start::At(start), ..join_request() });
    rank.joined(Session { start, ..session() }, Some(home(1)));
    rank.on(SessionEvent::Attached { link: L0, slots: 3 });
    let end = rank.on(SessionEvent::End { link: L0, sequence: 0, position: Position::new(2, 0) });
    assert_eq!(end.last(), Some(&SessionEffect::End { position: Position::new(2, 0) }));
    assert_eq!(rank.on(again), [attach(L1, home(1), local(1), 0)], "after its end as well");
}

#[test]
fn a_stream_that_is_restarted_is_acknowledged_anew_from_its_beginning() {
    let mut rank = TestRank::attached();
    rank.filled(L0, 0, 0, 0);
    rank.on(SessionEvent::Delivered(Progress { position: at(24), receipt: Receipt(5), waited_ms: 8 }));
    rank.on(SessionEvent::Restart { from: Position::START });
    rank.on(SessionEvent::Attached { link: L1, slots: 3 });
    let effects = rank.wake();
    let heartbeat = heartbeat_of(&effects);
    assert_eq!(
        (heartbeat.acknowledged, heartbeat.receipt, heartbeat.waited_ms),
        (Position::START, Receipt::default(), 8)
    );
}

#[test]
fn a_rank_that_restarts_before_it_has_joined_begins_where_the_session_does() {
    let (mut rank, _) = TestRank::new(join_request());
    assert_eq!(rank.on(SessionEvent::Restart { from: Position::START }), []);
    let effects = rank.joined(session(), Some(home(1)));
    assert_eq!(
        effects,
        [SessionEffect::Joined(Box::new(session()), StartReason::Beginning), attach(L0, home(1), local(1), 0)]
    );
}
