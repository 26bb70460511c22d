//! Blocks of a table of packets.

use super::{
    VideoPacket,
    block_entry::{BlockEntry, MAX_BLOCK_PACKETS},
    column::{decode, decode_number, encode as encode_column, encode_number, unzigzag, zigzag},
    packet::MAX_TABLE_TIME,
};

/// Some blocks of a [`VideoTable`](crate::VideoTable), which follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VideoBlocks {
    first_packet: u64,
    first_frame: u64,
    packets: Vec<VideoPacket>,
    /// The packets whose pictures are shown, in that order.
    shown: Vec<u32>,
}

/// Appends the packets of a block. A block is the place of its first packet, when that is decoded, and columns: lengths, the
/// bytes that lie between packets, the steps between the times at which they are decoded, how much later they are shown, how
/// much longer they are shown than the step to the next one, and flags.
pub(super) fn encode(packets: &[VideoPacket], time: i64, bytes: &mut Vec<u8>) {
    let Some(first) = packets.first() else { return };
    encode_number(first.offset, bytes);
    encode_number(zigzag(first.dts - time), bytes);
    let mut column = |values: &mut dyn Iterator<Item = i64>| encode_column(&values.collect::<Vec<_>>(), bytes);
    let pairs = || packets.array_windows::<2>();
    column(&mut packets.iter().map(|packet| packet.bytes.into()));
    column(
        &mut pairs()
            .map(|[one, next]| next.offset.wrapping_sub(one.offset.wrapping_add(one.bytes.into())).cast_signed()),
    );
    let mut steps = Vec::from_iter(pairs().map(|[one, next]| next.dts - one.dts));
    column(&mut steps.iter().copied());
    column(&mut packets.iter().map(|packet| packet.pts - packet.dts));
    // The last one is compared with the step before.
    steps.push(steps.last().copied().unwrap_or_default());
    column(&mut packets.iter().zip(steps).map(|(packet, step)| i64::from(packet.duration) - step));
    column(&mut packets.iter().map(|packet| {
        i64::from(packet.is_key) | i64::from(packet.is_droppable) << 1 | i64::from(!packet.is_shown) << 2
    }));
}

impl VideoBlocks {
    /// Takes all packets of a video, in the order in which they are decoded, as one block.
    ///
    /// # Panics
    /// If there are more packets than a [`Video`](crate::Video) has.
    #[must_use]
    pub fn of_all(packets: Vec<VideoPacket>) -> Self {
        let count = u32::try_from(packets.len()).expect("at most 16,777,216 packets");
        let shown = (0..count).filter(|nth| packets[*nth as usize].is_shown);
        let mut blocks = Self { shown: shown.collect(), packets, ..Self::default() };
        blocks.order_shown(0);
        blocks
    }

    /// Orders the frames from number `first` of these blocks on. Of equal times, the frame that is decoded first is shown first.
    fn order_shown(&mut self, first: usize) {
        self.shown[first..].sort_by_key(|nth| self.packets[*nth as usize].pts);
    }

    /// Adds a block with so many packets and frames; `None` if it is not valid.
    pub(super) fn append(&mut self, entry: BlockEntry, count: usize, frames: usize, mut bytes: &[u8]) -> Option<()> {
        if count == 0 || count > MAX_BLOCK_PACKETS {
            return None;
        }
        if self.packets.is_empty() {
            (self.first_packet, self.first_frame) = (entry.first_packet.into(), entry.first_frame.into());
        }
        let is_time = |time: &i64| (-MAX_TABLE_TIME..=MAX_TABLE_TIME).contains(time);
        let mut offset = decode_number(&mut bytes)?;
        let mut dts = entry.time.checked_add(unzigzag(decode_number(&mut bytes)?)).filter(is_time)?;
        let lengths = decode(count, &mut bytes)?;
        let gaps = decode(count - 1, &mut bytes)?;
        let mut steps = decode(count - 1, &mut bytes)?;
        let later = decode(count, &mut bytes)?;
        steps.push(steps.last().copied().unwrap_or_default());
        let longer = decode(count, &mut bytes)?;
        let flags = decode(count, &mut bytes)?;
        if !bytes.is_empty() {
            return None;
        }
        let start = self.packets.len();
        for nth in 0..count {
            let packet_bytes = u32::try_from(lengths[nth]).ok().filter(|bytes| *bytes > 0)?;
            let end = offset.checked_add(packet_bytes.into())?;
            let duration = u32::try_from(longer[nth].checked_add(steps[nth])?).ok()?;
            self.packets.push(VideoPacket {
                offset,
                bytes: packet_bytes,
                pts: dts.checked_add(later[nth]).filter(is_time)?,
                dts,
                duration,
                is_key: flags[nth] & 1 != 0,
                is_droppable: flags[nth] & 2 != 0,
                is_shown: flags[nth] & 4 == 0,
            });
            if let Some(gap) = gaps.get(nth) {
                offset = end.checked_add_signed(*gap)?;
                dts = dts.checked_add(steps[nth]).filter(is_time)?;
            }
        }
        let before = self.shown.len();
        let added = (start..self.packets.len()).filter(|nth| self.packets[*nth].is_shown);
        self.shown.extend(added.filter_map(|nth| u32::try_from(nth).ok()));
        self.order_shown(before);
        (self.shown.len() - before == frames).then_some(())
    }

    /// Returns the packets, in the order in which they are decoded.
    #[must_use]
    pub fn packets(&self) -> &[VideoPacket] {
        &self.packets
    }

    /// Lets decoding begin at none of the packets at these places, as their pictures are not [whole](crate::is_whole_key).
    pub fn unmark_keys(&mut self, places: &[usize]) {
        places.iter().for_each(|place| self.packets[*place].is_key = false);
    }

    /// Returns the number of the first packet, from 0 at the beginning of the video.
    #[must_use]
    pub const fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// Returns the place of a frame's packet among the packets; `None` if the blocks do not have it.
    #[must_use]
    pub fn packet_of(&self, frame: u64) -> Option<usize> {
        let nth = usize::try_from(frame.checked_sub(self.first_frame)?).ok()?;
        self.shown.get(nth).map(|packet| *packet as usize)
    }

    /// Returns when each frame of these blocks begins, in their order.
    pub fn begins(&self) -> impl Iterator<Item = i64> {
        self.shown.iter().map(|packet| self.packets[*packet as usize].pts)
    }

    /// Returns the frame of these blocks that is shown at a time: the first one before its beginning, the last one behind its end;
    /// `None` if the blocks have no frame.
    #[must_use]
    pub fn frame_at(&self, pts: i64) -> Option<u64> {
        let after = self.shown.partition_point(|packet| self.packets[*packet as usize].pts <= pts);
        (!self.shown.is_empty()).then(|| self.first_frame + after.saturating_sub(1) as u64)
    }

    /// Returns the places of all packets that decoding some frames takes, in their order: from the key frame before each one on,
    /// without those that no other picture refers to. `None` if the blocks do not have a frame, or no key frame before it.
    ///
    /// The key frame is the last one that is shown before the frame: pictures that are decoded behind a key frame and shown before
    /// it may refer to those before it. If there is none, it is the first one.
    #[must_use]
    pub fn needed(&self, frames: &[u64]) -> Option<Vec<usize>> {
        let mut wanted = frames.iter().map(|frame| self.packet_of(*frame)).collect::<Option<Vec<_>>>()?;
        wanted.sort_unstable();
        wanted.dedup();
        // A frame that is decoded later may need earlier packets: those behind a key frame that are shown before it.
        let range = |last: &usize| Some((self.key_before(*last)?, *last));
        let mut ranges = wanted.iter().map(range).collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable();
        let is_needed = |packet: &usize| wanted.binary_search(packet).is_ok() || !self.packets[*packet].is_droppable;
        let (mut needed, mut next) = (Vec::new(), 0);
        for (start, last) in ranges {
            needed.extend((start.max(next)..=last).filter(is_needed));
            next = next.max(last + 1);
        }
        Some(needed)
    }

    /// Returns the key frame at which decoding begins for a packet.
    fn key_before(&self, packet: usize) -> Option<usize> {
        let pts = self.packets[packet].pts;
        let mut keys = (0..=packet).rev().filter(|nth| self.packets[*nth].is_key);
        keys.clone().find(|key| self.packets[*key].pts <= pts).or_else(|| keys.next_back())
    }
}
