//! Measures communication: the codec, handing a batch over on the local channel, and batches over QUIC on loopback
//! compared with a bare stream with the same settings.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use spdl_control::{
    Role,
    messages::{FromHome, ToCoordinator, ToHome},
};
use spdl_testkit::home::{attach_request, worker_heartbeat};
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    codec,
    frame::{self, Message},
    home::{self, Attach, ClientReceiver, ClientSender, HomeListener, HomeReceiver, HomeSender},
    local::{Allow, LocalListener},
    quic::{self, QuicSettings},
    slab::Slab,
};
use tokio::runtime::Runtime;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes of a batch: 64 pictures of 224 x 224, as u8.
const BATCH_BYTES: usize = 64 * 224 * 224 * 3;
const SLOTS: u32 = 4;
/// How long the simulated trainer works on a batch between two takes.
const STEP: Duration = Duration::from_micros(200);

fn round_trip<M: Message>(message: &M, bytes: &mut Vec<u8>) -> M {
    bytes.clear();
    frame::append_frame(message, bytes).expect("it encodes");
    frame::take_frame(bytes).expect("it decodes").expect("it is whole")
}

fn codecs(criterion: &mut Criterion) {
    let heartbeat = ToCoordinator::WorkerHeartbeat(worker_heartbeat());
    let filled = FromHome::Filled { sequence: 1000, slot: 3, used_bytes: BATCH_BYTES as u64 };
    let Attach { session, rank, from, slots, client, .. } = attach_request(SLOTS);
    let attach = ToHome::Attach { session, rank, from, slots, client, join_key: None };
    let mut encoded = Vec::new();
    codec::encode(&heartbeat, &mut encoded).expect("it encodes");
    let mut group = criterion.benchmark_group("codec");
    let mut bytes = Vec::new();
    group.bench_function("filled, there and back", |bencher| bencher.iter(|| round_trip(&filled, &mut bytes)));
    group.bench_function("attach, there and back", |bencher| bencher.iter(|| round_trip(&attach, &mut bytes)));
    group.bench_function(format!("heartbeat of {} bytes, there and back", encoded.len()), |bencher| {
        bencher.iter(|| round_trip(&heartbeat, &mut bytes));
    });
    group.finish();
}

/// Makes a runtime of one thread, as each end of a channel has in its own process.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}

/// Makes a runtime that also runs while no caller waits for it, like a client's: packets that come between two
/// measurements are received and acknowledged.
fn driven() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime starts")
}

fn identities(dir: &Path) -> [Identity; 2] {
    let ca = ClusterCa::open_or_create(dir).expect("a CA is made");
    [Role::Worker, Role::Client]
        .map(|role| ca.issue(role, "bench", &[], LEAF_VALIDITY).and_then(|issued| issued.identity()).expect("issued"))
}

/// Opens both ends of a channel: the home on its own thread, which runs `serve`, and the client here.
fn channel<F>(over_quic: bool, serve: impl FnOnce(Slab, HomeSender, HomeReceiver) -> F + Send + 'static) -> BenchClient
where
    F: Future<Output = ()>,
{
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("home.sock");
    let [worker, client] = identities(dir.path());
    let (ready, listening) = mpsc::channel();
    let path = socket.clone();
    let home = thread::spawn(move || {
        runtime().block_on(async move {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let endpoint = quic::server_endpoint(any, &worker, &QuicSettings::default()).expect("bound");
            let local = LocalListener::bind(&path, Allow::default()).expect("bound");
            ready.send(endpoint.local_addr().expect("bound")).expect("the client waits");
            let request = HomeListener::start(Some(local), Some(endpoint)).accept().await.expect("a client");
            let slab = request.new_slab(SLOTS, BATCH_BYTES).expect("memory");
            let (sender, receiver) = request.attached(&slab).await.expect("attached");
            serve(slab, sender, receiver).await;
        });
    });
    let address = listening.recv().expect("the home listens");
    let runtime = if over_quic { driven() } else { runtime() };
    let (sender, receiver) = runtime.block_on(async {
        if over_quic {
            let endpoint = quic::client_endpoint(&client, &QuicSettings::default()).expect("bound");
            let connection = quic::connect(&endpoint, address, Role::Worker, TIMEOUT).await.expect("connected");
            home::attach_quic(vec![connection], attach_request(SLOTS), BATCH_BYTES, TIMEOUT).await.expect("attached")
        } else {
            home::attach_local(&socket, attach_request(SLOTS), BATCH_BYTES, TIMEOUT).await.expect("attached")
        }
    });
    BenchClient { runtime, sender, receiver, home, _dir: dir }
}

struct BenchClient {
    runtime: Runtime,
    sender: ClientSender,
    receiver: ClientReceiver,
    home: thread::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl BenchClient {
    /// Takes `count` batches and frees each one at once.
    fn take(&mut self, count: u64) -> Duration {
        self.runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..count {
                match self.receiver.recv().await.expect("the home is there") {
                    FromHome::Filled { slot, .. } => self.sender.free(slot).await.expect("the home is there"),
                    other => panic!("{other:?}"),
                }
            }
            start.elapsed()
        })
    }

    /// Does the same as a trainer that is busy between batches. Returns the time to take batches that are ready, and
    /// the time to free them, which wakes the home.
    fn between_steps(&mut self, count: u64) -> [Duration; 2] {
        self.runtime.block_on(async {
            let mut took = [Duration::ZERO; 2];
            for _ in 0..count {
                let step = Instant::now();
                while step.elapsed() < STEP {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                let FromHome::Filled { slot, .. } = self.receiver.recv().await.expect("the home is there") else {
                    panic!("no other message is expected");
                };
                let taken = Instant::now();
                self.sender.free(slot).await.expect("the home is there");
                took[0] += taken - start;
                took[1] += taken.elapsed();
            }
            took
        })
    }

    fn end(self) {
        drop((self.sender, self.receiver, self.runtime));
        self.home.join().expect("the home ends");
    }
}

/// Delivers batches through up to `in_flight` slots until the client leaves.
async fn deliver(slab: Slab, mut sender: HomeSender, mut receiver: HomeReceiver, in_flight: u32) {
    let mut sequence = 0;
    loop {
        while SLOTS - slab.free_slots() >= in_flight {
            if !matches!(receiver.recv().await, Ok(Some(ToHome::Freed { .. }))) {
                return;
            }
        }
        let slot = slab.take_any().expect("a slot is free").publish();
        if sender.deliver(sequence, slot, BATCH_BYTES as u64).await.is_err() {
            return;
        }
        sequence += 1;
    }
}

fn hand_off(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("local hand-off");
    for (name, in_flight) in [("one batch, there and its slot back", 1), ("per batch, four slots", SLOTS)] {
        let mut client = channel(false, move |slab, sender, receiver| deliver(slab, sender, receiver, in_flight));
        group.bench_function(name, |bencher| bencher.iter_custom(|count| client.take(count)));
        client.end();
    }
    let mut client = channel(false, move |slab, sender, receiver| deliver(slab, sender, receiver, SLOTS));
    for (name, part) in [("taking a batch that is there, between steps", 0), ("giving its slot back", 1)] {
        group.bench_function(name, |bencher| bencher.iter_custom(|count| client.between_steps(count)[part]));
    }
    client.end();
    group.finish();
}

fn quic_bulk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quic on loopback");
    group.throughput(Throughput::Bytes(BATCH_BYTES as u64)).sample_size(10);
    let mut client = channel(true, |slab, sender, receiver| deliver(slab, sender, receiver, SLOTS));
    group.bench_function("batches", |bencher| bencher.iter_custom(|count| client.take(count)));
    client.end();

    bare_stream(&mut group, "bare stream", &QuicSettings::default());
    group.finish();
}

/// Measures one endless stream over a connection with these settings, through as many buffers as a slab has slots.
fn bare_stream(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, settings: &QuicSettings) {
    let dir = tempfile::tempdir().expect("a folder");
    let [worker, client] = identities(dir.path());
    let (ready, listening) = mpsc::channel();
    let server_settings = settings.clone();
    let server = thread::spawn(move || {
        driven().block_on(async move {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let endpoint = quic::server_endpoint(any, &worker, &server_settings).expect("bound");
            ready.send(endpoint.local_addr().expect("bound")).expect("the client waits");
            let incoming = endpoint.accept().await.expect("a client");
            let (connection, _) = quic::handshake(incoming, &[Role::Client], TIMEOUT).await.expect("a client");
            let mut stream = connection.open_uni().await.expect("a stream");
            let buffers: Vec<Bytes> = (0..SLOTS).map(|slot| vec![slot as u8; BATCH_BYTES].into()).collect();
            for buffer in buffers.iter().cycle() {
                if stream.write_chunk(buffer.clone()).await.is_err() {
                    return;
                }
            }
        });
    });
    let address = listening.recv().expect("the server listens");
    let runtime = driven();
    let (connection, mut stream) = runtime.block_on(async {
        let endpoint = quic::client_endpoint(&client, settings).expect("bound");
        let connection = quic::connect(&endpoint, address, Role::Worker, TIMEOUT).await.expect("connected");
        let stream = connection.accept_uni().await.expect("a stream");
        (connection, stream)
    });
    let mut buffers = vec![vec![0; BATCH_BYTES]; SLOTS as usize];
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|count| {
            runtime.block_on(async {
                let start = Instant::now();
                for batch in 0..count {
                    let buffer = &mut buffers[(batch % u64::from(SLOTS)) as usize];
                    stream.read_exact(buffer).await.expect("the server is there");
                }
                start.elapsed()
            })
        });
    });
    drop((stream, connection, runtime));
    server.join().expect("the server ends");
}

/// Measures the effect of each setting: the bare stream with one setting at a time at quinn's default.
fn quic_settings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quic settings, bare stream");
    group.throughput(Throughput::Bytes(BATCH_BYTES as u64)).sample_size(10);
    let ours = QuicSettings::default;
    for (name, settings) in [
        ("ours", ours()),
        ("payloads of 1,452 bytes", QuicSettings { max_udp_payload_bytes: 1452, ..ours() }),
        ("no segmentation offload", QuicSettings { segmentation_offload: false, ..ours() }),
        (
            "neither: payloads of 1,452 bytes, no offload",
            QuicSettings { max_udp_payload_bytes: 1452, segmentation_offload: false, ..ours() },
        ),
        ("an acknowledgement for every eleventh packet", QuicSettings { ack_every_packets: 10, ..ours() }),
        ("a stream's window of 1.2 MB", QuicSettings { stream_window_bytes: 1_250_000, ..ours() }),
        ("a burst of 14,720 bytes", QuicSettings { initial_window_bytes: 14_720, ..ours() }),
        ("the kernel's socket buffers", QuicSettings { socket_buffer_bytes: 212_992, ..ours() }),
    ] {
        bare_stream(&mut group, name, &settings);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = codecs, hand_off, quic_bulk, quic_settings
}
criterion_main!(benches);
