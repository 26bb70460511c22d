//! A coordinator's process with peers over QUIC: a connection for each worker and each rank, all of them from this process, which
//! sends what workers and trainers send. Both share the cores of this machine.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use spdl_control::{
    coordinator::testing::{heartbeat, join},
    coordinators::LeaderDiscovery,
    messages::{FromCoordinator, Join, RankHeartbeat, RankStats, Refusal, ToCoordinator},
};
use spdl_insight::Transport;
use spdl_testkit::processes::{Cluster, TestDataset, cpu_time, resident_bytes};
use spdl_types::{NodeId, Position};
use spdl_wire::{
    certs::Identity,
    coordinators::CoordinatorClient,
    quic::{self, CONNECT_TIMEOUT, QuicSettings, REQUEST_TIMEOUT},
};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::coordinator::{RANKS_PER_WORKER, node, worker_heartbeat};

/// Ranks of one job.
pub(crate) const RANKS: [u32; 4] = [8, 64, 512, 2_000];
const PERIOD: Duration = Duration::from_secs(1);
/// The time of heartbeats from all peers: first those that are not measured, then those that are.
const WARM: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(10);
/// Peers with one address: a coordinator admits no more than 1,024 connections from one.
const PER_ADDRESS: usize = 500;
/// The time within which all peers must have joined.
const TIMEOUT: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(200);
const JOB: &str = "job";

/// The state that all peers share.
#[derive(Default)]
struct Known {
    /// Workers and ranks that have got their first answer.
    present: AtomicU64,
    beats: AtomicU64,
    /// The ranks of each worker.
    served: Mutex<BTreeMap<u64, Vec<RankStats>>>,
}

/// A peer, and what it sends each second.
struct Peer {
    client: CoordinatorClient,
    known: Arc<Known>,
    says: ToCoordinator,
}

impl Peer {
    /// Joins if it is a rank, and then sends heartbeats for ever.
    async fn run(mut self) {
        self.beat().await;
        self.known.present.fetch_add(1, Relaxed);
        let mut clock = tokio::time::interval(PERIOD);
        loop {
            clock.tick().await;
            self.beat().await;
            self.known.beats.fetch_add(1, Relaxed);
        }
    }

    /// Sends the message of this peer, and updates it from the answer and from the changes since.
    async fn beat(&mut self) {
        let answer = loop {
            match self.client.ask(&self.says, REQUEST_TIMEOUT).await {
                // The run is in use while heartbeats of ranks that have joined are late, because all share two cores. A
                // trainer asks again, too.
                Ok(FromCoordinator::Refused(Refusal::RunInUse { .. })) => {}
                Err(error) if error.is_retryable() => {}
                Ok(FromCoordinator::Refused(refusal)) => panic!("{refusal}"),
                Ok(answer) => break answer,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(AGAIN).await;
        };
        match (&mut self.says, answer) {
            (ToCoordinator::WorkerHeartbeat(says), FromCoordinator::WorkerAcknowledged { peers, .. }) => {
                says.peer_map = peers.map_or(says.peer_map, |map| map.version);
                says.uptime_ms += 1_000;
                for stage in &mut says.stages {
                    (stage.items, stage.busy_ns) = (stage.items + 100, stage.busy_ns + 1);
                }
                says.ranks = self
                    .known
                    .served
                    .lock()
                    .expect("no peer has panicked")
                    .get(&says.home.worker.0)
                    .cloned()
                    .unwrap_or_default();
            }
            (ToCoordinator::Join(says), FromCoordinator::Joined { session, home, .. }) => {
                let (rank, transport) = (says.rank, Transport::Local);
                let stats =
                    RankStats { session: session.id, rank, transport, batches: 0, ready: 1, slots: 4, stall: None };
                let worker = home.expect("there are workers").worker.0;
                self.known.served.lock().expect("no peer has panicked").entry(worker).or_default().push(stats);
                let says = heartbeat(session.id.0, rank, says.nonce, 0);
                let fingerprint = session.job.fingerprint();
                self.says = ToCoordinator::RankHeartbeat(RankHeartbeat { job: JOB.to_owned(), fingerprint, ..says });
            }
            (ToCoordinator::RankHeartbeat(says), FromCoordinator::RankAcknowledged { home, .. }) => {
                assert!(home.is_some(), "rank {} has no home", says.rank);
                says.acknowledged = Position::new(says.acknowledged.epoch + 1, 0);
            }
            (says, answer) => panic!("{says:?} was answered by {answer:?}"),
        }
    }
}

/// CPU time of the coordinator and of this process.
fn cpu_s(coordinator: u32) -> [f64; 2] {
    [coordinator, std::process::id()].map(|pid| cpu_time(pid).as_secs_f64())
}

/// Measures a cluster of one job with so many ranks.
pub(crate) fn run(ranks: u32) -> Value {
    let runtime = Runtime::new().expect("a runtime");
    let cluster = Cluster::start(0);
    let records = (0..ranks.max(64)).map(|number| (vec![0], (number % 10).to_string()));
    let dataset = TestDataset::of_records(records);
    let file = dataset.path("job.toml");
    let text = format!(
        "name = \"{JOB}\"\ndataset = {:?}\nseed = 5\nglobal_batch = {ranks}\nepochs = 1000000\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n",
        dataset.path("dataset")
    );
    fs::write(&file, text).expect("a job file is written");
    cluster.submit(&file);
    runtime.block_on(measure(&cluster, ranks))
}

async fn measure(cluster: &Cluster, ranks: u32) -> Value {
    let process = cluster.coordinator.as_ref().expect("it runs").pid();
    let workers = ranks.div_ceil(RANKS_PER_WORKER);
    let peers = f64::from(ranks + workers);
    let resident = || [process, std::process::id()].map(|pid| resident_bytes(pid) as f64);
    let (idle_bytes, known, mut tasks) = (resident(), Arc::<Known>::default(), JoinSet::new());
    let (started, before) = (Instant::now(), cpu_s(process));

    let worker = |id: u64| ToCoordinator::WorkerHeartbeat(worker_heartbeat(id));
    let rank = |rank: u32| {
        let node = NodeId(node(u64::from(rank / RANKS_PER_WORKER)));
        let (job, run) = (JOB.to_owned(), JOB.to_owned());
        ToCoordinator::Join(Join { job, run, node, ..join(rank, ranks, u64::from(rank) + 1) })
    };
    let of_workers = (0..u64::from(workers)).map(worker).collect();
    let of_ranks = (0..ranks).map(rank).collect();
    let all: [(&str, u32, Vec<ToCoordinator>); 2] =
        [("worker", workers, of_workers), ("client", workers + ranks, of_ranks)];
    for (role, count, says) in all {
        let identity = Identity::load(&cluster.certs(role)).expect("a certificate");
        for (number, says) in (1..).zip(says.chunks(PER_ADDRESS)) {
            let address = SocketAddr::from(([127, 0, number, 1], 0));
            let endpoint = quic::server_endpoint(address, &identity, &QuicSettings::default()).expect("a socket");
            for says in says {
                let discovery = LeaderDiscovery::new(cluster.address.parse().expect("an address"));
                let client = CoordinatorClient::new(endpoint.clone(), discovery, CONNECT_TIMEOUT);
                let peer = Peer { client, says: says.clone(), known: known.clone() };
                tasks.spawn(peer.run());
            }
        }
        let present = tokio::time::timeout(TIMEOUT, until_present(&mut tasks, &known, count));
        present.await.expect("all peers are admitted");
    }

    let (joined_s, after) = (started.elapsed().as_secs_f64(), cpu_s(process));
    let join_ms = [0, 1].map(|side| (after[side] - before[side]) * 1e3 / peers);
    let beats = || known.beats.load(Relaxed) as f64;
    sleep_beside(&mut tasks, WARM).await;
    let (cpu, count, since) = (cpu_s(process), beats(), Instant::now());
    sleep_beside(&mut tasks, MEASURED).await;
    let (count, seconds, until) = (beats() - count, since.elapsed().as_secs_f64(), cpu_s(process));
    let used_s = [0, 1].map(|side| until[side] - cpu[side]);
    let bytes = resident();
    let each_kb = [0, 1].map(|side| (bytes[side] - idle_bytes[side]) / 1e3 / peers);
    json!({
        "ranks": ranks, "workers": workers, "joined_s": joined_s,
        "join_coordinator_ms": join_ms[0], "join_peer_ms": join_ms[1],
        "beat_coordinator_us": used_s[0] * 1e6 / count, "beat_peer_us": used_s[1] * 1e6 / count,
        "coordinator_cores": used_s[0] / seconds, "beats_per_s": count / seconds,
        "coordinator_mb": bytes[0] / 1e6, "connection_kb": each_kb[0], "peer_kb": each_kb[1],
    })
}

async fn until_present(tasks: &mut JoinSet<()>, known: &Known, count: u32) {
    while known.present.load(Relaxed) < u64::from(count) {
        sleep_beside(tasks, Duration::from_millis(5)).await;
    }
}

/// Waits; a peer that ends was refused or lost its coordinator.
async fn sleep_beside(tasks: &mut JoinSet<()>, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        Some(ended) = tasks.join_next() => panic!("{ended:?}"),
    }
}
