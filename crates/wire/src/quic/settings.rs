//! The settings of a QUIC endpoint.

use std::{net::UdpSocket, ops::RangeInclusive, str::FromStr, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig},
};
use rustix::net::sockopt;

use super::varint;
use spdl_types::size::parse_bytes;

/// The most batches that a home may have in flight to a client, each on its own stream.
const MAX_BATCHES: u64 = 512;
/// The most requests that a client may have open at a server that gets only requests. A client has one or two at a
/// time. A connection keeps the memory for each, 450 bytes, until it ends.
const OPEN_REQUESTS: u32 = 4;
/// The number of connections that may wait for their handshakes at a server that gets only requests.
const LAUNCHED: usize = 16_384;
/// The largest UDP payload of a frame of 1,500 bytes, with IPv6.
const ETHERNET_PAYLOAD_BYTES: u16 = 1452;
/// The pause before larger packets are tried again after lost bursts. Quinn takes lost bursts as a sign that large
/// packets no longer pass, and sends the smallest ones, which cost several times the CPU. Nearly always only a buffer
/// was full, so the pause is a second instead of Quinn's minute. If the path really drops large packets, the probes are
/// lost and nothing changes.
const PAYLOAD_COOLDOWN: Duration = Duration::from_secs(1);
/// The most bytes that a server buffers for connections that it has not accepted yet: for one connection, and for all.
const HANDSHAKE_BYTES: u64 = 64 << 10;
const ALL_HANDSHAKE_BYTES: u64 = 8 << 20;

/// The settings of a QUIC endpoint. The defaults suit bulk data in a data centre and on loopback.
///
/// They are read from text, `KEY=VALUE` with commas between, where each key is the name of a field as it is in the table
/// of docs/spec/protocol/connections.md: `payload=1452,offload=off,congestion=bbr`.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The most bytes of a client that a server has not read yet, in all streams of a connection. Default 256 KiB:
    /// requests are short. Raised: a client that sends and is not read can take more memory.
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
    /// The algorithm that decides how much may be in flight. Default: CUBIC.
    pub congestion: Congestion,
    /// The number of connections of a rank to its home, and the least number of threads for connections in trainers and
    /// in workers. A connection does not take more than a core at either end. At least 1 and at most 16; default 1.
    /// Raised: more memory, and a batch arrives later where the link, and not a core, is the limit.
    pub connections: usize,
    /// The most requests that a client may have open at a server at once, in one connection. Default 16. Raised: a client can take
    /// more memory.
    pub max_requests: u32,
    /// The most connections in their handshake at once. Default 1,024. Raised: an attacker can take more memory.
    pub max_handshakes: usize,
}

/// An algorithm that decides how much may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438: grows until packets are lost.
    #[default]
    Cubic,
    /// RFC 9002, section 7: as CUBIC, and slower over long paths.
    NewReno,
    /// BBR, after the rate and the round trip that were measured: for paths that lose packets without being full. Quinn
    /// calls its implementation experimental.
    Bbr,
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
            congestion: Congestion::default(),
            connections: 1,
            max_requests: 16,
            max_handshakes: 1024,
        }
    }
}

impl QuicSettings {
    /// Returns the number of connections of a rank to its home, within the limits.
    #[must_use]
    pub fn connections_of_rank(&self) -> usize {
        self.connections.clamp(1, MAX_CONNECTIONS)
    }

    /// Returns these settings for a server that gets only requests. Payloads have at most 1,452 bytes, which fit into
    /// an Ethernet frame: both ends would look for larger ones with padded packets, which cost more than all that such
    /// a connection carries in minutes. A connection has at most 4 open requests. At least 16,384 connections may wait
    /// for their handshakes, for all ranks and workers of a launch.
    #[must_use]
    pub fn for_requests(self) -> Self {
        let most = |bytes: u16| bytes.min(ETHERNET_PAYLOAD_BYTES);
        Self {
            max_udp_payload_bytes: most(self.max_udp_payload_bytes),
            initial_udp_payload_bytes: most(self.initial_udp_payload_bytes),
            max_requests: self.max_requests.min(OPEN_REQUESTS),
            max_handshakes: self.max_handshakes.max(LAUNCHED),
            ..self
        }
    }

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
            .max_concurrent_bidi_streams(varint(self.max_requests.into()))
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
        discovery.upper_bound(self.max_udp_payload_bytes).black_hole_cooldown(PAYLOAD_COOLDOWN);
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(self.congestion())
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

    fn congestion(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        let window = self.initial_window_bytes;
        match self.congestion {
            Congestion::Cubic => {
                let mut config = CubicConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            Congestion::NewReno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            Congestion::Bbr => {
                let mut config = BbrConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
        }
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

/// The largest window that a setting may have.
const MAX_WINDOW: u64 = 4 << 30;
/// The most connections of a rank to its home.
pub(crate) const MAX_CONNECTIONS: usize = spdl_insight::MAX_CONNECTIONS as usize;
/// The payloads that a setting may have: the least that QUIC allows, and the most that UDP carries.
const PAYLOADS: RangeInclusive<u64> = 1_200..=65_527;

impl FromStr for QuicSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not KEY=VALUE; write, for example, payload=1452"))?;
            settings.set(key.trim(), value.trim()).map_err(|problem| format!("`{part}`: {problem}"))?;
        }
        if settings.keep_alive >= settings.idle_timeout {
            return Err(format!(
                "keep-alive ({:?}) has to be shorter than idle-timeout ({:?}), or connections end where nothing is sent",
                settings.keep_alive, settings.idle_timeout
            ));
        }
        Ok(settings)
    }
}

impl QuicSettings {
    /// Sets the field of this key.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let size = |range: RangeInclusive<u64>| {
            let bytes = parse_bytes(value)?;
            let within = || format!("it has to be between {} and {} bytes", range.start(), range.end());
            range.contains(&bytes).then_some(bytes).ok_or_else(within)
        };
        let payload = || size(PAYLOADS).map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX));
        match key {
            "idle-timeout" => self.idle_timeout = duration(value)?,
            "keep-alive" => self.keep_alive = duration(value)?,
            "stream-window" => self.stream_window_bytes = size(1 << 14..=MAX_WINDOW)?,
            "connection-window" => self.connection_window_bytes = size(1 << 14..=MAX_WINDOW)?,
            "initial-window" => self.initial_window_bytes = size(2_400..=MAX_WINDOW)?,
            "payload" => self.max_udp_payload_bytes = payload()?,
            "initial-payload" => self.initial_udp_payload_bytes = payload()?,
            "ack-every" => {
                self.ack_every_packets = value.parse().map_err(|_| "it has to be a number of packets".to_owned())?;
            }
            "socket-buffer" => {
                self.socket_buffer_bytes = usize::try_from(size(1 << 12..=1 << 30)?).unwrap_or(usize::MAX);
            }
            "offload" => {
                self.segmentation_offload = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err("it has to be on or off".to_owned()),
                };
            }
            "congestion" => {
                self.congestion = match value {
                    "cubic" => Congestion::Cubic,
                    "new-reno" => Congestion::NewReno,
                    "bbr" => Congestion::Bbr,
                    _ => return Err("it has to be cubic, new-reno or bbr".to_owned()),
                };
            }
            "connections" => {
                let number = value.parse().ok().filter(|number| (1..=MAX_CONNECTIONS).contains(number));
                self.connections =
                    number.ok_or_else(|| format!("it has to be a number between 1 and {MAX_CONNECTIONS}"))?;
            }
            _ => {
                return Err(
                    "there is no such setting, but idle-timeout, keep-alive, stream-window, connection-window, initial-window, \
                     payload, initial-payload, ack-every, socket-buffer, offload, congestion and connections"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

/// Parses a time between 10 ms and 10 min: `5s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().map(|number| number * unit);
    match seconds {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it has to be a time between 10ms and 600s; write, for example, 5s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_text_and_wrong_ones_are_named() {
        assert_eq!("".parse(), Ok(QuicSettings::default()));
        let text = "idle-timeout=12s, keep-alive=500ms,stream-window=32MiB,connection-window=128MiB,initial-window=14720,\
                    payload=1452,initial-payload=1300,ack-every=10,socket-buffer=1MiB,offload=off,congestion=bbr,connections=3";
        let expected = QuicSettings {
            idle_timeout: Duration::from_secs(12),
            keep_alive: Duration::from_millis(500),
            stream_window_bytes: 32 << 20,
            connection_window_bytes: 128 << 20,
            initial_window_bytes: 14_720,
            max_udp_payload_bytes: 1452,
            initial_udp_payload_bytes: 1300,
            ack_every_packets: 10,
            socket_buffer_bytes: 1 << 20,
            segmentation_offload: false,
            congestion: Congestion::Bbr,
            connections: 3,
            ..QuicSettings::default()
        };
        assert_eq!(text.parse(), Ok(expected));
        for (text, named) in [
            ("payload", "KEY=VALUE"),
            ("payload=1199", "between 1200 and 65527"),
            ("payload=70000", "between 1200 and 65527"),
            ("stream-window=0", "`stream-window=0`"),
            ("idle-timeout=0s", "between 10ms and 600s"),
            ("idle-timeout=nans", "between 10ms and 600s"),
            ("idle-timeout=1s", "shorter than idle-timeout"),
            ("ack-every=-1", "number of packets"),
            ("offload=yes", "on or off"),
            ("congestion=vegas", "cubic, new-reno or bbr"),
            ("connections=0", "between 1 and 16"),
            ("connections=17", "between 1 and 16"),
            ("mtu=9000", "payload"),
        ] {
            let problem = text.parse::<QuicSettings>().unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }
}
