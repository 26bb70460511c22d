//! Reads the pictures of Matroska: the head of the segment, and the heads of all packets in its clusters.

use super::{
    ebml::{ElementHead, length, number, unsigned},
    track::{MatroskaTrack, picture_tracks, read_track},
};
use crate::{
    MediaError, VideoPacket,
    input::Input,
    video::{MAX_PACKETS, MAX_TIME, Video, is_key_picture, ratio},
};

const EBML: u32 = 0x1a45_dfa3;
pub(super) const SEGMENT: u32 = 0x1853_8067;
pub(super) const INFO: u32 = 0x1549_a966;
pub(super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
pub(super) const TRACKS: u32 = 0x1654_ae6b;
pub(super) const CLUSTER: u32 = 0x1f43_b675;
pub(super) const TIMESTAMP: u32 = 0xe7;
pub(super) const SIMPLE_BLOCK: u32 = 0xa3;
pub(super) const BLOCK_GROUP: u32 = 0xa0;
pub(super) const BLOCK: u32 = 0xa1;
const BLOCK_DURATION: u32 = 0x9b;
const REFERENCE: u32 = 0xfb;
/// Elements of a segment that are passed. One of them ends a cluster whose length is not known.
const OTHER_TOP: [u32; 5] = [0x114d_9b74, 0x1c53_bb6b, 0x1043_a770, 0x1254_c367, 0x1941_a469];

/// The most bytes of the head of a segment, of which the pictures of a decoder's configuration are the largest.
pub(super) const MAX_HEAD_BYTES: u64 = 1 << 24;
/// The bytes of a block before its packet, which are the number of the track, a time and flags, and the first byte of that.
const MAX_BLOCK_HEAD_BYTES: u64 = 12;
/// Nanoseconds in a unit of time, if the file does not say it.
pub(super) const DEFAULT_SCALE: u64 = 1_000_000;
pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the file ends within.
pub(super) const WHAT: &str = "its elements";

/// Reads the pictures of a file.
#[derive(Clone, Debug)]
pub(crate) struct SegmentReader {
    /// Which of the tracks of pictures is read.
    nth: usize,
    /// Where the segment ends.
    segment_end: Option<u64>,
    /// Nanoseconds in a unit of time.
    scale: u64,
    track: Option<MatroskaTrack>,
    tracks: usize,
    /// The time of the cluster that is read.
    cluster: Option<MatroskaCluster>,
    group: Option<BlockGroup>,
    packets: Vec<VideoPacket>,
}

/// A cluster that is read.
#[derive(Clone, Copy, Debug)]
struct MatroskaCluster {
    end: Option<u64>,
    time: i64,
}

/// A packet with what is said about it.
#[derive(Clone, Copy, Debug)]
struct BlockGroup {
    end: u64,
    packet: Option<VideoPacket>,
    duration: Option<u32>,
    is_key: bool,
}

impl SegmentReader {
    pub(crate) const fn new(nth: usize) -> Self {
        Self {
            nth,
            segment_end: None,
            scale: DEFAULT_SCALE,
            track: None,
            tracks: 0,
            cluster: None,
            group: None,
            packets: Vec::new(),
        }
    }

    /// Returns whether a file with these first bytes is one of Matroska.
    pub(crate) fn recognise(begins: &[u8]) -> bool {
        begins.starts_with(&EBML.to_be_bytes())
    }

    /// Reads what is there; returns the video when all packets have been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Video>, MediaError> {
        loop {
            self.leave(input.at())?;
            if self.segment_end.is_some_and(|end| input.at() >= end) {
                return self.finish(input).map(Some);
            }
            let Some(head) = ElementHead::read(input, WHAT)? else { return Ok(None) };
            let is_top = matches!(head.id, EBML | SEGMENT | CLUSTER | INFO | TRACKS) || OTHER_TOP.contains(&head.id);
            if self.cluster.is_some_and(|cluster| cluster.end.is_none()) && is_top && self.group.is_none() {
                self.cluster = None;
            }
            let passed = match head.id {
                _ if self.segment_end.is_none() => self.read_outside(input, head)?,
                _ if self.group.is_some() => self.read_in_group(input, head)?,
                _ if self.cluster.is_some() => self.read_in_cluster(input, head)?,
                _ => self.read_in_segment(input, head)?,
            };
            let Some(bytes) = passed else { return Ok(None) };
            input.skip(bytes);
        }
    }

    /// Leaves the elements that end here.
    fn leave(&mut self, at: u64) -> Result<(), MediaError> {
        if let Some(group) = self.group
            && at >= group.end
        {
            self.group = None;
            if let Some(mut packet) = group.packet {
                packet.is_key &= group.is_key;
                packet.duration = group.duration.unwrap_or(packet.duration);
                self.push(packet, at)?;
            }
        }
        if self.cluster.is_some_and(|cluster| cluster.end.is_some_and(|end| at >= end)) {
            self.cluster = None;
        }
        Ok(())
    }

    /// Reads an element before the segment, and returns the bytes to pass; `None` if more have to be fetched.
    fn read_outside(&mut self, input: &Input<'_, '_>, head: ElementHead) -> Result<Option<u64>, MediaError> {
        if head.id != SEGMENT {
            return known(input, head).map(Some);
        }
        let start = input.at() + head.head_bytes;
        let end = head.bytes.map_or(input.file_bytes(), |bytes| start.saturating_add(bytes));
        self.segment_end = Some(end);
        Ok(Some(head.head_bytes))
    }

    /// Reads an element of the segment.
    fn read_in_segment(&mut self, input: &mut Input<'_, '_>, head: ElementHead) -> Result<Option<u64>, MediaError> {
        match head.id {
            // The packets of another segment are not of this video.
            EBML | SEGMENT => return Err(MediaError::unsupported_video("several segments one after the other")),
            CLUSTER => {
                if self.track.is_none() {
                    return Err(MediaError::unsupported_video("its packets before their description"));
                }
                let start = input.at() + head.head_bytes;
                let end = head.bytes.map(|bytes| start.saturating_add(bytes));
                self.cluster = Some(MatroskaCluster { end, time: 0 });
                return Ok(Some(head.head_bytes));
            }
            INFO | TRACKS => {}
            _ => return known(input, head).map(Some),
        }
        let bytes = known(input, head)?;
        if bytes > MAX_HEAD_BYTES {
            return Err(input.malformed("the head of the segment has more than 16 MiB"));
        }
        let Some(element) = input.peek(bytes, WHAT)? else { return Ok(None) };
        let content = &element[usize::try_from(head.head_bytes).expect("at most 12")..];
        if head.id == INFO {
            self.scale = unsigned(content, TIMESTAMP_SCALE).unwrap_or(DEFAULT_SCALE);
            if self.scale == 0 || self.scale > NANOS_PER_SECOND {
                return Err(input.malformed("the unit of time is not valid"));
            }
        } else if self.track.is_none() {
            let tracks = picture_tracks(content);
            let none = if self.nth == 0 { "no track of pictures" } else { "fewer tracks of pictures" };
            let track = tracks.get(self.nth).ok_or(none);
            let track = track.and_then(|track| read_track(track));
            self.track = Some(track.map_err(MediaError::unsupported_video)?);
            self.tracks = tracks.len();
        }
        Ok(Some(bytes))
    }

    /// Reads an element of a cluster.
    fn read_in_cluster(&mut self, input: &mut Input<'_, '_>, head: ElementHead) -> Result<Option<u64>, MediaError> {
        let bytes = known(input, head)?;
        match (head.id, &mut self.cluster) {
            (TIMESTAMP, Some(cluster)) => {
                let Some(time) = value(input, head)? else { return Ok(None) };
                cluster.time = i64::try_from(time).ok().filter(|time| *time <= MAX_TIME).unwrap_or(MAX_TIME);
            }
            (SIMPLE_BLOCK, _) => {
                let Some(found) = self.block(input, head)? else { return Ok(None) };
                if let Some((mut packet, flags)) = found {
                    packet.is_key &= flags & 0x80 != 0;
                    packet.is_droppable = flags & 1 != 0;
                    self.push(packet, input.at())?;
                }
            }
            (BLOCK_GROUP, _) => {
                let end = input.at().saturating_add(bytes);
                self.group = Some(BlockGroup { end, packet: None, duration: None, is_key: true });
                return Ok(Some(head.head_bytes));
            }
            _ => {}
        }
        Ok(Some(bytes))
    }

    /// Reads an element of a group.
    fn read_in_group(&mut self, input: &mut Input<'_, '_>, head: ElementHead) -> Result<Option<u64>, MediaError> {
        let bytes = known(input, head)?;
        match head.id {
            BLOCK => {
                let Some(found) = self.block(input, head)? else { return Ok(None) };
                if let (Some(group), Some((packet, _))) = (&mut self.group, found) {
                    group.packet = Some(packet);
                }
            }
            BLOCK_DURATION => {
                let Some(duration) = value(input, head)? else { return Ok(None) };
                if let Some(group) = &mut self.group {
                    group.duration = u32::try_from(duration).ok();
                }
            }
            REFERENCE => {
                if let Some(group) = &mut self.group {
                    group.is_key = false;
                }
            }
            _ => {}
        }
        Ok(Some(bytes))
    }

    /// Reads the head of a block, and returns its packet and flags if it is of the track; `None` at first if more bytes have to
    /// be fetched.
    fn block(
        &self,
        input: &mut Input<'_, '_>,
        head: ElementHead,
    ) -> Result<Option<Option<(VideoPacket, u8)>>, MediaError> {
        let (Some(bytes), Some(track)) = (head.bytes, &self.track) else { return Ok(Some(None)) };
        let seen = bytes.min(MAX_BLOCK_HEAD_BYTES);
        let Some(element) = input.peek(head.head_bytes + seen, WHAT)? else { return Ok(None) };
        let block = &element[usize::try_from(head.head_bytes).expect("at most 12")..];
        let parsed = length(block).and_then(|(id, count)| Some((id?, count, *block.get(count..)?.first_chunk::<3>()?)));
        let (id, count, [high, low, flags]) = parsed.ok_or_else(|| input.malformed("a block is cut off"))?;
        if id != track.described.id {
            return Ok(Some(None));
        }
        if flags & 6 != 0 {
            return Err(MediaError::unsupported_video("several pictures in a block"));
        }
        let block_head = count as u64 + 3;
        let offset = input.at() + head.head_bytes + block_head;
        let packet_bytes = u32::try_from(bytes - block_head);
        let packet_bytes = packet_bytes.map_err(|_| input.malformed("a packet has more than 4 GiB"))?;
        if offset.checked_add(packet_bytes.into()).is_none_or(|end| end > input.file_bytes()) {
            return Err(MediaError::Truncated { bytes: input.file_bytes(), what: "a packet" });
        }
        let time = i64::from(i16::from_be_bytes([high, low]));
        let pts = self.cluster.map_or(0, |cluster| cluster.time) + time;
        let duration = track.picture_nanos.saturating_add(self.scale / 2) / self.scale;
        let packet = VideoPacket {
            offset,
            bytes: packet_bytes,
            pts,
            dts: pts,
            duration: u32::try_from(duration).unwrap_or_default(),
            is_key: is_key_picture(&track.described.codec, &block[count + 3..]) != Some(false),
            is_droppable: false,
            is_shown: true,
        };
        Ok(Some((packet_bytes > 0).then_some((packet, flags))))
    }

    fn push(&mut self, packet: VideoPacket, at: u64) -> Result<(), MediaError> {
        if self.packets.len() == MAX_PACKETS {
            return Err(MediaError::Malformed { byte: at, problem: "the file has more than 16,777,216 packets" });
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Returns the video, when its last element has been read.
    fn finish(&mut self, input: &Input<'_, '_>) -> Result<Video, MediaError> {
        if input.at() > input.file_bytes() {
            return Err(MediaError::Truncated { bytes: input.file_bytes(), what: WHAT });
        }
        let Some(MatroskaTrack { mut described, .. }) = self.track.take() else {
            return Err(MediaError::unsupported_video("no track of pictures"));
        };
        described.time_base = ratio([self.scale, NANOS_PER_SECOND]);
        let mut packets = std::mem::take(&mut self.packets);
        // A packet is decoded when as many pictures have been shown, at the latest when it is shown.
        let mut times: Vec<i64> = packets.iter().map(|packet| packet.pts).collect();
        times.sort_unstable();
        let late = times.iter().zip(&packets).map(|(dts, packet)| dts - packet.pts).max().unwrap_or_default();
        for (packet, dts) in packets.iter_mut().zip(times) {
            packet.dts = dts - late;
        }
        Ok(Video { track: described, tracks: self.tracks, packets })
    }
}

/// Returns the length of an element, which must be known.
pub(super) fn known(input: &Input<'_, '_>, head: ElementHead) -> Result<u64, MediaError> {
    head.all_bytes().ok_or_else(|| input.malformed("the length of an element is not known"))
}

/// Returns the whole number of the next element; `None` if its bytes have to be fetched first.
fn value(input: &mut Input<'_, '_>, head: ElementHead) -> Result<Option<u64>, MediaError> {
    let bytes = head.all_bytes().filter(|bytes| *bytes <= head.head_bytes + 8);
    let bytes = bytes.ok_or_else(|| input.malformed("a number has more than 8 bytes"))?;
    let Some(element) = input.peek(bytes, WHAT)? else { return Ok(None) };
    Ok(number(&element[usize::try_from(head.head_bytes).expect("at most 12")..]))
}
