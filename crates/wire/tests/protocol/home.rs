//! Tests of the channel between a home and its clients, the same over shared memory and over QUIC.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use quinn::Endpoint;
use spdl_control::{Role, messages::*};
use spdl_insight::{Stall, Transport};
use spdl_testkit::{
    LONG,
    certs::{ClusterCerts, server_address},
    home::{attach_request, session},
};
use spdl_types::{NodeId, Position, Stage, WorkerId};
use spdl_wire::{
    frame,
    home::{self, Attach, AttachRequest, ChannelError, ClientReceiver, ClientSender, HomeListener},
    local::{Allow, LocalChannelError, LocalListener},
    quic::{self, QuicError},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SLOT_BYTES: usize = 200_000;

/// A home that listens on both transports.
struct TestHome {
    cluster: ClusterCerts,
    listener: HomeListener,
    home: Home,
    client: Endpoint,
    _worker: Endpoint,
    _dir: tempfile::TempDir,
}

impl TestHome {
    fn new() -> Self {
        let cluster = ClusterCerts::default();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/worker.sock");
        let local = LocalListener::bind(&socket, Allow::default()).unwrap();
        let worker = cluster.server(Role::Worker);
        let home = Home {
            worker: WorkerId(1),
            name: "worker-0".into(),
            node: NodeId("here".into()),
            quic: server_address(&worker),
            socket: Some(socket.to_str().unwrap().to_owned()),
        };
        let client = cluster.client(Role::Client);
        let listener = HomeListener::start(Some(local), Some(worker.clone()));
        Self { cluster, listener, home, client, _worker: worker, _dir: dir }
    }

    fn socket(&self) -> &Path {
        Path::new(self.home.socket.as_ref().unwrap())
    }

    async fn attach(
        &mut self,
        over: Transport,
        slots: u32,
    ) -> (AttachRequest, tokio::task::JoinHandle<Result<(ClientSender, ClientReceiver), ChannelError>>) {
        let node = NodeId(if over == Transport::Local { "here" } else { "there" }.into());
        let (home, client) = (self.home.clone(), self.client.clone());
        let attaching = tokio::spawn(async move {
            home::attach(&home, &node, Some(&client), attach_request(slots), SLOT_BYTES, LONG).await
        });
        let request = self.listener.accept().await.unwrap();
        assert_eq!(request.transport(), over);
        assert_eq!((request.rank, request.from, request.slots), (3, Position::new(1, 2), slots));
        assert_eq!((request.client.as_str(), &request.session), ("test", &session()));
        (request, attaching)
    }
}

/// Returns the bytes of a batch.
fn pattern(sequence: u64, used_bytes: usize) -> Vec<u8> {
    (0..used_bytes).map(|at| (at as u64 * 31 + sequence * 7) as u8).collect()
}

fn used_bytes(sequence: u64) -> usize {
    1 + (sequence as usize * 7919) % SLOT_BYTES
}

/// Runs a home that delivers `batches` through `slots` slots as the client frees them, then the end.
async fn deliver_all(request: AttachRequest, slots: u32, batches: u64) {
    let slab = request.new_slab(slots, SLOT_BYTES).unwrap();
    let (mut sender, mut receiver) = request.attached(&slab).await.unwrap();
    for sequence in 0..batches {
        let mut slot = loop {
            match slab.take_any() {
                Some(slot) => break slot,
                None => assert!(matches!(receiver.recv().await.unwrap(), Some(ToHome::Freed { .. }))),
            }
        };
        let bytes = pattern(sequence, used_bytes(sequence));
        slot[..bytes.len()].copy_from_slice(&bytes);
        let slot = slot.publish();
        sender.deliver(sequence, slot, bytes.len() as u64).await.unwrap();
    }
    while slab.free_slots() < slots {
        assert!(matches!(receiver.recv().await.unwrap(), Some(ToHome::Freed { .. })), "every slot comes back");
    }
    sender.send(&FromHome::End { sequence: batches, position: Position::new(9, 9) }).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap(), None, "the client has seen the end and leaves");
}

const BATCHES: u64 = 60;

async fn batches_go_round(over: Transport) {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(over, 3).await;
    let delivering = tokio::spawn(deliver_all(request, 3, BATCHES));
    let channel = attaching.await.unwrap().unwrap();
    take_all(channel, over).await;
    delivering.await.unwrap();
}

/// Takes the batches of [`deliver_all`] to the end, in order.
async fn take_all((mut sender, mut receiver): (ClientSender, ClientReceiver), over: Transport) {
    assert_eq!((receiver.transport(), receiver.slab().slots()), (over, 3));
    let mut next = 0;
    loop {
        match receiver.recv().await.unwrap() {
            FromHome::Filled { sequence, slot, used_bytes: bytes } => {
                assert_eq!((sequence, bytes), (next, used_bytes(next) as u64));
                let batch = receiver.slab().read(slot).expect("filled means readable");
                assert_eq!(batch[..bytes as usize], pattern(sequence, bytes as usize));
                drop(batch);
                sender.free(slot).await.unwrap();
                next += 1;
            }
            FromHome::End { sequence, position } => {
                assert_eq!((sequence, position, next), (BATCHES, Position::new(9, 9), BATCHES));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Connects to the home so many times, from an endpoint each.
async fn connect_times(test_home: &TestHome, times: usize) -> Vec<quinn::Connection> {
    let mut connections = Vec::new();
    for _ in 0..times {
        let endpoint = test_home.cluster.client(Role::Client);
        connections.push(quic::connect(&endpoint, test_home.home.quic, Role::Worker, LONG).await.unwrap());
    }
    connections
}

/// Attaches over so many connections, which the home has noticed when this returns, and returns them.
async fn attach_over(
    test_home: &mut TestHome,
    times: usize,
) -> (Vec<quinn::Connection>, AttachRequest, tokio::task::JoinHandle<(ClientSender, ClientReceiver)>) {
    let connections = connect_times(test_home, times).await;
    let taken = connections.clone();
    let attaching =
        tokio::spawn(async move { home::attach_quic(taken, attach_request(3), SLOT_BYTES, LONG).await.unwrap() });
    let request = test_home.listener.accept().await.unwrap();
    (connections, request, attaching)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_come_in_order_over_three_connections_each_of_which_carries_some() {
    let mut test_home = TestHome::new();
    let (connections, request, attaching) = attach_over(&mut test_home, 3).await;
    let delivering = tokio::spawn(deliver_all(request, 3, BATCHES));
    take_all(attaching.await.unwrap(), Transport::Quic).await;
    delivering.await.unwrap();
    // 60 batches are 6 MB.
    let received: Vec<u64> = connections.iter().map(|connection| connection.stats().udp_rx.bytes).collect();
    assert!(received.iter().all(|bytes| *bytes > 1_000_000), "{received:?}");
    // The first carries messages, and ends with them; the others end with it.
    for connection in connections {
        connection.closed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_loses_one_of_its_connections_loses_all_of_them() {
    for lost in 0..3 {
        let mut test_home = TestHome::new();
        let (connections, request, attaching) = attach_over(&mut test_home, 3).await;
        let slab = request.new_slab(3, SLOT_BYTES).unwrap();
        let (_out, mut heard) = request.attached(&slab).await.unwrap();
        let (sender, mut receiver) = attaching.await.unwrap();
        connections[lost].close(9u32.into(), b"lost");
        let error = receiver.recv().await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        for connection in &connections {
            connection.closed().await;
        }
        while let Ok(Some(_)) = heard.recv().await {}
        drop(sender);
    }
}

#[tokio::test]
async fn a_connection_that_joins_no_rank_is_refused() {
    let test_home = TestHome::new();
    let connection = connect_times(&test_home, 1).await.remove(0);
    let (mut write, mut read) = connection.open_bi().await.unwrap();
    frame::write_frame(&mut write, &ToHome::Join { key: 7 }).await.unwrap();
    let answer = frame::read_frame::<FromHome>(&mut read).await.unwrap().unwrap();
    let FromHome::Fault { message, is_retryable: false } = answer else { panic!("{answer:?}") };
    assert!(message.contains("joined a rank that is not attached here"), "{message}");
}

#[tokio::test]
async fn batches_go_round_over_shared_memory() {
    batches_go_round(Transport::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_go_round_over_quic() {
    batches_go_round(Transport::Quic).await;
}

async fn explains(over: Transport) {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(over, 1).await;
    let slab = request.new_slab(1, SLOT_BYTES).unwrap();
    let (mut out, mut heard) = request.attached(&slab).await.unwrap();
    let (mut sender, mut receiver) = attaching.await.unwrap().unwrap();
    sender.explain().await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), Some(ToHome::Explain));
    let stall = Stall { worker: "w".into(), stage: Stage::Decode, waiting_for: "shard `a`".into(), waited_ms: 5 };
    out.send(&FromHome::Explained(Some(stall.clone()))).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap(), FromHome::Explained(Some(stall)));
    out.send(&FromHome::Leaving).await.unwrap();
    let (closed, ()) = tokio::join!(
        async {
            assert_eq!(receiver.recv().await.unwrap(), FromHome::Leaving);
            receiver.recv().await
        },
        out.close()
    );
    assert!(matches!(closed, Err(ChannelError::Closed)), "{closed:?}");
}

#[tokio::test]
async fn a_home_explains_and_leaves_over_shared_memory() {
    explains(Transport::Local).await;
}

#[tokio::test]
async fn a_home_explains_and_leaves_over_quic() {
    explains(Transport::Quic).await;
}

async fn refuses(over: Transport) {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(over, 1).await;
    request.refuse("job `job` has failed".into(), false).await;
    let error = attaching.await.unwrap().unwrap_err();
    assert!(matches!(&error, ChannelError::Refused { is_retryable: false, .. }), "{error:?}");
    assert!(error.to_string().contains("job `job` has failed"));
    let (request, attaching) = test_home.attach(over, 1).await;
    drop(request);
    let error = attaching.await.unwrap().unwrap_err();
    assert!(
        matches!(error, ChannelError::Closed) && error.is_retryable(),
        "a home that goes without a word: {error:?}"
    );
}

#[tokio::test]
async fn a_home_refuses_over_shared_memory() {
    refuses(Transport::Local).await;
}

#[tokio::test]
async fn a_home_refuses_over_quic() {
    refuses(Transport::Quic).await;
}

async fn a_client_vanishes(over: Transport) {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(over, 2).await;
    let slab = request.new_slab(2, SLOT_BYTES).unwrap();
    let (mut out, mut heard) = request.attached(&slab).await.unwrap();
    let channel = attaching.await.unwrap().unwrap();
    let slot = slab.take_any().unwrap().publish();
    out.deliver(0, slot, 10).await.unwrap();
    drop(channel);
    while let Ok(Some(_)) = heard.recv().await {}
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_over_shared_memory() {
    a_client_vanishes(Transport::Local).await;
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_over_quic() {
    a_client_vanishes(Transport::Quic).await;
}

#[tokio::test]
async fn a_client_that_left_is_no_broken_pipe_to_the_home_that_speaks_on() {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(Transport::Local, 2).await;
    let slab = request.new_slab(2, SLOT_BYTES).unwrap();
    let (mut out, mut heard) = request.attached(&slab).await.unwrap();
    let channel = attaching.await.unwrap().unwrap();
    let slot = slab.take_any().unwrap().publish();
    out.deliver(0, slot, 10).await.unwrap();
    // The client leaves without having read what it was sent, so that the home's reading fails too.
    drop(channel);
    let error = loop {
        if let Err(error) = out.send(&FromHome::Leaving).await {
            break error;
        }
    };
    assert!(matches!(error, ChannelError::Closed), "{error}");
    let slot = slab.take_any().unwrap().publish();
    assert!(matches!(out.deliver(1, slot, 10).await, Err(ChannelError::Closed)));
    assert!(matches!(heard.recv().await, Ok(None)));
}

#[tokio::test]
async fn freeing_what_was_not_given_is_noticed() {
    let mut test_home = TestHome::new();
    let connection = quic::connect(&test_home.client, test_home.home.quic, Role::Worker, LONG).await.unwrap();
    let (mut write, _read) = connection.open_bi().await.unwrap();
    let Attach { session, rank, from, slots, client, .. } = attach_request(1);
    frame::write_frame(&mut write, &ToHome::Attach { session, rank, from, slots, client, join_key: None })
        .await
        .unwrap();
    let request = test_home.listener.accept().await.unwrap();
    let slab = request.new_slab(1, SLOT_BYTES).unwrap();
    let (_out, mut heard) = request.attached(&slab).await.unwrap();
    frame::write_frame(&mut write, &ToHome::Freed { slot: 0, is_locked: false }).await.unwrap();
    let error = heard.recv().await.unwrap_err();
    assert!(matches!(error, ChannelError::Protocol { .. }) && error.to_string().contains("slot 0"), "{error}");
}

#[tokio::test]
async fn a_client_of_another_version_gets_an_error_over_the_socket() {
    let test_home = TestHome::new();
    let mut stream = tokio::net::UnixStream::connect(test_home.socket()).await.unwrap();
    stream.write_all(b"SP\x63\x00\x00\x00\x00\x00").await.unwrap();
    let answer: FromHome = frame::read_frame(&mut stream).await.unwrap().unwrap();
    let FromHome::Fault { message, is_retryable } = answer else { panic!("{answer:?}") };
    assert!(message.contains("version 99") && !is_retryable, "{message}");
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "and the door closes");
}

#[tokio::test]
async fn an_unauthenticated_peer_on_the_socket_delays_no_client() {
    let mut test_home = TestHome::new();
    let _silent = tokio::net::UnixStream::connect(test_home.socket()).await.unwrap();
    let (request, attaching) = test_home.attach(Transport::Local, 1).await;
    let slab = request.new_slab(1, SLOT_BYTES).unwrap();
    let _home = request.attached(&slab).await.unwrap();
    attaching.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_certificate_may_not_attach() {
    let test_home = TestHome::new();
    let other = test_home.cluster.client(Role::Worker);
    let error = quic::connect(&other, test_home.home.quic, Role::Worker, LONG).await.unwrap_err();
    assert!(matches!(&error, QuicError::Refused { reason, .. } if reason.contains("client")), "{error:?}");
}

#[tokio::test]
async fn without_the_socket_a_client_on_the_node_takes_quic() {
    let mut test_home = TestHome::new();
    std::fs::remove_file(test_home.socket()).unwrap();
    let node = test_home.home.node.clone();
    let (home, client) = (test_home.home.clone(), test_home.client.clone());
    let attaching =
        tokio::spawn(
            async move { home::attach(&home, &node, Some(&client), attach_request(1), SLOT_BYTES, LONG).await },
        );
    let request = test_home.listener.accept().await.unwrap();
    assert_eq!(request.transport(), Transport::Quic);
    let slab = request.new_slab(1, SLOT_BYTES).unwrap();
    let _home = request.attached(&slab).await.unwrap();
    attaching.await.unwrap().unwrap();
    let error = home::attach(&test_home.home, &test_home.home.node, None, attach_request(1), SLOT_BYTES, LONG)
        .await
        .unwrap_err();
    assert!(matches!(error, ChannelError::Local(LocalChannelError::Io { .. })), "{error:?}");
}

#[tokio::test]
async fn a_slab_too_small_for_the_batch_is_refused_by_the_client() {
    let mut test_home = TestHome::new();
    let (request, attaching) = test_home.attach(Transport::Local, 1).await;
    let slab = request.new_slab(1, SLOT_BYTES / 2).unwrap();
    let _home = request.attached(&slab).await.unwrap();
    let error = attaching.await.unwrap().unwrap_err();
    assert!(matches!(error, ChannelError::Protocol { .. }), "{error:?}");
}

// The other process of the tests below is this same test binary; an environment variable makes it listen until it is
// killed.
const CHILD: &str = "SPDL_TEST_SOCKET";

#[test]
fn child_that_listens_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let local = LocalListener::bind(Path::new(&path), Allow::default()).unwrap();
        let mut listener = HomeListener::start(Some(local), None);
        println!("listening");
        while let Some(request) = listener.accept().await {
            tokio::spawn(deliver_all(request, 2, 1000));
        }
    });
}

/// Starts the child and waits until it listens.
fn start_child(socket: &Path) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "home::child_that_listens_until_it_is_killed", "--nocapture"])
        .env(CHILD, socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    assert!(std::io::BufRead::lines(stdout).any(|line| line.unwrap().contains("listening")), "the child listens");
    child
}

#[tokio::test]
async fn a_slab_goes_to_another_process_and_outlives_its_kill() {
    let dir = tempfile::tempdir().unwrap();
    let socket: PathBuf = dir.path().join("worker.sock");
    let mut child = start_child(&socket);
    let (mut sender, mut receiver) = home::attach_local(&socket, attach_request(2), SLOT_BYTES, LONG).await.unwrap();
    let mut held = None;
    for expected in 0..20 {
        let event = receiver.recv().await.unwrap();
        let FromHome::Filled { sequence, slot, used_bytes: bytes } = event else { panic!("{event:?}") };
        let batch = receiver.slab().read(slot).unwrap();
        assert_eq!((sequence, &batch[..bytes as usize]), (expected, &pattern(expected, bytes as usize)[..]));
        if expected == 19 {
            held = Some((batch, bytes as usize));
        } else {
            drop(batch);
            sender.free(slot).await.unwrap();
        }
    }
    let error = LocalListener::bind(&socket, Allow::default()).unwrap_err();
    assert!(matches!(error, LocalChannelError::InUse { .. }), "{error:?}");

    child.kill().unwrap();
    child.wait().unwrap();
    let lost = loop {
        match receiver.recv().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(lost.is_retryable(), "{lost:?}");
    let (batch, bytes) = held.unwrap();
    assert_eq!(batch[..bytes], pattern(19, bytes), "what was received stays whole");

    assert!(socket.exists(), "kill -9 leaves the socket's file");
    let replaced = LocalListener::bind(&socket, Allow::default()).unwrap();
    drop(replaced);
    assert!(!socket.exists(), "and an orderly end does not");
}

#[tokio::test]
async fn paths_that_cannot_be_a_socket_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(LocalListener::bind(&long, Allow::default()), Err(LocalChannelError::PathTooLong { .. })));
    let file = dir.path().join("precious");
    std::fs::write(&file, "data").unwrap();
    assert!(matches!(LocalListener::bind(&file, Allow::default()), Err(LocalChannelError::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
    let error = home::attach_local(&dir.path().join("none"), attach_request(1), SLOT_BYTES, LONG).await.unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}
