//! The parts of long videos that the clips of a batch need: the tables that say where packets lie are read first, and then the packets
//! that decoding the clips takes. Matroska has its tables between the packets, and an index may have stored them; without that, and in
//! fragments of MP4, videos are read whole.
//!
//! What is read of a video has no checksum. A table that cannot be read means that the video is read whole, and decoding says
//! what is wrong with it.

use std::{ops::Range, sync::Arc};

use spdl_media::{VideoBlocks, VideoTrack};
use spdl_shard::{format::ShardIndex, ranges::merge};

use super::{
    field_parts::{FieldParts, ReadFields, bytes_of},
    sample::{BatchSample, CutContent, CutField, WantedField},
    video_tables::{NoTables, VideoKey, stored_tables, tables_of},
};
use crate::{
    decode::{FieldLookup, ReadVideo},
    feed::{FeedError, open::Feed},
    fetch::Pieces,
};

/// Packets with a gap of at most this many bytes are read by one request: what lies between them is mostly sound, and packets that no
/// other one needs. When raised, fewer requests read more bytes.
pub(super) const VIDEO_GAP_BYTES: u64 = 64 << 10;
/// Videos of at least this many bytes are read in parts. Of shorter ones, the tables and two requests more cost what that saves.
pub(super) const LARGE_VIDEO_BYTES: u64 = 4 << 20;

/// A video, and the packets of it to read.
pub(super) struct VideoParts<'f> {
    field: &'f WantedField,
    track: Arc<VideoTrack>,
    blocks: Arc<VideoBlocks>,
    packets: Vec<usize>,
    /// The ranges of the shard that are read: the packets, and what lies between near ones.
    ranges: Vec<Range<u64>>,
}

impl FieldParts for VideoParts<'_> {
    /// The ranges have the gaps already.
    const GAP_BYTES: u64 = 0;

    fn field(&self) -> &WantedField {
        self.field
    }

    fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn cut(&self, read: &Pieces) -> Option<CutField> {
        let video = read_packets((&self.track, &self.blocks), &self.packets, self.field.range.start, read)?;
        Some(CutField { record: self.field.record, nth: self.field.nth, content: CutContent::Video(video) })
    }
}

/// Returns where a packet lies in the shard, of a video that begins at byte `start` of it.
pub(super) fn place(blocks: &VideoBlocks, packet: usize, start: u64) -> Range<u64> {
    let packet = blocks.packets()[packet];
    start + packet.offset..start + packet.offset + u64::from(packet.bytes)
}

/// Returns a video with these packets, of which all have been read.
pub(super) fn read_packets(
    (track, blocks): (&Arc<VideoTrack>, &Arc<VideoBlocks>),
    packets: &[usize],
    start: u64,
    read: &Pieces,
) -> Option<ReadVideo> {
    let packet = |packet: &usize| Some((*packet, read.slice(place(blocks, *packet, start))?));
    let packets = packets.iter().map(packet).collect::<Option<_>>()?;
    Some(ReadVideo::new(Arc::clone(track), Arc::clone(blocks), packets))
}

/// Plans which packets of a video to read; `None` if the field is no long video, most of it is needed, or its tables cannot be read.
pub(super) async fn plan<'f>(
    feed: &Feed,
    index: &dyn ShardIndex,
    samples: &[BatchSample],
    field: &'f WantedField,
) -> Result<Option<VideoParts<'f>>, FeedError> {
    if field.bytes() < LARGE_VIDEO_BYTES {
        return Ok(None);
    }
    let record = index.record(field.record);
    let name = index.field(&record, field.nth).name;
    if !feed.decoder.reads_video(name) {
        return Ok(None);
    }
    let block = samples[0].block;
    let key = VideoKey::Field(block, field.record, field.nth);
    let known = match index.packet_table(&record, field.nth) {
        Some(stored) => stored_tables(feed, &key, stored, field.bytes()),
        None => match tables_of(feed, key, &feed.datasets.place(block), &field.range).await {
            Ok(known) => Some(known),
            Err(NoTables::Video(_)) => None,
            Err(NoTables::Fetch(error)) => return Err(error),
        },
    };
    let Some(known) = known else { return Ok(None) };
    let (track, blocks) = (Arc::clone(&known.track), Arc::new(known.all_blocks()));
    let nothing = Pieces::default();
    let others = ReadFields { index, record: field.record, read: &nothing };
    let of_record = samples.iter().filter(|sample| sample.record == field.record);
    let of_record = of_record.map(|sample| (sample.key(), &others as &dyn FieldLookup));
    let Some(packets) = feed.decoder.video_packets(of_record, name, (&track, &blocks)) else { return Ok(None) };
    let places = packets.iter().map(|packet| place(&blocks, *packet, field.range.start)).collect();
    let ranges = merge(places, VIDEO_GAP_BYTES);
    let planned = VideoParts { field, track, blocks, packets, ranges };
    let bytes = bytes_of(std::slice::from_ref(&planned));
    // If most of the field is needed, one request is better than several.
    Ok((bytes <= field.bytes() / 4 * 3).then_some(planned))
}
