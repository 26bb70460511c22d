//! The limits of ranks that the status shows, from the heartbeats of workers and ranks.

use crate::{
    coordinator::{
        Answer, Role, SessionStatus,
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Join, RankHeartbeat, RankStats, Refusal, ToCoordinator, WorkerHeartbeat},
};
use spdl_insight::{Diagnosis, Limit, ReceiveStats, Transport};
use spdl_types::{SessionId, Stage, StageStats};

/// A worker with four cores and a rank, which takes 96 samples a second from it.
struct Pair {
    world: CoordinatorWorld,
    worker: WorkerHeartbeat,
    taken: u64,
    waited_ms: u64,
}

impl Pair {
    fn new() -> Self {
        let mut world = CoordinatorWorld::new();
        let worker = WorkerHeartbeat { stages: vec![StageStats::new(Stage::Decode)], ..worker(1, "node-0") };
        world.worker(worker.clone());
        world.join(join(0, 1, 10));
        Self { world, worker, taken: 0, waited_ms: 0 }
    }

    /// Lets seconds pass. The rank waits for the fraction `waiting` of the time. The decoding threads work for the
    /// fraction `busy` of theirs, and otherwise wait for a slot.
    fn pass(&mut self, seconds: u32, waiting: f64, busy: f64) {
        let ns = |fraction: f64| (4e9 * fraction) as u64;
        for _ in 0..seconds {
            self.world.pass_ms(1_000);
            self.taken += 96;
            self.waited_ms += (1e3 * waiting) as u64;
            let decode = &mut self.worker.stages[0];
            decode.items += 96;
            decode.busy_ns += ns(busy);
            decode.output_wait_ns += ns(1.0 - busy);
            self.worker.uptime_ms += 1_000;
            self.worker.cpu_ns += ns(busy);
            self.world.worker(self.worker.clone());
            let rank = heartbeat(1, 0, 10, self.taken);
            let answer = self.world.heartbeat(RankHeartbeat { waited_ms: self.waited_ms, ..rank });
            assert_eq!(answer, Ok(Some(1)));
        }
    }

    fn session(&self) -> SessionStatus {
        self.world.core.status().sessions[0].clone()
    }

    fn limit(&self) -> Option<Limit> {
        self.session().ranks[0].diagnosis.as_ref().and_then(|diagnosis| diagnosis.limit)
    }
}

#[test]
fn the_status_says_what_limits_a_rank_now_and_not_what_did_before() {
    let mut pair = Pair::new();
    assert_eq!((pair.limit(), pair.session().verdict), (None, None), "nothing was measured yet");
    pair.pass(20, 0.4, 1.0);
    assert_eq!(pair.limit(), Some(Limit::Cpu));
    let verdict = pair.session().verdict.unwrap();
    let expected = "rank 0 waits 40 % of its time: worker `worker-1` is short of CPU (4.0 of its 4.0 cores are busy); 2.7 \
                    more cores would give up to 67 %, then the trainer sets the pace; a larger cache would give nothing";
    assert_eq!(verdict, expected);
    pair.pass(20, 0.0, 0.3);
    assert_eq!(pair.limit(), Some(Limit::Trainer));
    let verdict = pair.session().verdict.unwrap();
    assert!(verdict.starts_with("nothing to gain: ") && verdict.ends_with("; 2.6 cores fewer would do"), "{verdict}");
}

#[test]
fn a_full_core_of_the_receiver_is_named_from_the_heartbeats_of_both_ends() {
    let mut pair = Pair::new();
    let (session, rank, transport) = (SessionId(1), 0, Transport::Quic);
    pair.worker.ranks = vec![RankStats { session, rank, transport, batches: 0, ready: 3, slots: 4, stall: None }];
    for second in 1..=20 {
        pair.world.pass_ms(1_000);
        let (bytes, ns) = (second * 900_000_000, second * 1_000_000_000);
        let send = StageStats { items: second, bytes, output_wait_ns: ns, ..StageStats::new(Stage::Send) };
        let (uptime_ms, sending_thread_ns) = (second * 1_000, ns / 2);
        pair.world.worker(WorkerHeartbeat { stages: vec![send], uptime_ms, sending_thread_ns, ..pair.worker.clone() });
        let received = ReceiveStats { connections: 1, bytes, thread_ns: ns / 20 * 19 };
        let (waited_ms, transport) = (second * 500, Some(transport));
        let beat = heartbeat(1, 0, 10, 96 * second);
        let beat = RankHeartbeat { waited_ms, transport, received, number: second, ..beat };
        assert_eq!(pair.world.heartbeat(beat), Ok(Some(1)));
    }
    assert_eq!(pair.limit(), Some(Limit::Network));
    let verdict = pair.session().verdict.unwrap();
    let expected = "rank 0 waits 50 % of its time: one core of the receiver is full (1 connection takes 900.0 MB/s from worker `worker-1`); 2 \
                    connections (`SPDL_QUIC=connections=2` for trainer and worker) would give about 1800.0 MB/s, then the trainer sets the pace";
    assert_eq!(verdict, expected);
}

#[test]
fn a_rank_whose_home_is_gone_has_no_worker_and_one_that_is_gone_itself_no_diagnosis() {
    let mut pair = Pair::new();
    pair.pass(20, 0.4, 1.0);
    for _ in 0..10 {
        pair.world.pass_ms(1_000);
        let rank = heartbeat(1, 0, 10, pair.taken);
        assert!(pair.world.heartbeat(rank).is_ok());
    }
    assert_eq!(pair.limit(), Some(Limit::NoWorker));
    assert_eq!(pair.session().verdict.unwrap(), "rank 0 has no home: no worker serves it");
    pair.world.pass_ms(4_000);
    assert_eq!(pair.limit(), Some(Limit::Silent));
    pair.world.pass_ms(7_000);
    let session = pair.session();
    let silent = "nothing was heard of rank 0 for 11 s: its process is stopped, hangs or is cut off";
    assert_eq!((session.ranks[0].is_alive, session.verdict.as_deref()), (false, Some(silent)));
    pair.world.pass_ms(60_000);
    let session = pair.session();
    assert_eq!((session.ranks[0].is_alive, &session.ranks[0].diagnosis, &session.verdict), (false, &None, &None));
}

#[test]
fn a_rank_that_was_superseded_is_told_by_what() {
    let mut pair = Pair::new();
    pair.pass(20, 0.4, 1.0);
    pair.world.join(Join { takeover: true, launch: Some("later".to_owned()), ..join(0, 1, 11) });
    assert_eq!(pair.limit(), Some(Limit::Superseded));
    let verdict = pair.session().verdict.unwrap();
    assert!(
        verdict.starts_with("rank 0 gets no more batches: session 2 (") && verdict.ends_with("its place"),
        "{verdict}"
    );
}

#[test]
fn a_rank_that_asks_gets_the_measurements_of_its_diagnosis() {
    let mut pair = Pair::new();
    let ask = |pair: &mut Pair, session| {
        let request = ToCoordinator::Measurements { session: SessionId(session), rank: 0 };
        match pair.world.send_as(Role::Client, 5, request) {
            Answer::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut pair, 1), FromCoordinator::Measured(None), "nothing was measured yet");
    pair.pass(20, 0.4, 1.0);
    let FromCoordinator::Measured(Some(measured)) = ask(&mut pair, 1) else { panic!("it was measured") };
    let found = Diagnosis::from(*measured);
    assert_eq!(found.limit(), pair.limit());
    assert_eq!(Some(found.verdict()), pair.session().verdict);
    let unknown = Refusal::UnknownSession { session: SessionId(7) };
    assert_eq!(ask(&mut pair, 7), FromCoordinator::Refused(unknown));
}
