//! Paths between processes: messages through the codec, and a batch from the home's slot to the client and back.

use std::{hint::black_box, path::Path};

use spdl_control::messages::{FromHome, ToCoordinator, ToHome};
use spdl_testkit::{
    LONG,
    home::{attach_request, worker_heartbeat},
};
use spdl_wire::{
    frame::{self, Message},
    home::{Attach, HomeListener, attach_local},
    local::{Allow, LocalListener},
};

const SLOTS: u32 = 4;
const BATCH_BYTES: usize = 64 * 224 * 224 * 3;

fn round_trips<M: Message>(message: &M, count: u64) {
    let mut bytes = Vec::new();
    for _ in 0..count {
        frame::append_frame(black_box(message), &mut bytes).expect("it encodes");
        black_box(frame::take_frame::<M>(&mut bytes).expect("it decodes").expect("it is whole"));
    }
}

/// Encodes and decodes a worker's heartbeat.
pub(crate) fn heartbeats(_: &Path, count: u64) {
    round_trips(&ToCoordinator::WorkerHeartbeat(worker_heartbeat()), count);
}

/// Encodes and decodes the message with which a rank attaches to its home. It contains the whole session.
pub(crate) fn attaches(_: &Path, count: u64) {
    let Attach { session, rank, from, slots, client, .. } = attach_request(SLOTS);
    round_trips(&ToHome::Attach { session, rank, from, slots, client, join_key: None }, count);
}

/// Hands batches over on the local channel, both ends of which are in this thread: the home publishes a slot and announces it, the
/// client receives it and frees it, and the home gets it back.
pub(crate) fn hand_over(_: &Path, batches: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("home.sock");
    runtime.block_on(async {
        let local = LocalListener::bind(&socket, Allow::default()).expect("bound");
        let mut listener = HomeListener::start(Some(local), None);
        let home = async {
            let request = listener.accept().await.expect("a client");
            let slab = request.new_slab(SLOTS, BATCH_BYTES).expect("memory");
            let (sender, receiver) = request.attached(&slab).await.expect("attached");
            (slab, sender, receiver)
        };
        let client = attach_local(&socket, attach_request(SLOTS), BATCH_BYTES, LONG);
        let ((slab, mut announce, mut returned), client) = tokio::join!(home, client);
        let (mut free, mut receive) = client.expect("attached");
        for sequence in 0..batches {
            let slot = slab.take_any().expect("a slot is free").publish();
            announce.deliver(sequence, slot, BATCH_BYTES as u64).await.expect("the client is there");
            let filled = receive.recv().await.expect("the home is there");
            assert!(matches!(filled, FromHome::Filled { slot: filled, .. } if filled == slot), "{filled:?}");
            free.free(slot).await.expect("the home is there");
            let freed = returned.recv().await.expect("the client is there");
            assert!(matches!(freed, Some(ToHome::Freed { slot: freed, .. }) if freed == slot), "{freed:?}");
        }
    });
}
