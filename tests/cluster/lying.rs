//! A worker that lies to another one about blocks: nothing of it reaches a batch, and the log names it. The liar is this process, with a
//! certificate of the cluster; coordinator, the other worker and the rank are real processes.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use quinn::{Connection, Endpoint};
use spdl_control::{
    Role,
    messages::{FromCoordinator, Home, Join, PeerRequest, Start, ToCoordinator, WorkerHeartbeat},
    peers::{BlockReply, BlockRequest},
};
use spdl_testkit::processes::{Cluster, LIMIT, ServerProcess, program};
use spdl_types::{NodeId, WorkerId};
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    frame::FrameError,
    quic::{self, PeerStream, QuicSettings},
};

use super::peers::{BATCH, RECORDS, StoredRecords};

/// So many that the lanes are not whole ranks: rank 0 reads blocks of others, too.
const WORLD: u32 = 3;

/// What the liar sends in place of a block.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// The block.
    None,
    WrongBytes,
    AnotherBlock,
    TooFewBytes,
    TooManyBytes,
    Nothing,
}

/// A worker of node `node-1` that has the blocks of one shard, and lies about them.
#[derive(Clone)]
struct Liar {
    lie: Lie,
    shard: Arc<Vec<u8>>,
    /// How often it was asked.
    asked: Arc<AtomicU64>,
}

impl Liar {
    async fn serve(self, endpoint: Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let liar = self.clone();
            tokio::spawn(async move {
                if let Ok((connection, _)) = quic::handshake(incoming, &[Role::Worker], LIMIT).await {
                    quic::serve_peer(connection, move |request, stream| liar.clone().answer(request, stream)).await;
                }
            });
        }
    }

    async fn answer(self, request: PeerRequest, stream: PeerStream) -> Result<(), FrameError> {
        let PeerRequest::Block(BlockRequest { wanted, .. }) = request else { return Ok(()) };
        self.asked.fetch_add(1, Relaxed);
        let ranges = wanted.iter().map(|range| range.start as usize..range.end as usize);
        let mut bytes: Vec<u8> = match self.lie {
            // The bytes after each range, or the first ones of the shard.
            Lie::AnotherBlock => ranges
                .flat_map(|range| {
                    let bytes = range.len();
                    let start = if range.end + bytes <= self.shard.len() { range.end } else { 0 };
                    self.shard[start..start + bytes].to_vec()
                })
                .collect(),
            _ => ranges.flat_map(|range| self.shard[range].to_vec()).collect(),
        };
        match self.lie {
            Lie::WrongBytes => bytes.iter_mut().for_each(|byte| *byte ^= 1),
            Lie::None | Lie::AnotherBlock => {}
            Lie::TooFewBytes => bytes.truncate(bytes.len() / 2),
            Lie::TooManyBytes => bytes.push(0),
            Lie::Nothing => std::future::pending().await,
        }
        stream.finish(&BlockReply::Block, vec![bytes.into()]).await
    }
}

/// A certificate of the cluster for this process.
fn identity(cluster: &Cluster, role: Role) -> Identity {
    let ca = ClusterCa::open(&cluster.path("state/ca")).unwrap();
    ca.issue(role, "liar", &[], LEAF_VALIDITY).unwrap().identity().unwrap()
}

async fn connect(cluster: &Cluster, endpoint: &Endpoint) -> Connection {
    quic::connect(endpoint, cluster.address.parse().unwrap(), Role::Coordinator, LIMIT).await.unwrap()
}

/// Announces a worker. One heartbeat is enough, since the liveness timeout is long; but the coordinator takes the end of the connection for the
/// worker's.
async fn announce(connection: &Connection, listen: SocketAddr) {
    let node = NodeId("node-1".into());
    let home = Home { worker: WorkerId(0x11a2), name: "liar".into(), node, quic: listen, socket: None };
    let heartbeat = WorkerHeartbeat {
        home,
        cores: 1.0,
        draining: false,
        ranks: Vec::new(),
        stages: Vec::new(),
        uptime_ms: 1,
        cpu_ns: 0,
        sending_thread_ns: 0,
        store: Box::default(),
        cache: Default::default(),
        slow_object: None,
        tuning: Box::default(),
        bad_samples: Vec::new(),
        peer_map: 0,
        peers: Default::default(),
        help: Box::default(),
    };
    let reply = quic::request(connection, &ToCoordinator::WorkerHeartbeat(heartbeat), LIMIT).await.unwrap();
    assert!(matches!(reply, FromCoordinator::WorkerAcknowledged { .. }), "{reply:?}");
}

/// Joins as a rank on the liar's node, which makes the liar the owner of that rank's blocks. The rank takes no batch.
async fn join(connection: &Connection, job: &str, rank: u32) {
    let join = Join {
        job: job.into(),
        run: job.into(),
        rank,
        world: WORLD,
        global_batch: None,
        epochs: None,
        start: Start::Beginning,
        fingerprint: None,
        launch: Some("test".into()),
        takeover: false,
        session: None,
        changes: None,
        node: NodeId("node-1".into()),
        client: "a rank of the liar".into(),
        since_unix_s: 1,
        nonce: rank.into(),
    };
    let reply = quic::request(connection, &ToCoordinator::Join(join), LIMIT).await.unwrap();
    let FromCoordinator::Joined { home: Some(home), .. } = reply else { panic!("{reply:?}") };
    assert_eq!(home.name, "liar");
}

/// Starts a worker on `node-0` whose log goes to the file that is returned.
fn start_logged_worker(cluster: &mut Cluster) -> PathBuf {
    let (script, log) = (cluster.path("worker.sh"), cluster.path("worker.log"));
    let text =
        format!("#!/bin/sh\nexec '{}' --die-with-parent worker \"$@\" 2>>'{}'\n", program().display(), log.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    cluster.start_worker_of(&script, "node-0", &["--hedge-percent", "0"]);
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lies_about_blocks_is_named_and_changes_no_sample() {
    let records = StoredRecords::new().await;
    let job = records.job("lies");
    let steps = (RECORDS / BATCH).to_string();
    let honest = Cluster::start(1);
    honest.submit(&job);
    let expected = honest.pull_all("lies", WORLD, &["node-0"], &["--steps", &steps]).swap_remove(0);
    drop(honest);
    let mut asked_of_honest = 0;
    for (lie, named) in [
        (Lie::None, ""),
        (Lie::WrongBytes, "a worker sent wrong bytes of a block"),
        (Lie::AnotherBlock, "a worker sent wrong bytes of a block"),
        (Lie::TooFewBytes, "bytes of a reply"),
        (Lie::TooManyBytes, "it sent more than the"),
        (Lie::Nothing, "a worker does not answer for a block in time"),
    ] {
        let mut cluster = Cluster::start_with(0, &["--liveness-ms", "600000"], Vec::new());
        let log = start_logged_worker(&mut cluster);
        cluster.submit(&job);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint =
            quic::server_endpoint(listen, &identity(&cluster, Role::Worker), &QuicSettings::default()).unwrap();
        let address = endpoint.local_addr().unwrap();
        let liar = Liar { lie, shard: Arc::new(records.shard()), asked: Arc::default() };
        let serving = tokio::spawn(liar.clone().serve(endpoint.clone()));
        let heartbeats = connect(&cluster, &endpoint).await;
        announce(&heartbeats, address).await;
        let rank = quic::client_endpoint(&identity(&cluster, Role::Client), &QuicSettings::default()).unwrap();
        let connection = connect(&cluster, &rank).await;
        for rank in 1..WORLD {
            join(&connection, "lies", rank).await;
        }

        let mut pull = cluster.pull("lies", 0, WORLD, "node-0", &["--steps", &steps]);
        let report = tokio::task::spawn_blocking(move || ServerProcess::spawn(&mut pull).finish()).await.unwrap();
        assert_eq!(report["content_digest"], expected["content_digest"], "{lie:?}");
        assert_eq!(report["receipt"], expected["receipt"], "{lie:?}");
        let asked = liar.asked.load(Relaxed);
        println!("{lie:?}: it was asked {asked} times");
        assert!(asked > 0, "{lie:?}: it was asked for nothing");
        let log = fs::read_to_string(log).unwrap();
        if let Lie::None = lie {
            asked_of_honest = asked;
            assert!(!log.contains("a worker"), "{log}");
        } else {
            assert!(asked < asked_of_honest, "{lie:?}: it was asked {asked} times, as an honest one is");
            let line = log.lines().find(|line| line.contains(named));
            assert!(line.is_some_and(|line| line.contains(&address.to_string())), "{lie:?}: {log}");
        }
        serving.abort();
    }
}
