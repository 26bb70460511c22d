//! The coordinator's state machine with many ranks, workers and jobs, driven as its process drives it, without network and disk.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spdl_control::{
    Role,
    coordinator::{
        Answer, Change, ConnectionId, CoordinatorConfig, CoordinatorCore, Durability, Effect, MemoryState,
        NearestThenLeastLoaded, RequestPeer, SessionRecord,
        testing::{heartbeat, job, join, worker},
    },
    messages::{FromCoordinator, Join, RankHeartbeat, RankStats, ToCoordinator, WorkerHeartbeat},
};
use spdl_insight::Transport;
use spdl_types::{Fingerprint, NodeId, Position, SessionId, Stage, StageStats};

use crate::cost::{Cost, measure, resident_bytes};

/// Ranks on each node.
pub(crate) const RANKS_PER_WORKER: u32 = 8;
/// Seconds of heartbeats from all peers: first those that are not measured, longer than the time until homes are
/// compared, then those that are.
const WARM_S: u64 = 6;
const MEASURED_S: u64 = 10;
const TICKS_PER_S: u64 = 5;

/// The numbers of ranks, workers and jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) ranks: u32,
    pub(crate) workers: u32,
    pub(crate) jobs: u32,
}

impl Size {
    /// From one rank to 8,000 on 1,000 workers, in one job and in up to 100.
    pub(crate) const ALL: [Self; 9] = {
        const fn of(ranks: u32, jobs: u32) -> Size {
            let workers = ranks.div_ceil(RANKS_PER_WORKER);
            Size { ranks, workers, jobs }
        }
        [
            of(1, 1),
            of(8, 1),
            of(64, 1),
            of(512, 1),
            of(512, 6),
            of(2_000, 1),
            of(2_000, 25),
            of(8_000, 1),
            of(8_000, 100),
        ]
    };
}

/// A coordinator with its durable state, and the messages of its peers.
struct Cluster {
    size: Size,
    core: CoordinatorCore,
    durability: Durability,
    state: MemoryState,
    now_ms: u64,
    /// The records that were to be written last.
    written: BTreeMap<SessionId, SessionRecord>,
    peers: Vec<(RequestPeer, WorkerHeartbeat)>,
    ranks: Vec<Rank>,
}

struct Rank {
    job: String,
    rank: u32,
    session: u64,
    nonce: u64,
    fingerprint: Fingerprint,
    has_home: bool,
}

impl Cluster {
    fn start(size: Size) -> Self {
        let state = MemoryState::default();
        let core = core(&state, 0);
        let (durability, written) = (Durability::new(false), BTreeMap::new());
        let mut cluster =
            Self { size, core, durability, state, now_ms: 0, written, peers: Vec::new(), ranks: Vec::new() };
        for number in 0..size.jobs {
            let job = spdl_job::Job {
                samples: 1 << 40,
                global_batch: 16_384,
                order: spdl_order::OrderParams { window: 1 << 20, ..job("j").order },
                ..job(&format!("job-{number}"))
            };
            assert_eq!(cluster.core.handle_job(0, Ok(job)), FromCoordinator::Done);
        }
        cluster.carry_out();
        cluster
    }

    fn send(&mut self, peer: &RequestPeer, request: ToCoordinator) -> FromCoordinator {
        let terms =
            self.durability.terms(&mut self.core, self.now_ms, &request, None).expect("the state can be written");
        let Answer::Reply(reply) = self.core.handle_request(self.now_ms, peer, request) else { panic!("no reply") };
        self.carry_out();
        self.durability.answer(&terms, Ok(()), reply)
    }

    /// Keeps the changes until the next write, as the process does.
    fn carry_out(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                // A thread of the process writes, for each session, only the last of the records that came meanwhile.
                Effect::Persist(Change::PutSession(record)) => drop(self.written.insert(record.id, record)),
                Effect::Persist(change) => self.state.apply(&[change]),
                Effect::Log(_) => {}
            }
        }
    }

    fn write(&mut self) {
        let changes: Vec<Change> = std::mem::take(&mut self.written).into_values().map(Change::PutSession).collect();
        self.state.apply(&changes);
    }

    fn workers(&mut self) {
        for id in 0..u64::from(self.size.workers) {
            let peer = RequestPeer { connection: ConnectionId(id), role: Role::Worker, name: "worker".to_owned() };
            self.peers.push((peer, worker_heartbeat(id)));
        }
        self.worker_heartbeats();
    }

    fn worker_heartbeats(&mut self) {
        for at in 0..self.peers.len() {
            let (peer, sent) = &mut self.peers[at];
            sent.uptime_ms += 1_000;
            sent.stages
                .iter_mut()
                .for_each(|stage| (stage.items, stage.busy_ns) = (stage.items + 100, stage.busy_ns + 1));
            let (peer, request) = (peer.clone(), ToCoordinator::WorkerHeartbeat(sent.clone()));
            let FromCoordinator::WorkerAcknowledged { peers, .. } = self.send(&peer, request) else {
                panic!("a worker was refused")
            };
            if let Some(map) = peers {
                self.peers[at].1.peer_map = map.version;
            }
        }
    }

    /// All ranks of all jobs join, as at a launch: in turn, job after job.
    fn joins(&mut self) {
        let Size { ranks, jobs, .. } = self.size;
        let world = ranks / jobs;
        for number in 0..world * jobs {
            let (rank, job) = (number / jobs, format!("job-{}", number % jobs));
            let nonce = u64::from(number) + 1;
            let sent = Join {
                job: job.clone(),
                run: job.clone(),
                node: NodeId(node(u64::from(number / RANKS_PER_WORKER))),
                ..join(rank, world, nonce)
            };
            let FromCoordinator::Joined { session, home, .. } = self.send(&client(), ToCoordinator::Join(sent)) else {
                panic!("rank {rank} did not join")
            };
            // All jobs are the same but for their names.
            let fingerprint = self.ranks.first().map_or_else(|| session.job.fingerprint(), |rank| rank.fingerprint);
            let (session, has_home) = (session.id.0, home.is_some());
            if let Some(home) = home {
                let served = RankStats {
                    session: SessionId(session),
                    rank,
                    transport: Transport::Local,
                    batches: 0,
                    ready: 1,
                    slots: 4,
                    stall: None,
                };
                self.peers[home.worker.0 as usize].1.ranks.push(served);
            }
            self.ranks.push(Rank { job, rank, session, nonce, fingerprint, has_home });
        }
    }

    fn rank_heartbeats(&mut self) {
        let peer = client();
        for at in 0..self.ranks.len() {
            let Rank { job, rank, session, nonce, fingerprint, .. } = &self.ranks[at];
            let sent = RankHeartbeat {
                job: job.clone(),
                fingerprint: *fingerprint,
                acknowledged: Position::new(0, self.now_ms / 1_000 * 16_384),
                ..heartbeat(*session, *rank, *nonce, 0)
            };
            let FromCoordinator::RankAcknowledged { home, .. } = self.send(&peer, ToCoordinator::RankHeartbeat(sent))
            else {
                panic!("a rank was refused")
            };
            self.ranks[at].has_home = home.is_some();
        }
    }

    fn ticks(&mut self) {
        for _ in 0..TICKS_PER_S {
            self.now_ms += 1_000 / TICKS_PER_S;
            self.core.handle_tick(self.now_ms);
            self.carry_out();
        }
    }

    /// Starts a new coordinator from the state, and sends the first heartbeats of all to it.
    fn restart(&mut self) {
        self.core.flush();
        self.carry_out();
        self.write();
        self.core = core(&self.state, self.now_ms);
        self.worker_heartbeats();
        self.rank_heartbeats();
    }
}

fn core(state: &MemoryState, now_ms: u64) -> CoordinatorCore {
    CoordinatorCore::new(CoordinatorConfig::default(), Box::new(NearestThenLeastLoaded), state.durable(), now_ms)
}

fn client() -> RequestPeer {
    RequestPeer { connection: ConnectionId(1 << 40), role: Role::Client, name: "trainer".to_owned() }
}

/// Returns the first heartbeat of a worker without ranks.
pub(crate) fn worker_heartbeat(id: u64) -> WorkerHeartbeat {
    let mut says = WorkerHeartbeat { cores: 16.0, ..worker(id, &node(id)) };
    says.home.socket = Some("/run/spdl/worker.sock".to_owned());
    says.stages = [Stage::Fetch, Stage::Decode, Stage::HandOver, Stage::Send].map(StageStats::new).into();
    says
}

pub(crate) fn node(number: u64) -> String {
    format!("3f2504e0-4f89-41d3-9a0c-{number:012}")
}

/// Measures a coordinator of one size.
pub(crate) fn run(size: Size) -> Value {
    let before = resident_bytes();
    let mut cluster = Cluster::start(size);
    let first_workers = measure(|| cluster.workers());
    let joins = measure(|| cluster.joins());
    cluster.ticks();
    let maps = measure(|| cluster.worker_heartbeats());
    let (mut workers, mut ranks, mut ticks) = (Cost::default(), Cost::default(), Cost::default());
    for second in 0..WARM_S + MEASURED_S {
        let costs = [
            measure(|| cluster.ticks()),
            measure(|| cluster.worker_heartbeats()),
            measure(|| cluster.rank_heartbeats()),
        ];
        if second >= WARM_S {
            ticks += costs[0];
            workers += costs[1];
            ranks += costs[2];
        }
    }
    let resident = resident_bytes() - before;
    let mut bytes = 0;
    let status = measure(|| bytes = cluster.core.status().to_json().len());
    let restart = measure(|| cluster.restart());
    assert!(cluster.ranks.iter().all(|rank| rank.has_home), "every rank has a home again");
    // Before the next launch the worker's ranks look for other homes, on nodes that are not theirs.
    let lost = cluster.peers.pop().expect("there is a worker").0;
    let loss = measure(|| {
        cluster.core.handle_closed(cluster.now_ms, lost.connection);
        cluster.rank_heartbeats();
    });
    let seconds = MEASURED_S as f64;
    let each = |cost: Cost, count: u32| cost.cpu_s * 1e6 / f64::from(count.max(1));
    json!({
        "ranks": size.ranks, "workers": size.workers, "jobs": size.jobs,
        "join_us": each(joins, size.ranks), "joins_s": joins.cpu_s,
        "first_worker_heartbeat_us": each(first_workers, size.workers),
        "heartbeat_with_map_us": each(maps, size.workers),
        "rank_heartbeat_us": each(ranks, size.ranks) / seconds,
        "worker_heartbeat_us": each(workers, size.workers) / seconds,
        "tick_us": each(ticks, TICKS_PER_S as u32) / seconds,
        "cpu_per_s": (ranks.cpu_s + workers.cpu_s + ticks.cpu_s) / seconds,
        "status_ms": status.cpu_s * 1e3, "status_mb": bytes as f64 / 1e6,
        "restart_s": restart.cpu_s, "loss_s": loss.cpu_s,
        "resident_mb": resident as f64 / 1e6,
    })
}
