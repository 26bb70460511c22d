//! The packets of a request, written into the memory of a child as far as there is room.

use crate::{FrameRequest, protocol::InputWriter};

/// The packets of a request that are not written yet.
pub(super) struct PacketWindows<'r> {
    request: &'r FrameRequest<'r>,
    /// The number of the next one.
    next: usize,
}

/// Packets in memory.
pub(super) struct PacketWindow {
    /// Their number.
    pub(super) count: u32,
    /// Whether they are the last ones.
    pub(super) is_last: bool,
}

impl<'r> PacketWindows<'r> {
    pub(super) const fn new(request: &'r FrameRequest<'r>) -> Self {
        Self { request, next: 0 }
    }

    /// Returns the bytes that the largest packet and the beginning of a request take: the least that a memory has.
    pub(super) fn least_bytes(&self) -> usize {
        let packets = self.request.packets.iter().map(|packet| InputWriter::packet_bytes(packet.bytes.len()));
        size_of_val(self.request.wanted) + self.request.extra_data.len() + packets.max().unwrap_or(0)
    }

    /// Writes the beginning of the request and its first packets.
    pub(super) fn start(&mut self, memory: &mut [u8]) -> PacketWindow {
        let mut writer = InputWriter::new(memory);
        let is_written = writer.start(self.request.wanted, self.request.extra_data);
        assert!(is_written, "the memory has the room that was asked for");
        self.write(writer)
    }

    /// Writes further packets; `None` if there are none.
    pub(super) fn next(&mut self, memory: &mut [u8]) -> Option<PacketWindow> {
        (self.next < self.request.packets.len()).then(|| self.write(InputWriter::new(memory)))
    }

    fn write(&mut self, mut writer: InputWriter<'_>) -> PacketWindow {
        let mut count = 0;
        while let Some(packet) = self.request.packets.get(self.next)
            && writer.packet(packet.pts, packet.begins_anew, packet.bytes)
        {
            (count, self.next) = (count + 1, self.next + 1);
        }
        PacketWindow { count, is_last: self.next == self.request.packets.len() }
    }
}
