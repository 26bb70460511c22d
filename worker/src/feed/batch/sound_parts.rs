//! The bytes of long sounds that the segments of a batch need. The index of a shard has tables that say where they lie, so that nothing
//! is read before.
//!
//! What is read of a sound has no checksum, but for FLAC and Ogg, whose packets and pages have some of their own.

use std::ops::Range;

use bytes::Bytes;
use spdl_media::{SoundSegment, SoundTable, encode_sound_excerpt};
use spdl_shard::format::ShardIndex;

use super::{
    field_parts::{FieldParts, ReadFields},
    sample::{BatchSample, CutContent, CutField, WantedField},
};
use crate::{decode::FieldLookup, feed::open::Feed, fetch::Pieces};

/// Segments with a gap of at most this many bytes are read by one request: they may have few bytes more, of Opus for speech.
pub(super) const SOUND_GAP_BYTES: u64 = 4 << 10;

/// A sound, and the segment of it to read.
pub(super) struct SoundParts<'f> {
    field: &'f WantedField,
    table: SoundTable<'f>,
    segment: SoundSegment,
    /// The ranges of the shard that it has.
    ranges: Vec<Range<u64>>,
}

impl FieldParts for SoundParts<'_> {
    const GAP_BYTES: u64 = SOUND_GAP_BYTES;

    fn field(&self) -> &WantedField {
        self.field
    }

    fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn cut(&self, read: &Pieces) -> Option<CutField> {
        let parts = self.ranges.iter().map(|range| read.slice(range.clone())).collect::<Option<Vec<_>>>()?;
        let content = encode_sound_excerpt(&self.table, &self.segment, parts);
        let content = CutContent::Value(Bytes::from(content).into());
        Some(CutField { record: self.field.record, nth: self.field.nth, content })
    }
}

/// Plans which bytes of a sound to read; `None` if it has no table, columns need all of it, or most of it is needed.
pub(super) fn plan<'f>(
    feed: &Feed,
    index: &'f dyn ShardIndex,
    samples: &[BatchSample],
    field: &'f WantedField,
) -> Option<SoundParts<'f>> {
    let record = index.record(field.record);
    let table = index.packet_table(&record, field.nth)?;
    let name = index.field(&record, field.nth).name;
    if !feed.decoder.reads_sound_parts(name) {
        return None;
    }
    // A table that cannot be read means that the sound is read whole.
    let table = SoundTable::read(table).ok()?;
    let nothing = Pieces::default();
    let others = ReadFields { index, record: field.record, read: &nothing };
    let of_record = samples.iter().filter(|sample| sample.record == field.record);
    let of_record = of_record.map(|sample| (sample.key(), &others as &dyn FieldLookup));
    let frames = feed.decoder.sound_frames(of_record, (name, &table))?;
    let segment = table.segment(frames).filter(|segment| {
        let is_inside = segment.ranges.last().is_none_or(|last| last.end <= field.bytes());
        // If most of the field is needed, nothing is saved.
        is_inside && segment.bytes() <= field.bytes() / 4 * 3
    })?;
    let shared_by = index.field(&record, field.nth).shared_by.max(1);
    feed.parts.note_segment(segment.bytes(), field.bytes() / u64::from(shared_by));
    let start = field.range.start;
    let ranges = segment.ranges.iter().map(|range| start + range.start..start + range.end).collect();
    Some(SoundParts { field, table, segment, ranges })
}
