//! The knobs of a QUIC endpoint.

use std::{net::UdpSocket, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, congestion::CubicConfig,
};
use rustix::net::sockopt;

use super::varint;

/// Streams that a peer may have open at once in each direction: requests, and batches on their way.
const MAX_STREAMS: u64 = 512;

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
    /// Bytes sent before the first acknowledgement. Default 256 KiB. Raised: a burst that a slow path may drop. Below
    /// twice the largest payload, a probe for the payload's size on its way can hold back the notice of closing.
    pub initial_window_bytes: u64,
    /// The largest UDP payload tried. Default 8,952: a 9,000-byte Ethernet frame; discovery finds what the path carries.
    /// Raised: larger receive buffers; paths that drop large packets silently take longer to settle.
    pub max_udp_payload_bytes: u16,
    /// UDP payload that a connection starts with. Default 1,200, which every path carries. Raised: connections over
    /// paths that carry less fail.
    pub initial_udp_payload_bytes: u16,
    /// Packets received before an acknowledgement is sent. Default 10. Raised: fewer packets back, slower notice of loss.
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
            initial_window_bytes: 256 << 10,
            max_udp_payload_bytes: 8952,
            initial_udp_payload_bytes: 1200,
            ack_every_packets: 10,
            socket_buffer_bytes: 4 << 20,
            segmentation_offload: true,
            max_handshakes: 1024,
        }
    }
}

impl QuicSettings {
    pub(super) fn transport(&self) -> Arc<TransportConfig> {
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
            .stream_receive_window(varint(self.stream_window_bytes))
            .receive_window(varint(self.connection_window_bytes))
            .send_window(self.connection_window_bytes)
            // A batch goes out whole before the next: the trainer waits for the first, not for all of them.
            .send_fairness(false)
            .initial_mtu(self.initial_udp_payload_bytes.max(1200))
            .mtu_discovery_config(Some(discovery))
            .ack_frequency_config(Some(acks))
            .max_concurrent_bidi_streams(varint(MAX_STREAMS))
            .max_concurrent_uni_streams(varint(MAX_STREAMS))
            .datagram_receive_buffer_size(None)
            .enable_segmentation_offload(self.segmentation_offload);
        Arc::new(config)
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
