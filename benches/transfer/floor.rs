//! The floor of the cost of a batch: only copies, encryption and decryption.

use std::{hint::black_box, time::Duration};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use rustix::time::{ClockId, clock_gettime};

use crate::BATCH_BYTES;

/// The bytes that QUIC encrypts in a packet with the largest payload.
const PACKET_BYTES: usize = 8952 - 30;
/// How often each step is repeated.
const TIMES: usize = 100;
/// As many buffers as a slab has slots, so that the processor's caches hold no larger part of them than of a slab.
const BUFFERS: usize = 4;

/// CPU time for a batch, in milliseconds.
pub(crate) struct Floor {
    /// Three copies: into packets, from these into received packets, and out of the received packets.
    pub(crate) copies_ms: f64,
    pub(crate) seal_ms: f64,
    pub(crate) open_ms: f64,
}

pub(crate) fn measure() -> Floor {
    let mut buffers: Vec<Vec<u8>> = (0..BUFFERS).map(|fill| vec![fill as u8; BATCH_BYTES]).collect();
    let mut copies = buffers.clone();
    let (mut sent, mut received) = (vec![0; PACKET_BYTES], vec![0; PACKET_BYTES]);
    let copies_ms = timed(TIMES, |turn| {
        let parts = buffers[turn % BUFFERS].chunks(PACKET_BYTES).zip(copies[turn % BUFFERS].chunks_mut(PACKET_BYTES));
        for (from, to) in parts {
            sent[..from.len()].copy_from_slice(black_box(from));
            received[..from.len()].copy_from_slice(black_box(&sent[..from.len()]));
            to.copy_from_slice(black_box(&received[..from.len()]));
        }
    });
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key of 16 bytes"));
    let nonce = |packet: usize| {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&(packet as u64).to_le_bytes());
        Nonce::assume_unique_for_key(bytes)
    };
    let mut tags: [Vec<Tag>; BUFFERS] = Default::default();
    let seal_ms = timed(TIMES, |turn| {
        let seal = |(packet, bytes)| key.seal_in_place_separate_tag(nonce(packet), Aad::empty(), bytes).expect("short");
        tags[turn % BUFFERS] = buffers[turn % BUFFERS].chunks_mut(PACKET_BYTES).enumerate().map(seal).collect();
    });
    let mut opened = vec![0; PACKET_BYTES];
    let open_ms = timed(TIMES, |turn| {
        let sealed = buffers[turn % BUFFERS].chunks(PACKET_BYTES).zip(&tags[turn % BUFFERS]);
        for (packet, (bytes, tag)) in sealed.enumerate() {
            let out = &mut opened[..bytes.len()];
            key.open_separate_gather(nonce(packet), Aad::empty(), bytes, tag.as_ref(), out).expect("as it was sealed");
        }
    });
    Floor { copies_ms, seal_ms, open_ms }
}

/// Returns the mean CPU time of this thread for a turn, in milliseconds, over `times` turns.
pub(crate) fn timed(times: usize, mut turn: impl FnMut(usize)) -> f64 {
    (0..BUFFERS).for_each(&mut turn);
    let before = thread_time();
    (0..times).for_each(&mut turn);
    (thread_time() - before).as_secs_f64() * 1e3 / times as f64
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
