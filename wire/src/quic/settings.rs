//! The knobs of a QUIC endpoint.

use std::{net::UdpSocket, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    congestion::CubicConfig,
};
use rustix::net::sockopt;

use super::varint;

/// Batches that a home may have on their way to a client at once, each on a stream of its own.
const MAX_BATCHES: u64 = 512;
/// Requests that a client may have open at a server at once.
const MAX_REQUESTS: u64 = 16;
/// Bytes of connections in their handshake that a server holds until it looks at them: of one, and of all.
const HANDSHAKE_BYTES: u64 = 64 << 10;
const ALL_HANDSHAKE_BYTES: u64 = 8 << 20;

/// How a QUIC endpoint behaves. The defaults are for bulk data in a data centre and on loopback.
#[derive(Clone, Debug)]
pub struct QuicSettings {
    /// A connection that hears nothing for this long is dead. Default 5 s. Raised: a peer that went away without a word
    /// is noticed later. Lowered: a process that does not get the CPU for that long loses its connections.
    pub idle_timeout: Duration,
    /// Something is sent at least this often. Default 1 s. Raised above the idle timeout: idle connections die.
    pub keep_alive: Duration,
    /// Bytes on their way in one stream. Default 16 MiB: 10 Gbit/s at 13 ms. Raised: more memory when a reader stops.
    pub stream_window_bytes: u64,
    /// Bytes on their way in one connection, each direction. Default 64 MiB. Raised: as above.
    pub connection_window_bytes: u64,
    /// Bytes that a client may send to a server beyond those that it has read, in all streams of a connection. Default 256
    /// KiB: requests are short. Raised: more memory for a client to take that sends and is not read.
    pub request_window_bytes: u64,
    /// Bytes sent before the first acknowledgement. Default 256 KiB. Raised: a burst that a slow path may drop. Below
    /// twice the largest payload, a probe for the payload's size on its way can hold back the notice of closing.
    pub initial_window_bytes: u64,
    /// The largest UDP payload tried. Default 8,952: a 9,000-byte Ethernet frame; discovery finds what the path carries.
    /// Raised: larger receive buffers; paths that drop large packets silently take longer to settle.
    pub max_udp_payload_bytes: u16,
    /// UDP payload that a connection starts with. Default 1,200, which every path carries. Raised: connections over
    /// paths that carry less fail.
    pub initial_udp_payload_bytes: u16,
    /// Packets that may arrive without an acknowledgement being sent; the next one brings it. Default 1. Raised: fewer
    /// packets back; after a burst that overran the receiver's buffer, stalls of a second and more.
    pub ack_every_packets: u32,
    /// Buffers of the socket, each direction. Default 4 MiB, or what the kernel allows (`net.core.rmem_max`).
    /// Raised: more kernel memory; lowered: packets are lost when the process is not scheduled.
    pub socket_buffer_bytes: usize,
    /// Whether the kernel cuts and joins packets (GSO). Default yes. Some virtual networks do it wrong.
    pub segmentation_offload: bool,
    /// Connections in their handshake at once. Default 1,024. Raised: more memory for an attacker to take.
    pub max_handshakes: usize,
}

impl Default for QuicSettings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(1),
            stream_window_bytes: 16 << 20,
            connection_window_bytes: 64 << 20,
            request_window_bytes: 256 << 10,
            initial_window_bytes: 256 << 10,
            max_udp_payload_bytes: 8952,
            initial_udp_payload_bytes: 1200,
            ack_every_packets: 1,
            socket_buffer_bytes: 4 << 20,
            segmentation_offload: true,
            max_handshakes: 1024,
        }
    }
}

impl QuicSettings {
    /// Of connections that we make: batches come in, on streams that the other side opens.
    pub(super) fn client_transport(&self) -> Arc<TransportConfig> {
        let mut config = self.transport();
        config
            .stream_receive_window(varint(self.stream_window_bytes))
            .receive_window(varint(self.connection_window_bytes))
            .max_concurrent_bidi_streams(varint(0))
            .max_concurrent_uni_streams(varint(MAX_BATCHES));
        Arc::new(config)
    }

    /// Of connections that others make: requests come in, and nothing else.
    pub(super) fn limit_server(&self, server: &mut ServerConfig) {
        let mut config = self.transport();
        config
            .stream_receive_window(varint(self.request_window_bytes))
            .receive_window(varint(self.request_window_bytes))
            .max_concurrent_bidi_streams(varint(MAX_REQUESTS))
            .max_concurrent_uni_streams(varint(0));
        server
            .transport_config(Arc::new(config))
            .max_incoming(self.max_handshakes)
            .incoming_buffer_size(HANDSHAKE_BYTES)
            .incoming_buffer_size_total(ALL_HANDSHAKE_BYTES);
    }

    fn transport(&self) -> TransportConfig {
        let mut acks = AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(varint(self.ack_every_packets.into()));
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.max_udp_payload_bytes);
        let mut congestion = CubicConfig::default();
        congestion.initial_window(self.initial_window_bytes);
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(Arc::new(congestion))
            .max_idle_timeout(IdleTimeout::try_from(self.idle_timeout).ok())
            .keep_alive_interval(Some(self.keep_alive))
            .send_window(self.connection_window_bytes)
            // A batch goes out whole before the next: the trainer waits for the first, not for all of them.
            .send_fairness(false)
            .initial_mtu(self.initial_udp_payload_bytes.max(1200))
            .mtu_discovery_config(Some(discovery))
            .ack_frequency_config(Some(acks))
            .datagram_receive_buffer_size(None)
            .enable_segmentation_offload(self.segmentation_offload);
        config
    }

    pub(super) fn endpoint(&self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        // Refused only below 1,200 bytes.
        let _ = config.max_udp_payload_size(self.max_udp_payload_bytes.max(1200));
        config
    }

    /// Asks for the socket's buffers: beyond the kernel's limit where we may, up to it where not.
    pub(super) fn size_buffers(&self, socket: &UdpSocket) {
        let bytes = self.socket_buffer_bytes;
        if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(socket, bytes);
        }
        if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(socket, bytes);
        }
    }
}
