//! Tests of a worker on real sockets, with clients that behave and clients that do not, and a coordinator that comes
//! and goes.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use spdl_control::{
    messages::{FromCoordinator, FromHome, Session, ToCoordinator, WorkerHeartbeat},
    peers::{PeerAddress, PeerMap},
};
use spdl_insight::Transport;
use spdl_job::layout::Layout;
use spdl_testkit::{LONG, certs::ClusterCerts};
use spdl_types::{Fingerprint, Position, Stage, WorkerId};
use spdl_wire::home::{self, Attach, ChannelError, ClientReceiver, ClientSender};
use tokio::sync::mpsc;

use super::*;
use crate::feed::tests::fixture::{FeedFixture, SAMPLES, Seen, read_batch, resources, run};

const PLENTY: u64 = 64 << 20;
const JOB: &str = "epochs = 2\nglobal_batch = 12\nmax_bad_fraction = 1.0";

/// The certificates and the socket of a worker and its peers.
#[derive(Default)]
struct WorkerFixture {
    certs: ClusterCerts,
}

impl WorkerFixture {
    fn settings(&self, coordinator: SocketAddr) -> WorkerSettings {
        WorkerSettings {
            identity: self.certs.identity(Role::Worker),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            advertise: None,
            socket: Some(self.certs.path("worker.sock")),
            allow: Allow::default(),
            coordinators: coordinator.to_string().parse().unwrap(),
            node: NodeId("here".into()),
            ranks: DEFAULT_RANKS,
            peer_requests: DEFAULT_PEER_REQUESTS,
            role: WorkerRole::Home,
            quic: QuicSettings::default(),
        }
    }

    async fn worker(&self) -> Worker {
        Worker::start(self.settings(nowhere()), resources(PLENTY, None)).await.unwrap()
    }

    async fn attach(&self, worker: &Worker, node: &str, wish: Attach) -> Result<TestClient, ChannelError> {
        let layout = layout_of(&wish.session);
        let endpoint = self.certs.client(Role::Client);
        let slot_bytes = layout.slot_bytes();
        let (sender, receiver) =
            home::attach(worker.home(), &NodeId(node.into()), Some(&endpoint), wish, slot_bytes, LONG).await?;
        Ok(TestClient { sender, receiver, layout, _endpoint: endpoint })
    }
}

/// Returns an address at which nothing listens.
fn nowhere() -> SocketAddr {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn layout_of(session: &Session) -> Layout {
    session.layout()
}

fn wish(session: Session, rank: u32) -> Attach {
    Attach {
        session: Box::new(session),
        rank,
        from: Position::START,
        slots: 4,
        client: "test".into(),
        is_shared: false,
        receive: Attach::counters(),
    }
}

struct TestClient {
    sender: ClientSender,
    receiver: ClientReceiver,
    layout: Layout,
    _endpoint: Endpoint,
}

impl TestClient {
    async fn recv(&mut self) -> Result<FromHome, ChannelError> {
        tokio::time::timeout(LONG, self.receiver.recv()).await.expect("an answer within a minute")
    }

    async fn drain(&mut self, seen: &mut BTreeMap<(Position, u32), Seen>) -> u64 {
        loop {
            match self.recv().await.unwrap() {
                FromHome::Filled { slot, used_bytes, .. } => {
                    read_batch(self.receiver.slab(), &self.layout, slot, used_bytes, seen);
                    self.sender.free(slot).await.unwrap();
                }
                FromHome::End { sequence, .. } => return sequence,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Waits for a condition that has no event to wait for.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, waited).await.unwrap_or_else(|_| panic!("{what} within a minute"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_on_both_transports_get_what_a_feed_in_process_gives() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[5], JOB));
    let (expected, steps) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let worker = cluster.worker().await;
    let mut seen = BTreeMap::new();
    for (rank, node, transport) in [(0, "here", Transport::Local), (1, "there", Transport::Quic)] {
        let mut client = cluster.attach(&worker, node, wish(fixture.session(2), rank)).await.unwrap();
        assert_eq!(client.receiver.transport(), transport);
        assert_eq!(client.drain(&mut seen).await, steps);
        let stats = worker.ranks().stats();
        assert_eq!((stats.len(), stats[0].rank, stats[0].batches), (1, rank, steps));
        drop(client);
        until("the permit is free", || worker.ranks().stats().is_empty()).await;
    }
    assert!(seen == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_gives_its_memory_back_and_one_that_keeps_slots_costs_the_others_nothing() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[], JOB));
    let worker = cluster.worker().await;
    for node in ["here", "there"] {
        let mut holder = cluster.attach(&worker, node, wish(fixture.session(2), 0)).await.unwrap();
        let first = holder.recv().await.unwrap();
        assert!(matches!(first, FromHome::Filled { sequence: 0, .. }), "{first:?}");
        until("all slots are lent", || worker.ranks().stats()[0].ready == worker.ranks().stats()[0].slots).await;
        let mut other = cluster.attach(&worker, node, wish(fixture.session(2), 1)).await.unwrap();
        let mut seen = BTreeMap::new();
        other.drain(&mut seen).await;
        assert_eq!(seen.len() as u64, SAMPLES);
        holder.sender.explain().await.unwrap();
        let stall = loop {
            match holder.recv().await.unwrap() {
                FromHome::Filled { .. } => {}
                FromHome::Explained(stall) => break stall.expect("it waits for the trainer"),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(stall.stage, Stage::HandOver);
        drop((holder, other));
        until("the memory is back", || worker.resources().memory_bytes().0 == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_served_is_refused_with_the_values_named() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[], JOB));
    let mut settings = cluster.settings(nowhere());
    settings.ranks = 1;
    let worker = Worker::start(settings, resources(PLENTY, None)).await.unwrap();
    let refusal = |result: Result<TestClient, ChannelError>| match result {
        Err(ChannelError::Refused { message, is_retryable }) => (message, is_retryable),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was served"),
    };
    let (message, is_retryable) = refusal(cluster.attach(&worker, "here", wish(fixture.session(2), 2)).await);
    assert!(message.contains("rank 2 is not below world 2") && !is_retryable, "{message}");

    let mut other = fixture.session(1);
    other.job.dataset_fingerprint = Fingerprint(7);
    let mut client = cluster.attach(&worker, "there", wish(other, 0)).await.unwrap();
    let fault = client.recv().await.unwrap();
    let FromHome::Fault { message, is_retryable: false } = fault else { panic!("{fault:?}") };
    let (ours, theirs) = (fixture.job.dataset_fingerprint.to_string(), Fingerprint(7).to_string());
    assert!(message.contains(&ours) && message.contains(&theirs), "{message}");
    until("the permit is free", || worker.ranks().permit().is_some()).await;

    let _first = cluster.attach(&worker, "here", wish(fixture.session(2), 0)).await.unwrap();
    let (message, is_retryable) = refusal(cluster.attach(&worker, "here", wish(fixture.session(2), 1)).await);
    assert!(message.contains("1 ranks") && is_retryable, "{message}");
}

/// A coordinator that answers heartbeats while it is up.
struct HeartbeatServer {
    address: SocketAddr,
    heard: mpsc::UnboundedReceiver<ToCoordinator>,
    task: JoinHandle<()>,
}

impl HeartbeatServer {
    /// Starts a coordinator that refuses the first `refuse` heartbeats, and sends this map to workers that have another
    /// one.
    fn start(cluster: &WorkerFixture, listen: SocketAddr, refuse: usize, map: PeerMap) -> Self {
        let endpoint =
            quic::server_endpoint(listen, &cluster.certs.identity(Role::Coordinator), &QuicSettings::default())
                .unwrap();
        let address = endpoint.local_addr().unwrap();
        let (out, heard) = mpsc::unbounded_channel();
        let left = Arc::new(AtomicUsize::new(refuse));
        let answer = move |message| {
            let known = if let ToCoordinator::WorkerHeartbeat(heartbeat) = &message { heartbeat.peer_map } else { 0 };
            let peers = (known != map.version).then(|| Box::new(map.clone()));
            let is_answered = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            let _ = out.send(message);
            std::future::ready(match is_answered {
                Ok(_) => FromCoordinator::Done,
                Err(_) => FromCoordinator::WorkerAcknowledged {
                    heartbeat_ms: 20,
                    liveness_ms: 1000,
                    trace: None,
                    peers,
                    helpers: None,
                },
            })
        };
        let task = tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let (connection, peer) = quic::handshake(incoming, &[Role::Worker], LONG).await.unwrap();
                    assert_eq!(peer.role, Role::Worker);
                    quic::serve_requests(connection, answer).await;
                });
            }
        });
        Self { address, heard, task }
    }

    async fn next(&mut self) -> ToCoordinator {
        tokio::time::timeout(LONG, self.heard.recv()).await.expect("a message within a minute").unwrap()
    }

    async fn heartbeat_with(&mut self, wanted: impl Fn(&WorkerHeartbeat) -> bool) -> WorkerHeartbeat {
        loop {
            match self.next().await {
                ToCoordinator::WorkerHeartbeat(heartbeat) if wanted(&heartbeat) => return heartbeat,
                ToCoordinator::WorkerHeartbeat(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_report_ranks_and_each_bad_sample_until_it_is_acknowledged() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[5], JOB));
    let mut coordinator = HeartbeatServer::start(&cluster, (Ipv4Addr::LOCALHOST, 0).into(), 3, PeerMap::default());
    let means = resources(PLENTY, None);
    let worker = Worker::start(cluster.settings(coordinator.address), means.clone()).await.unwrap();
    let mut client = cluster.attach(&worker, "here", wish(fixture.session(1), 0)).await.unwrap();
    client.drain(&mut BTreeMap::new()).await;
    let reported = coordinator.heartbeat_with(|heartbeat| !heartbeat.bad_samples.is_empty()).await;
    assert_eq!((reported.bad_samples[0].key.as_str(), reported.home.worker), ("000005", worker.home().worker));
    until("it was heard", || means.decoding.bad.lock().unreported(1).is_empty()).await;
    let heartbeat = coordinator.heartbeat_with(|heartbeat| heartbeat.bad_samples.is_empty()).await;
    assert_eq!((heartbeat.ranks.len(), heartbeat.ranks[0].transport), (1, Transport::Local));
    assert_eq!(
        heartbeat.stages.iter().map(|stats| &stats.stage).collect::<Vec<_>>(),
        [&Stage::Open, &Stage::Fetch, &Stage::Decode, &Stage::HandOver]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_the_map_of_its_peers_once() {
    let cluster = WorkerFixture::default();
    let peer = |worker| PeerAddress { worker: WorkerId(worker), quic: nowhere() };
    let map = PeerMap { version: 7, workers: vec![peer(1), peer(2)], sessions: Vec::new() };
    let mut coordinator = HeartbeatServer::start(&cluster, (Ipv4Addr::LOCALHOST, 0).into(), 1, map);
    let worker = Worker::start(cluster.settings(coordinator.address), resources(PLENTY, None)).await.unwrap();
    assert_eq!(coordinator.heartbeat_with(|_| true).await.peer_map, 0);
    coordinator.heartbeat_with(|heartbeat| heartbeat.peer_map == 7).await;
    assert_eq!(worker.resources().fetcher.peers.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serving_goes_on_while_the_coordinator_is_away() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[], JOB));
    let mut coordinator = HeartbeatServer::start(&cluster, (Ipv4Addr::LOCALHOST, 0).into(), 0, PeerMap::default());
    let worker = Worker::start(cluster.settings(coordinator.address), resources(PLENTY, None)).await.unwrap();
    coordinator.heartbeat_with(|_| true).await;
    let mut is_accepted = worker.is_accepted();
    tokio::time::timeout(LONG, is_accepted.wait_for(|heard| *heard)).await.unwrap().unwrap();
    coordinator.task.abort();
    let mut client = cluster.attach(&worker, "here", wish(fixture.session(1), 0)).await.unwrap();
    let mut seen = BTreeMap::new();
    client.drain(&mut seen).await;
    assert_eq!(seen.len() as u64, 2 * SAMPLES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_leaves_drains_and_notifies_the_coordinator_and_its_clients() {
    let (cluster, fixture) = (WorkerFixture::default(), FeedFixture::new(&[], JOB));
    let mut coordinator = HeartbeatServer::start(&cluster, (Ipv4Addr::LOCALHOST, 0).into(), 0, PeerMap::default());
    let worker = Worker::start(cluster.settings(coordinator.address), resources(PLENTY, None)).await.unwrap();
    coordinator.heartbeat_with(|_| true).await;
    let mut clients = Vec::new();
    for (rank, node) in [(0, "here"), (1, "there")] {
        clients.push(cluster.attach(&worker, node, wish(fixture.session(2), rank)).await.unwrap());
    }
    let leaving = async {
        worker.leave().await;
        worker.home().clone()
    };
    let hear = async {
        for client in &mut clients {
            while !matches!(client.recv().await.unwrap(), FromHome::Leaving) {}
        }
    };
    let (home, ()) = tokio::join!(leaving, hear);
    coordinator.heartbeat_with(|heartbeat| heartbeat.draining).await;
    loop {
        match coordinator.next().await {
            ToCoordinator::WorkerHeartbeat(heartbeat) => assert!(heartbeat.draining, "it does not change its mind"),
            ToCoordinator::WorkerLeave { worker } => break assert_eq!(worker, home.worker),
            other => panic!("{other:?}"),
        }
    }
    assert!(!cluster.certs.path("worker.sock").exists());
}

#[tokio::test]
async fn a_certificate_of_another_role_starts_no_worker() {
    let cluster = WorkerFixture::default();
    let mut settings = cluster.settings(nowhere());
    settings.identity = cluster.certs.identity(Role::Client);
    let error = Worker::start(settings, resources(PLENTY, None)).await.unwrap_err();
    assert_eq!(error.to_string(), "certificate of `client-0` is for a client, not for a worker");
}
