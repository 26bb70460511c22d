//! Clients that may connect, by a valid certificate or the socket's permissions, but break the protocol.

use std::time::Duration;

use futures::FutureExt;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use spdl_control::{
    Role,
    messages::{FromHome, PROTOCOL_VERSION, ToHome},
};
use spdl_testkit::processes::LIMIT;
use spdl_types::{DType, Stage};
use spdl_wire::{
    frame::{self, MAGIC},
    home::{self, Attach, ClientReceiver, ClientSender},
    quic::{self, QuicError},
};
use tokio::{io::AsyncReadExt, io::AsyncWriteExt, net::UnixStream};

use super::attacked_cluster::AttackedCluster;

/// Returns a frame's head that claims a message of 4 GiB.
fn oversized_head() -> Vec<u8> {
    [&MAGIC[..], &PROTOCOL_VERSION.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Opens a control stream to the worker and sends `first` on it.
async fn say(connection: &Connection, first: &[u8]) -> (SendStream, RecvStream) {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(first).await.unwrap();
    (send, receive)
}

fn framed(messages: &[ToHome]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| frame::append_frame(message, &mut bytes).unwrap());
    bytes
}

/// Attaches as the protocol requires, on either transport.
async fn attach(
    attacked: &AttackedCluster,
    endpoint: &Endpoint,
    rank: u32,
    is_local: bool,
) -> (ClientSender, ClientReceiver) {
    let ToHome::Attach { session, rank, from, slots, client, .. } = attacked.attach(rank, 8) else { unreachable!() };
    let slot_bytes = session.layout().slot_bytes();
    let wish = Attach { session, rank, from, slots, client, is_shared: false, receive: Attach::counters() };
    if is_local {
        return home::attach_local(&attacked.cluster.workers[0].socket, wish, slot_bytes, LIMIT).await.unwrap();
    }
    home::attach_quic(vec![attacked.connect(endpoint).await], wish, slot_bytes, LIMIT).await.unwrap()
}

#[test]
fn clients_that_only_take_cost_the_others_nothing() {
    let attacked = AttackedCluster::start();
    let endpoint = attacked.endpoint(&attacked.identity(Role::Client));
    let mut holders = Vec::new();
    attacked.runtime.block_on(async {
        // Two clients that never free a slot.
        for is_local in [true, false] {
            let mut holder = attach(&attacked, &endpoint, holders.len() as u32, is_local).await;
            let first = within("a batch", holder.1.recv()).await.unwrap();
            assert!(matches!(first, FromHome::Filled { sequence: 0, .. }), "{first:?}");
            holders.push(holder);
        }
        // A client that reads a byte a second, and one that sends requests without end and reads no answer.
        let slow = attacked.connect(&endpoint).await;
        let (_said, mut answer) = say(&slow, &framed(&[attacked.attach(2, 4)])).await;
        let attached = within("an answer", frame::read_frame::<FromHome>(&mut answer)).await.unwrap();
        assert!(matches!(attached, Some(FromHome::Attached { .. })), "{attached:?}");
        tokio::spawn(async move {
            let mut batch = slow.accept_uni().await.unwrap();
            while batch.read_exact(&mut [0]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            drop((slow, _said, answer));
        });
        let mut curious = UnixStream::connect(&attacked.cluster.workers[0].socket).await.unwrap();
        curious.write_all(&framed(&[attacked.attach(3, 4)])).await.unwrap();
        tokio::spawn(async move {
            let questions = framed(&vec![ToHome::Explain; 1000]);
            while curious.write_all(&questions).await.is_ok() {}
        });
        // Many authenticated connections without a message, and one that opens as many streams as it can.
        for _ in 0..100 {
            let silent = attacked.connect(&endpoint).await;
            tokio::spawn(async move { silent.closed().await });
        }
        let greedy = attacked.connect(&endpoint).await;
        let mut streams = Vec::new();
        while let Some(Ok(stream)) = greedy.open_bi().now_or_never() {
            streams.push(stream);
            assert!(streams.len() <= 64, "the worker lets a client open {} streams", streams.len());
        }
        assert!(greedy.open_uni().now_or_never().is_none(), "a worker takes no streams of one direction");
        tokio::spawn(async move {
            greedy.closed().await;
            drop(streams);
        });
    });
    attacked.ranks_finish("takers");
    attacked.runtime.block_on(async {
        for (mut sender, mut receiver) in holders {
            // When all its slots are full, a client that frees none waits only for itself.
            let waits_for_itself = async {
                sender.explain().await.unwrap();
                loop {
                    match receiver.recv().await.unwrap() {
                        FromHome::Explained(Some(stall)) if stall.stage == Stage::HandOver => return,
                        FromHome::Explained(_) => sender.explain().await.unwrap(),
                        FromHome::Filled { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
            };
            within("an explanation", waits_for_itself).await;
        }
    });
}

/// Sends `bytes`, which break the protocol, and returns the worker's last fault message and the reason for closing.
async fn offend(connection: &Connection, bytes: &[u8]) -> String {
    let (_send, mut receive) = say(connection, bytes).await;
    let mut last = String::new();
    let ended = async {
        while let Ok(Some(answer)) = frame::read_frame::<FromHome>(&mut receive).await {
            if let FromHome::Fault { message, .. } = answer {
                last = message;
            }
        }
        connection.closed().await
    };
    let reason = within("the end of the connection", ended).await;
    let reason = QuicError::of(reason, connection.remote_address()).to_string();
    format!("{last} {reason}")
}

#[test]
fn clients_that_break_the_protocol_get_the_reason_and_cost_the_others_nothing() {
    let attacked = AttackedCluster::start();
    let endpoint = attacked.endpoint(&attacked.identity(Role::Client));
    let ToHome::Attach { session, rank, from, slots, client, join_key } = attacked.attach(3, 4) else { unreachable!() };
    let mut hostile = session.clone();
    hostile.job.columns[0].dtype = DType::I64;
    let hostile = ToHome::Attach { session: hostile, rank, from, slots, client, join_key };
    let attach = attacked.attach(3, 4);
    // Frees slots again and again, whether or not the worker has filled them.
    let guesses = (0..40).map(|guess| ToHome::Freed { slot: guess % 4, is_locked: guess % 3 == 0 });
    let guesses: Vec<ToHome> = std::iter::once(attach.clone()).chain(guesses).collect();
    let offences: [(Vec<u8>, &str); 7] = [
        (framed(&[attach.clone(), ToHome::Freed { slot: 9999, is_locked: true }]), "freed slot 9999"),
        (framed(&guesses), "freed slot"),
        (framed(&[attach.clone(), attach.clone()]), "attached twice"),
        (framed(&[ToHome::Explain]), "first message was Explain"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not a part of spdl-cluster"),
        (oversized_head(), "4294967295 bytes"),
        (framed(&[hostile]), "`dtype`"),
    ];
    attacked.runtime.block_on(async {
        for (bytes, expected) in &offences {
            let reason = offend(&attacked.connect(&endpoint).await, bytes).await;
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
        // The same over the socket, where the worker closes the connection.
        for (bytes, _) in &offences {
            let mut stream = UnixStream::connect(&attacked.cluster.workers[0].socket).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let _ = within("the end", stream.read_to_end(&mut Vec::new())).await;
        }
        // Similar bytes to the coordinator.
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), oversized_head(), framed(std::slice::from_ref(&attach))] {
            let connection = quic::connect(&endpoint, attacked.coordinator(), Role::Coordinator, LIMIT).await.unwrap();
            let (_send, _receive) = say(&connection, &bytes).await;
            let reason = within("the end", connection.closed()).await;
            let error = QuicError::of(reason, attacked.coordinator());
            assert!(matches!(error, QuicError::Refused { .. }), "{error:?}");
        }
    });
    attacked.ranks_finish("offenders");
}
