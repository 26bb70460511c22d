//! The packets of a video in a table of blocks, which are found and read one by one.

use std::ops::Range;

use super::{
    VideoBlocks, VideoPacket, block,
    block_entry::{BlockEntry, ENTRY_BYTES, MAX_BLOCK_PACKETS, field, signed},
    packet::{MAX_PACKETS, MAX_TABLE_TIME},
};
use crate::MediaError;

const VERSION: u32 = 1;
/// Bytes of the table before its directory.
const FIRST_BYTES: usize = 24;
/// A block with so many packets ends before a key frame,
const KEY_PACKETS: usize = 128;
/// and one with so many before any packet.
const MANY_PACKETS: usize = 256;

/// The table of a video's packets, without its blocks.
///
/// A *frame* is a picture that is shown; frames are counted from 0 in the order in which they are shown. A block has packets that
/// follow each other in both orders, those in which they are decoded and shown. So a frame is found by its number or its time
/// without other blocks. To decode it takes the packets from a key frame on, which may lie in a block before.
///
/// [`encode_video_table`] makes a table: 24 bytes, a directory with 24 bytes for each block, and the blocks. Numbers are little-endian.
///
/// | bytes | what |
/// |---|---|
/// | 4 | version: 1 |
/// | 4 | number of blocks |
/// | 4 | number of packets |
/// | 4 | number of frames |
/// | 8 | when the last frame ends |
/// | 24 for each block | its entry |
///
/// An entry is the time of the block's first frame (8 bytes); the number of its first packet; that of its first frame; how many
/// packets before its first one decoding has to begin for some of its frames, or 0; and where it ends among the bytes of all blocks.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (packets, frame) = (Vec::new(), 0);
/// let bytes = spdl_media::encode_video_table(&packets)?;
/// let table = spdl_media::VideoTable::read(&bytes)?;
/// let blocks = table.blocks_of(frame..frame + 1).ok_or("no such frame")?;
/// let place = table.place(blocks.clone());
/// let blocks = table.read_blocks(blocks, &bytes[place.start as usize..place.end as usize])?;
/// for packet in blocks.needed(&[frame]).ok_or("no key frame comes before it")? {
///     println!("{:?}", blocks.packets()[packet]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VideoTable<'b> {
    packets: u32,
    frames: u32,
    end: i64,
    directory: &'b [[u8; ENTRY_BYTES]],
}

/// Makes a table of packets, which are in the order in which they are decoded.
///
/// # Errors
/// If there are more than 16,777,216 packets, pictures are shown more than 4,096 packets before or behind their places, or times are
/// larger than files have.
pub fn encode_video_table(packets: &[VideoPacket]) -> Result<Vec<u8>, MediaError> {
    if packets.len() > MAX_PACKETS {
        return Err(MediaError::unsupported_video("more than 16,777,216 packets"));
    }
    let is_time = |time: i64| (-MAX_TABLE_TIME..=MAX_TABLE_TIME).contains(&time);
    if !packets.iter().all(|packet| is_time(packet.pts) && is_time(packet.dts)) {
        return Err(MediaError::unsupported_video("times that are too large"));
    }
    let count = |count: usize| u32::try_from(count).expect("at most 16,777,216");
    let mut directory = Vec::new();
    let mut blocks = Vec::new();
    let (mut first_frame, mut last_key) = (0, None);
    for range in cuts(packets)? {
        let part = &packets[range.clone()];
        let times = || part.iter().filter(|packet| packet.is_shown).map(|packet| packet.pts);
        let time = times().min().or_else(|| part.iter().map(|packet| packet.pts).min()).unwrap_or_default();
        let before = last_key.filter(|_| needs_earlier(part)).map_or(0, |key| range.start - key);
        block::encode(part, time, &mut blocks);
        let end =
            u32::try_from(blocks.len()).map_err(|_| MediaError::unsupported_video("a table of more than 4 GiB"))?;
        directory.extend(time.to_le_bytes());
        directory
            .extend([count(range.start), count(first_frame), count(before), end].map(u32::to_le_bytes).as_flattened());
        first_frame += times().count();
        last_key = part.iter().rposition(|packet| packet.is_key).map(|key| range.start + key).or(last_key);
    }
    let ends = packets.iter().filter(|packet| packet.is_shown).map(|packet| packet.pts + i64::from(packet.duration));
    let heads = [VERSION, count(directory.len() / ENTRY_BYTES), count(packets.len()), count(first_frame)];
    Ok([heads.map(u32::to_le_bytes).as_flattened(), &ends.max().unwrap_or_default().to_le_bytes(), &directory, &blocks]
        .concat())
}

/// Returns the packets of each block.
fn cuts(packets: &[VideoPacket]) -> Result<Vec<Range<usize>>, MediaError> {
    // The earliest time from each packet on.
    let mut earliest: Vec<i64> = packets.iter().map(|packet| packet.pts).collect();
    for nth in (1..earliest.len()).rev() {
        earliest[nth - 1] = earliest[nth - 1].min(earliest[nth]);
    }
    let (mut cuts, mut start, mut latest) = (Vec::new(), 0, i64::MIN);
    for (nth, packet) in packets.iter().enumerate() {
        let count = nth - start;
        if latest <= earliest[nth] && (count >= MANY_PACKETS || count >= KEY_PACKETS && packet.is_key) {
            cuts.push(start..nth);
            start = nth;
        } else if count == MAX_BLOCK_PACKETS {
            return Err(MediaError::unsupported_video(
                "pictures that are shown more than 4,096 packets from their places",
            ));
        }
        latest = latest.max(packet.pts);
    }
    if start < packets.len() {
        cuts.push(start..packets.len());
    }
    Ok(cuts)
}

/// Returns whether a frame of a block needs packets before it.
fn needs_earlier(part: &[VideoPacket]) -> bool {
    let mut earliest_key = i64::MAX;
    part.iter().any(|packet| {
        if packet.is_key {
            earliest_key = earliest_key.min(packet.pts);
        }
        packet.is_shown && packet.pts < earliest_key
    })
}

impl<'b> VideoTable<'b> {
    /// Returns how many bytes [`read`](Self::read) needs of a table that begins with these 24 bytes.
    #[must_use]
    pub fn head_bytes(first: &[u8; FIRST_BYTES]) -> u64 {
        FIRST_BYTES as u64 + ENTRY_BYTES as u64 * u64::from(field(first, 4))
    }

    /// Reads the head of a table and its directory. The blocks that follow need not be there.
    ///
    /// # Errors
    /// If the bytes are no such table.
    pub fn read(bytes: &'b [u8]) -> Result<Self, MediaError> {
        let damaged = |byte: usize, problem| MediaError::Malformed { byte: byte as u64, problem };
        let first = bytes.first_chunk::<FIRST_BYTES>().ok_or_else(|| damaged(0, "the table of packets is cut off"))?;
        if field(first, 0) != VERSION {
            return Err(damaged(0, "the table of packets is of another version"));
        }
        let directory = bytes[FIRST_BYTES..].as_chunks().0.get(..field(first, 4) as usize);
        let directory = directory.ok_or_else(|| damaged(4, "the directory of the table of packets is cut off"))?;
        let [packets, frames] = [8, 12].map(|at| field(first, at));
        let table = Self { packets, frames, end: signed(first, 16), directory };
        let mut before = None;
        for (nth, entry) in directory.iter().map(BlockEntry::read).enumerate() {
            let follows = before.map_or(entry.first_packet == 0 && entry.first_frame == 0, |before: BlockEntry| {
                let counts = entry.first_packet.checked_sub(before.first_packet).filter(|count| *count > 0);
                entry.time >= before.time
                    && entry.first_frame.checked_sub(before.first_frame) <= counts
                    && entry.first_frame >= before.first_frame
                    && entry.end >= before.end
            });
            if !follows
                || entry.before > entry.first_packet
                || entry.first_packet >= packets
                || entry.first_frame > frames
            {
                return Err(damaged(
                    FIRST_BYTES + ENTRY_BYTES * nth,
                    "the directory of the table of packets is not valid",
                ));
            }
            before = Some(entry);
        }
        if directory.is_empty() && (packets > 0 || frames > 0) {
            return Err(damaged(8, "the table of packets has no blocks"));
        }
        Ok(table)
    }

    /// Returns the number of packets.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// Returns the number of frames.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames as u64
    }

    /// Returns when the last frame ends, in units of the track's time base.
    #[must_use]
    pub const fn end(&self) -> i64 {
        self.end
    }

    /// Returns the number of blocks.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.directory.len()
    }

    /// Returns the blocks that have the packets of some frames, and those that decoding them needs; `None` if there are no such
    /// frames.
    #[must_use]
    pub fn blocks_of(&self, frames: Range<u64>) -> Option<Range<usize>> {
        if frames.is_empty() || frames.end > self.frames() {
            return None;
        }
        let block_of = |frame: u64| self.find(|entry| u64::from(entry.first_frame) <= frame);
        let (first, last) = (block_of(frames.start)?, block_of(frames.end - 1)?);
        Some(self.with_earlier(first)?..last + 1)
    }

    /// Returns the blocks that have the packets of the frame that is shown at a time, and those that decoding it needs: the first
    /// frame before its beginning, and the last one behind its end. `None` if there are no frames.
    #[must_use]
    pub fn blocks_at(&self, pts: i64) -> Option<Range<usize>> {
        let found = self.find(|entry| entry.time <= pts).unwrap_or_default();
        // A block without frames follows one with some, or is followed by one.
        let has_frames = |nth: usize| self.frames_of(nth).is_some_and(|frames| !frames.is_empty());
        let found = (0..=found)
            .rev()
            .find(|nth| has_frames(*nth))
            .or_else(|| (found..self.blocks()).find(|nth| has_frames(*nth)))?;
        Some(self.with_earlier(found)?..found + 1)
    }

    /// Returns where some blocks lie, from the beginning of the table.
    #[must_use]
    pub fn place(&self, blocks: Range<usize>) -> Range<u64> {
        let start = (FIRST_BYTES + ENTRY_BYTES * self.blocks()) as u64;
        let end_of = |nth: Option<usize>| nth.and_then(|nth| self.entry(nth)).map_or(0, |entry| entry.end.into());
        start + end_of(blocks.start.checked_sub(1))..start + end_of(blocks.end.checked_sub(1))
    }

    /// Reads some blocks, of the bytes at their place.
    ///
    /// # Errors
    /// If the bytes are not those of the blocks.
    pub fn read_blocks(&self, blocks: Range<usize>, bytes: &[u8]) -> Result<VideoBlocks, MediaError> {
        let place = self.place(blocks.clone());
        let mut read = VideoBlocks::default();
        for nth in blocks {
            let part = self.place(nth..nth + 1);
            let [from, to] =
                [part.start, part.end].map(|byte| usize::try_from(byte - place.start).unwrap_or(usize::MAX));
            let entry = self.entry(nth).zip(self.packets_of(nth)).zip(self.frames_of(nth));
            let added = entry
                .zip(bytes.get(from..to))
                .and_then(|(((entry, packets), frames), bytes)| read.append(entry, packets.len(), frames.len(), bytes));
            added.ok_or(MediaError::Malformed {
                byte: part.start,
                problem: "a block of the table of packets is not valid",
            })?;
        }
        Ok(read)
    }

    /// Returns the block from which on decoding the frames of a block may begin.
    fn with_earlier(&self, nth: usize) -> Option<usize> {
        let entry = self.entry(nth)?;
        match entry.before {
            0 => Some(nth),
            before => self.find(|other| other.first_packet <= entry.first_packet - before),
        }
    }

    /// Returns the last block for which something holds, which holds for all before it, too.
    fn find(&self, holds: impl Fn(&BlockEntry) -> bool) -> Option<usize> {
        self.directory.partition_point(|entry| holds(&BlockEntry::read(entry))).checked_sub(1)
    }

    fn entry(&self, nth: usize) -> Option<BlockEntry> {
        self.directory.get(nth).map(BlockEntry::read)
    }

    fn packets_of(&self, nth: usize) -> Option<Range<usize>> {
        let end = self.entry(nth + 1).map_or(self.packets, |next| next.first_packet);
        Some(self.entry(nth)?.first_packet as usize..end as usize)
    }

    fn frames_of(&self, nth: usize) -> Option<Range<usize>> {
        let end = self.entry(nth + 1).map_or(self.frames, |next| next.first_frame);
        Some(self.entry(nth)?.first_frame as usize..end as usize)
    }
}
