//! Homes and coordinators that break the protocol: the client leaves them, reports why, and continues where it can.

use std::{os::fd::AsFd, time::Duration};

use crate::cluster::{
    LONG, TestCluster, Watched,
    coordinator::TestCoordinator,
    home::{HomeScript, ScriptedHome},
    job, session, take,
};
use quinn::{Connection, SendStream};
use spdl_client::{Client, ClientError};
use spdl_control::{
    Role,
    client::AllowedTransports,
    messages::{FromCoordinator, FromHome, Home, PROTOCOL_VERSION, Session, StartReason, ToHome},
};
use spdl_types::{DType, NodeId, Position, WorkerId};
use spdl_wire::{
    codec,
    frame::{self, FrameReader, MAGIC},
    local,
    quic::{HANDSHAKE_TIMEOUT, handshake},
    slab::Slab,
};
use tokio::io::AsyncWriteExt;

/// What a hostile home does after a rank has attached to it.
#[derive(Clone, Copy, Debug)]
enum Offence {
    Garbage,
    OversizedFrame,
    /// Attaches with more slots than were requested.
    ManySlots,
    FilledBeforeAttached,
    UnaskedExplanation,
    SlotOutOfRange,
    SlotTwice,
    TooLongForItsSlot,
    SequenceTwice,
    SequenceFarAhead,
    /// Sends a batch of zeros.
    NoBatch,
    /// Sends a batch that ends before its length.
    CutBatch,
    /// Ends the stream where a batch must come.
    EarlyEnd,
}

/// Each offence with words of the reason that the client reports for it.
const OFFENCES: [(Offence, &str); 13] = [
    (Offence::Garbage, "not a part of spdl-cluster"),
    (Offence::OversizedFrame, "4294967295 bytes"),
    (Offence::ManySlots, "4000 slots were given"),
    (Offence::FilledBeforeAttached, "arrived before Attached"),
    (Offence::UnaskedExplanation, "an explanation that was not requested"),
    (Offence::SlotOutOfRange, "slot 77"),
    (Offence::SlotTwice, "slot 0"),
    (Offence::TooLongForItsSlot, "the slot has"),
    (Offence::SequenceTwice, "number 1 twice"),
    (Offence::SequenceFarAhead, "number 900 where 0 is next"),
    (Offence::NoBatch, "SPDB"),
    (Offence::CutBatch, "ended inside a batch"),
    (Offence::EarlyEnd, "it ended at"),
];

/// Starts a home that attaches each rank over QUIC and then breaks the protocol.
fn hostile_home(cluster: &TestCluster, offence: Offence) -> (Home, quinn::Endpoint) {
    let (endpoint, quic) = cluster.server(Role::Worker);
    let serving = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = serving.accept().await {
            tokio::spawn(async move {
                // A client that learned of another home may be gone by then.
                let Ok((connection, _)) = handshake(incoming, &[Role::Client], HANDSHAKE_TIMEOUT).await else { return };
                let (send, receive) = connection.accept_bi().await.unwrap();
                let mut frames = FrameReader::new(receive, Vec::new());
                let attach = frames.next::<ToHome>().await.unwrap();
                let Some(ToHome::Attach { session, slots, .. }) = attach else { panic!("{attach:?}") };
                // A client that detects the offence closes the connection in the middle of it.
                let _ = offend(offence, send, &connection, &session, slots).await;
                connection.closed().await;
            });
        }
    });
    let home =
        Home { worker: WorkerId(666), name: "hostile".into(), node: NodeId("elsewhere".into()), quic, socket: None };
    (home, endpoint)
}

async fn offend(
    offence: Offence,
    mut control: SendStream,
    connection: &Connection,
    session: &Session,
    slots: u32,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let attached = |slots| FromHome::Attached { slots, slot_stride: 1 << 20 };
    match offence {
        Offence::Garbage => control.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await?,
        Offence::OversizedFrame => {
            let head = [&MAGIC[..], &PROTOCOL_VERSION.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
            control.write_all(&head).await?;
        }
        Offence::ManySlots => frame::write_frame(&mut control, &attached(4000)).await?,
        Offence::FilledBeforeAttached => {
            let filled = FromHome::Filled { sequence: 0, slot: 0, used_bytes: 1 };
            frame::write_frame(&mut control, &filled).await?;
        }
        _ => {
            frame::write_frame(&mut control, &attached(slots)).await?;
            offend_attached(offence, &mut control, connection, session).await?;
        }
    }
    // Keep the stream open until the client has closed the connection.
    connection.closed().await;
    Ok(())
}

async fn offend_attached(
    offence: Offence,
    control: &mut SendStream,
    connection: &Connection,
    session: &Session,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let slot_bytes = session.layout().slot_bytes();
    let zeros = vec![0; slot_bytes];
    let batches: &[(u64, u32, u64, &[u8])] = match offence {
        Offence::SlotOutOfRange => &[(0, 77, 10, &zeros[..10])],
        // Neither batch is complete, so that both hold their slot.
        Offence::SlotTwice => &[(0, 0, 100, &zeros[..10]), (1, 0, 100, &zeros[..10])],
        Offence::TooLongForItsSlot => &[(0, 0, 1 << 40, &zeros[..10])],
        Offence::SequenceTwice => &[(1, 0, 10, &zeros[..10]), (1, 1, 10, &zeros[..10])],
        Offence::SequenceFarAhead => &[(900, 0, 10, &zeros[..10])],
        Offence::NoBatch => &[(0, 0, slot_bytes as u64, &zeros)],
        Offence::CutBatch => &[(0, 0, 100, &zeros[..10])],
        _ => &[],
    };
    let mut open = Vec::new();
    for (sequence, slot, used_bytes, bytes) in batches {
        let mut stream = connection.open_uni().await?;
        let filled = FromHome::Filled { sequence: *sequence, slot: *slot, used_bytes: *used_bytes };
        frame::write_frame(&mut stream, &filled).await?;
        stream.write_all(bytes).await?;
        if matches!(offence, Offence::SlotTwice) {
            open.push(stream);
        } else {
            stream.finish()?;
        }
    }
    match offence {
        Offence::UnaskedExplanation => frame::write_frame(control, &FromHome::Explained(None)).await?,
        Offence::EarlyEnd => {
            frame::write_frame(control, &FromHome::End { sequence: 0, position: Position::new(2, 0) }).await?;
        }
        _ => {}
    }
    connection.closed().await;
    Ok(())
}

/// Waits until the reported reason for the missing batch contains `expected`.
async fn wait_for_reason(client: &mut Client, expected: &str) {
    let mut last = String::new();
    let asking = async {
        while !last.contains(expected) {
            match client.next_within(Duration::from_millis(20)).await {
                Err(error @ ClientError::Timeout { .. }) => last = error.to_string(),
                other => panic!("{expected}: {other:?}"),
            }
        }
    };
    let is_found = tokio::time::timeout(LONG, asking).await.is_ok();
    assert!(is_found, "`{expected}` never comes, but: {last}");
}

async fn all_batches(client: &mut Client) -> Vec<Position> {
    let mut seen = Vec::new();
    while let Some(batch) = client.next().await.unwrap() {
        seen.push(batch.from());
    }
    seen
}

/// Returns the positions of all steps: two epochs of 50 samples in batches of 8.
fn all_steps() -> Vec<Position> {
    (0..2).flat_map(|epoch| (0..6).map(move |step| Position::new(epoch, step * 8))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_breaks_the_protocol_is_left_and_named_and_another_serves() {
    for (offence, expected) in OFFENCES {
        let cluster = TestCluster::new();
        let (home, _endpoint) = hostile_home(&cluster, offence);
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.clone()]);
        let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
        wait_for_reason(&mut client, expected).await;
        wait_for_reason(&mut client, "home `hostile`").await;
        let reported = coordinator
            .record
            .wait("the report", |record| record.heartbeats.iter().find_map(|heartbeat| heartbeat.unreachable))
            .await;
        assert_eq!(reported, home.worker, "{offence:?}");
        let good = ScriptedHome::start(&cluster, 1, HomeScript::default());
        coordinator.record.change(|record| record.homes.push(good.home.clone()));
        assert_eq!(all_batches(&mut client).await, all_steps(), "{offence:?}");
    }
}

/// What a hostile home passes over the socket as its slab.
#[derive(Clone, Copy, Debug)]
enum Passed {
    Nothing,
    /// A file that is not sealed.
    File,
    /// A slab of another size.
    Smaller,
    /// A valid slab, followed by the number of a slot that it does not have.
    Slab,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_descriptor_that_is_no_slab_is_refused_and_the_socket_left_for_quic() {
    for passed in [Passed::Nothing, Passed::File, Passed::Smaller, Passed::Slab] {
        let cluster = TestCluster::new();
        let good = ScriptedHome::start(&cluster, 1, HomeScript::default());
        let path = cluster.path("hostile.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let attempts = Watched::new(0);
        let seen = attempts.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let attach = frame::read_frame::<ToHome>(&mut stream).await.unwrap();
                let Some(ToHome::Attach { slots, session, .. }) = attach else { panic!("{attach:?}") };
                let slab = Slab::shared(slots, session.layout().slot_bytes()).unwrap();
                let small = Slab::shared(1, 1).unwrap();
                let file = tempfile::tempfile().unwrap();
                let message = FromHome::Attached { slots, slot_stride: slab.slot_stride() as u64 };
                let fd = match passed {
                    Passed::Nothing => None,
                    Passed::File => Some(file.as_fd()),
                    Passed::Smaller => small.fd(),
                    Passed::Slab => slab.fd(),
                };
                let _ = match fd {
                    Some(fd) => local::send_with_fd(&stream, &message, fd).await,
                    None => frame::write_frame(&mut stream, &message).await,
                };
                let filled = FromHome::Filled { sequence: 0, slot: slots, used_bytes: 10 };
                let _ = frame::write_frame(&mut stream, &filled).await;
                seen.change(|seen| *seen += 1);
            }
        });
        let home = Home { socket: Some(path.to_str().unwrap().to_owned()), ..good.home.clone() };
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home]);
        let client = cluster.client(coordinator.address);
        if matches!(passed, Passed::Slab) {
            let mut client = client.transports(AllowedTransports::Local).connect(0, 1).await.unwrap();
            wait_for_reason(&mut client, "it filled slot 3").await;
        } else {
            let mut client = client.connect(0, 1).await.unwrap();
            assert_eq!(all_batches(&mut client).await, all_steps(), "{passed:?}");
        }
        attempts.wait("an attempt over the socket", |seen| (*seen > 0).then_some(())).await;
    }
}

/// Starts a coordinator that sends these bytes as answers, one per request, and repeats the last.
fn raw_coordinator(cluster: &TestCluster, answers: Vec<Vec<u8>>) -> (std::net::SocketAddr, Watched<usize>) {
    let (endpoint, address) = cluster.server(Role::Coordinator);
    let asked = Watched::new(0_usize);
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let (answers, asked) = (answers.clone(), counted.clone());
            tokio::spawn(async move {
                let (connection, _) = handshake(incoming, &[Role::Client], HANDSHAKE_TIMEOUT).await.unwrap();
                while let Ok((mut send, _receive)) = connection.accept_bi().await {
                    let number = asked.change(|asked| {
                        *asked += 1;
                        *asked - 1
                    });
                    let answer = &answers[number.min(answers.len() - 1)];
                    let _ = send.write_all(answer).await;
                    let _ = send.shutdown().await;
                }
            });
        }
    });
    (address, asked)
}

fn framed(answer: &FromCoordinator) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append_frame(answer, &mut bytes).unwrap();
    bytes
}

fn joined(session: Session, home: Option<Home>) -> Vec<u8> {
    framed(&FromCoordinator::Joined {
        session: Box::new(session),
        reason: StartReason::default(),
        home,
        heartbeat_ms: 20,
    })
}

/// Returns invalid answers: nothing, another protocol, a frame of 4 GiB, a truncated message, a message with extra
/// bytes, and the answer to another request.
fn nonsense() -> Vec<Vec<u8>> {
    let mut left_over = Vec::new();
    codec::encode(&FromCoordinator::Done, &mut left_over).unwrap();
    left_over.push(0);
    let head = |bytes: u32| [&MAGIC[..], &PROTOCOL_VERSION.to_le_bytes(), &bytes.to_le_bytes()].concat();
    vec![
        vec![],
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        head(u32::MAX),
        [head(100), vec![1, 2, 3]].concat(),
        [head(left_over.len() as u32), left_over].concat(),
        framed(&FromCoordinator::Status("{}".into())),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_gets_an_invalid_answer_is_repeated_before_and_after_the_join() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let good = joined(session(1), Some(home.home.clone()));
    let answers: Vec<Vec<u8>> = nonsense().into_iter().chain([good]).chain(nonsense()).collect();
    let last = answers.len();
    let (address, asked) = raw_coordinator(&cluster, answers);
    let mut client = cluster.client(address).connect(0, 1).await.unwrap();
    // The other invalid answers arrive while the client runs, and do not stop it.
    let mut seen = take(&mut client, 3, |batch| batch.from()).await;
    asked.wait("all of the nonsense", |asked| (*asked >= last).then_some(())).await;
    seen.extend(all_batches(&mut client).await);
    assert_eq!(seen, all_steps());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_makes_no_sense_is_refused_by_the_client() {
    type SessionEdit = fn(&mut Session);
    let changes: [(SessionEdit, &str); 5] = [
        (|session| session.job.columns[2].dtype = DType::U8, "`dtype`"),
        (|session| session.job.samples = 0, "no samples"),
        (|session| session.job.epochs = u64::MAX, "2^62"),
        (|session| session.global_batch = 0, "world 1 is more than the global batch of 0"),
        (|session| session.global_batch = u32::MAX, "more than the"),
    ];
    for (change, expected) in changes {
        let cluster = TestCluster::new();
        let mut wrong = session(1);
        change(&mut wrong);
        let (address, _) = raw_coordinator(&cluster, vec![joined(wrong, None)]);
        let error = cluster.client(address).connect(0, 1).await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&job().name), "{expected}: {error}");
    }
}
