//! The UDP socket of an endpoint, which splits large sends into as many calls as the kernel needs.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// The most bytes that one call sends: the payload of a UDP datagram over IPv4, which the kernel then segments.
const MAX_CALL: usize = 65_507;

/// A socket of [`TokioRuntime`] that splits sends which are too long for the kernel. Quinn gives ten packets to one
/// call, whatever their size, and takes the kernel's refusal of a long call for a lost probe of the path. With packets
/// of jumbo frames, each such call would lose all ten. That looks as if the path dropped large packets, and all
/// connections would go down to the smallest packets.
#[derive(Debug)]
pub(super) struct Socket(Arc<dyn AsyncUdpSocket>);

impl Socket {
    pub(super) fn of(socket: UdpSocket) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(TokioRuntime.wrap_udp_socket(socket)?)))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.0).create_io_poller()
    }

    /// Sends the packets in parts. If the kernel takes only the first parts, quinn repeats all of them, and the peer
    /// ignores the packets that it has.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segment = match transmit.segment_size {
            Some(segment) if transmit.contents.len() > MAX_CALL => segment,
            _ => return self.0.try_send(transmit),
        };
        for part in transmit.contents.chunks((MAX_CALL / segment).max(1) * segment) {
            let segment_size = (part.len() > segment).then_some(segment);
            self.0.try_send(&Transmit { contents: part, segment_size, ..*transmit })?;
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn packets_of_jumbo_frames_are_sent_however_many_there_are_at_once() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let sender = Socket::of(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
        let destination = receiver.local_addr().unwrap();
        // The last packet may be shorter than the others.
        for (segment, bytes) in
            [(8952, 10 * 8952), (8952, 7 * 8952 + 1), (1452, 10 * 1452), (8952, 8952), (9000, 80_000)]
        {
            let contents: Vec<u8> = (0..bytes).map(|at| (at / segment) as u8).collect();
            let segment_size = (bytes > segment).then_some(segment);
            let transmit = Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
            let mut poller = Arc::clone(&sender).create_io_poller();
            std::future::poll_fn(|context| poller.as_mut().poll_writable(context)).await.unwrap();
            sender.try_send(&transmit).unwrap();
            let mut buffer = vec![0; 65_536];
            for packet in contents.chunks(segment) {
                let received = receiver.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..received], *packet, "{bytes} bytes in packets of {segment}");
            }
        }
    }
}
