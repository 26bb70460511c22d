//! The settings of a QUIC endpoint.

use std::{net::UdpSocket, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    congestion::CubicConfig,
};
use rustix::net::sockopt;

use super::varint;

/// The most batches that a home may have in flight to a client, each on its own stream.
const MAX_BATCHES: u64 = 512;
/// The most requests that a client may have open at a server.
const MAX_REQUESTS: u64 = 16;
/// The most bytes that a server buffers for connections that it has not accepted yet: for one connection, and for all.
const HANDSHAKE_BYTES: u64 = 64 << 10;
const ALL_HANDSHAKE_BYTES: u64 = 8 << 20;

/// The settings of a QUIC endpoint. The defaults suit bulk data in a data centre and on loopback.
#[derive(Clone, Debug)]
pub struct QuicSettings {
    /// A connection that receives nothing for this long is dead. Default 5 s. Raised: a peer that vanished is noticed
    /// later. Lowered: a process that gets no CPU time for that long loses its connections.
    pub idle_timeout: Duration,
    /// A packet is sent at least this often. Default 1 s. Raised above the idle timeout: idle connections end.
    pub keep_alive: Duration,
    /// The most bytes in flight in one stream. Default 16 MiB: 10 Gbit/s at 13 ms. Raised: more memory when a reader
    /// stops.
    pub stream_window_bytes: u64,
    /// The most bytes in flight in one connection, each direction. Default 64 MiB. Raised: more memory when a reader
    /// stops.
    pub connection_window_bytes: u64,
    /// The most bytes that a client may send to a server beyond those that the server has read, in all streams of a
    /// connection. Default 256 KiB: requests are short. Raised: a client that sends and is not read can take more
    /// memory.
    pub request_window_bytes: u64,
    /// The bytes sent before the first acknowledgement. Default 256 KiB. Raised: a burst that a slow path may drop.
    /// Below twice the largest payload, a probe for the payload size that is in flight can delay the notice that the
    /// connection closes.
    pub initial_window_bytes: u64,
    /// The largest UDP payload that is tried. Default 8,952: a 9,000-byte Ethernet frame; discovery finds what the path
    /// carries. Raised: larger receive buffers; paths that silently drop large packets take longer to settle.
    pub max_udp_payload_bytes: u16,
    /// The UDP payload that a connection starts with. Default 1,200, which every path carries. Raised: connections fail
    /// over paths that carry less.
    pub initial_udp_payload_bytes: u16,
    /// The number of packets that may arrive before an acknowledgement is sent; the next packet triggers it. Default 1.
    /// Raised: fewer packets back, but after a burst that overflowed the receiver's buffer, stalls of a second and
    /// more.
    pub ack_every_packets: u32,
    /// The socket's buffers, each direction. Default 4 MiB, or what the kernel allows (`net.core.rmem_max`). Raised:
    /// more kernel memory. Lowered: packets are lost when the process is not scheduled.
    pub socket_buffer_bytes: usize,
    /// Whether the kernel segments and coalesces packets (GSO). Default true. Some virtual networks do it wrong.
    pub segmentation_offload: bool,
    /// The most connections in their handshake at once. Default 1,024. Raised: an attacker can take more memory.
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
    /// Returns the limits for outgoing connections: batches come in, on streams that the other side opens.
    pub(super) fn client_transport(&self) -> Arc<TransportConfig> {
        let mut config = self.transport();
        config
            .stream_receive_window(varint(self.stream_window_bytes))
            .receive_window(varint(self.connection_window_bytes))
            .max_concurrent_bidi_streams(varint(0))
            .max_concurrent_uni_streams(varint(MAX_BATCHES));
        Arc::new(config)
    }

    /// Sets the limits for incoming connections: requests come in, and nothing else.
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
            // Each batch is sent completely before the next one: the trainer waits for the first, not for all of them.
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
        // This fails only below 1,200 bytes.
        let _ = config.max_udp_payload_size(self.max_udp_payload_bytes.max(1200));
        config
    }

    /// Sets the socket's buffers: beyond the kernel's limit if this process has the privilege, otherwise up to it.
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
