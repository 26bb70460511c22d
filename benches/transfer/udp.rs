//! The packets of QUIC without QUIC: the same calls of the kernel, with packets of the same size, copied as they have to be, and
//! neither encrypted nor repeated. A packet back now and then keeps the sender from overrunning the receiver.

use std::{
    future::poll_fn,
    io::IoSliceMut,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{
    AsyncUdpSocket, Runtime, TokioRuntime,
    udp::{RecvMeta, Transmit},
};
use spdl_wire::quic::QuicSettings;

use crate::meter::Meter;

/// The bytes that may be in flight, and the bytes after which the receiver sends a report.
const IN_FLIGHT: u64 = 1 << 20;
const REPORT_BYTES: u64 = 256 << 10;
/// The most bytes that one call sends.
const MAX_CALL: usize = 65_507;
/// After this time without a report, the sender assumes that packets were lost.
const LOST: Duration = Duration::from_millis(200);

fn socket(settings: &QuicSettings) -> (Arc<dyn AsyncUdpSocket>, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, settings.socket_buffer_bytes).expect("a buffer");
    let address = socket.local_addr().expect("bound");
    (TokioRuntime.wrap_udp_socket(socket).expect("a socket"), address)
}

async fn send_call(socket: &Arc<dyn AsyncUdpSocket>, transmit: &Transmit<'_>) {
    let mut poller = Arc::clone(socket).create_io_poller();
    while socket.try_send(transmit).is_err() {
        poll_fn(|context| poller.as_mut().poll_writable(context)).await.expect("it can be written");
    }
}

/// Receives with one call of the kernel: several bursts, each of several packets.
async fn receive_call(socket: &Arc<dyn AsyncUdpSocket>, buffers: &mut [Vec<u8>], meta: &mut [RecvMeta]) -> usize {
    let mut slices: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
    poll_fn(|context| socket.poll_recv(context, &mut slices, meta)).await.expect("the peer is there")
}

/// Sends the batch for ever, to the sender of the first packet.
pub(crate) async fn send(batch: &[u8], settings: &QuicSettings, announce: impl FnOnce(SocketAddr)) {
    let (socket, address) = socket(settings);
    announce(address);
    let (mut buffers, mut meta) = (vec![vec![0; 2048]; 32], [RecvMeta::default(); 32]);
    receive_call(&socket, &mut buffers, &mut meta).await;
    let destination = meta[0].addr;
    let segment = usize::from(settings.max_udp_payload_bytes);
    // As many packets in a call as quinn sends.
    let call_bytes = (MAX_CALL / segment).min(10) * segment;
    let mut packets = vec![0; call_bytes];
    let (mut sent, mut reported) = (0, 0);
    for part in batch.chunks(call_bytes).cycle() {
        while u64::saturating_sub(sent, reported) > IN_FLIGHT {
            match tokio::time::timeout(LOST, receive_call(&socket, &mut buffers, &mut meta)).await {
                Ok(count) => {
                    let reports =
                        meta[..count].iter().zip(&buffers).flat_map(|(meta, bytes)| bytes[..meta.len].chunks(8));
                    let last = reports.map(|report| u64::from_le_bytes(report.try_into().expect("8 bytes"))).max();
                    reported = reported.max(last.unwrap_or_default());
                }
                Err(_) => sent = reported,
            }
        }
        packets[..part.len()].copy_from_slice(part);
        let segment_size = (part.len() > segment).then_some(segment);
        let contents = &packets[..part.len()];
        send_call(&socket, &Transmit { destination, ecn: None, contents, segment_size, src_ip: None }).await;
        sent += part.len() as u64;
    }
}

/// Receives into a batch, over and over.
pub(crate) async fn receive(sender: SocketAddr, settings: &QuicSettings, mut meter: Meter) {
    let (socket, _) = socket(settings);
    let report = async |received: u64| {
        let contents = &received.to_le_bytes();
        send_call(&socket, &Transmit { destination: sender, ecn: None, contents, segment_size: None, src_ip: None })
            .await;
    };
    report(0).await;
    let (mut buffers, mut meta) = (vec![vec![0; 1 << 16]; 32], [RecvMeta::default(); 32]);
    let mut batch = vec![0; crate::BATCH_BYTES];
    let (mut filled, mut received, mut reported) = (0, 0, 0);
    loop {
        let count = receive_call(&socket, &mut buffers, &mut meta).await;
        for (bytes, meta) in buffers.iter().zip(&meta[..count]) {
            if filled + meta.len > batch.len() {
                meter.add(filled);
                filled = 0;
            }
            batch[filled..filled + meta.len].copy_from_slice(&bytes[..meta.len]);
            filled += meta.len;
            received += meta.len as u64;
        }
        if received - reported >= REPORT_BYTES {
            reported = received;
            report(received).await;
        }
    }
}
