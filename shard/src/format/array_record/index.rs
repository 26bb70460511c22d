//! The index of an ArrayRecord file: where its chunks lie, in the file and in the shard, and what the fields of its records are.

use std::sync::Arc;
use std::{collections::HashMap, ops::Range};

use bytes::Bytes;

use super::RecordFields;
use crate::format::made_index::segments_in;
use crate::format::{DecodedBlock, Decoding, FetchedBytes};
use crate::{
    envelope::{last_before, text, u32_at, u64_at},
    format::{Field, ObjectRange, Record, ShardIndex, StoredObject},
    manifest::Shard,
};

/// Size of a chunk's entry in the index, in bytes.
pub(super) const CHUNK_BYTES: usize = 16;

/// The index of a file, which was checked when it was opened.
#[derive(Debug)]
pub(super) struct ArrayRecordIndex {
    pub(super) bytes: Bytes,
    /// Size of the file.
    pub(super) file_bytes: u64,
    /// Where the last chunk ends in the file.
    pub(super) end: u64,
    pub(super) shard_bytes: u64,
    pub(super) records: u32,
    /// The place in `bytes` of the entries of chunks. They are read in place, because a file can have one chunk for
    /// each record.
    pub(super) chunks: Range<usize>,
    pub(super) segments: Vec<PlacedSegment>,
    /// The place in `bytes` of the prefix of all keys.
    pub(super) prefix: Range<usize>,
    pub(super) fields: RecordFields,
    pub(super) names: Vec<String>,
    pub(super) by_name: HashMap<String, u32>,
}

/// Neighbouring chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedSegment {
    /// Offset in the shard.
    pub(super) at: u64,
    pub(super) first_chunk: u32,
}

/// A chunk of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexedChunk {
    /// Offset in the file.
    pub(super) at: u64,
    pub(super) first_record: u32,
    /// Bytes of its records.
    pub(super) decoded_bytes: u32,
}

impl ArrayRecordIndex {
    pub(super) fn chunk_count(&self) -> u32 {
        (self.chunks.len() / CHUNK_BYTES) as u32
    }

    pub(super) fn chunk(&self, number: u32) -> IndexedChunk {
        let entry = &self.bytes[self.chunks.clone()][number as usize * CHUNK_BYTES..][..CHUNK_BYTES];
        IndexedChunk { at: u64_at(entry, 0), first_record: u32_at(entry, 8), decoded_bytes: u32_at(entry, 12) }
    }

    /// Returns the range of the file that a chunk takes, with the padding after it.
    pub(super) fn stored(&self, chunk: u32) -> Range<u64> {
        let end = if chunk + 1 < self.chunk_count() { self.chunk(chunk + 1).at } else { self.end };
        self.chunk(chunk).at..end
    }

    /// Returns the numbers of the records of a chunk.
    pub(super) fn records_of(&self, chunk: u32) -> Range<u32> {
        let next = chunk + 1;
        let end = if next < self.chunk_count() { self.chunk(next).first_record } else { self.records };
        self.chunk(chunk).first_record..end
    }

    /// Returns the numbers of the chunks of segment number `segment`.
    pub(super) fn chunks_of(&self, segment: usize) -> Range<u32> {
        let end = self.segments.get(segment + 1).map_or(self.chunk_count(), |next| next.first_chunk);
        self.segments[segment].first_chunk..end
    }

    /// Returns the bytes that segment number `segment` takes in the shard.
    pub(super) fn segment_bytes(&self, segment: usize) -> u64 {
        let end = self.segments.get(segment + 1).map_or(self.shard_bytes, |next| next.at);
        end - self.segments[segment].at
    }

    /// Returns where the chunks of a segment lie in the file.
    pub(super) fn stored_segment(&self, segment: usize) -> Range<u64> {
        let chunks = self.chunks_of(segment);
        self.chunk(chunks.start).at..self.stored(chunks.end - 1).end
    }

    /// Returns the range of the shard in which a chunk of segment number `segment` lies.
    pub(super) fn place(&self, segment: usize, chunk: u32) -> Range<u64> {
        let PlacedSegment { at, first_chunk } = self.segments[segment];
        let (first, stored) = (self.chunk(first_chunk).at, self.stored(chunk));
        at + (stored.start - first)..at + (stored.end - first)
    }

    /// Returns the numbers of the segments that overlap `range` of the shard.
    pub(super) fn segments_in(&self, range: &Range<u64>) -> Range<usize> {
        segments_in(&self.segments, |segment| segment.at, range)
    }

    /// Returns the number of the segment and of the chunk that hold this record.
    fn chunk_with(&self, record: u32) -> (usize, u32) {
        let chunk = last_before(self.chunk_count(), |chunk| self.chunk(chunk).first_record <= record);
        (self.segments.partition_point(|segment| segment.first_chunk <= chunk) - 1, chunk)
    }
}

impl ShardIndex for ArrayRecordIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        self.shard_bytes
    }

    fn record_count(&self) -> u32 {
        self.records
    }

    fn record(&self, record: u32) -> Record<'_> {
        Record::numbered(self, record, text(&self.bytes[self.prefix.clone()]), self.names.len())
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let name = &self.names[nth as usize];
        let (segment, chunk) = self.chunk_with(record.number);
        let (range, records) = (self.place(segment, chunk), self.records_of(chunk));
        let bytes = u32::try_from(range.end - range.start).expect("checked when the index is opened");
        let shared_by = records.end - records.start;
        Field { name, offset: range.start, bytes, shared_by, crc32c: None, value: None }
    }

    fn field_number(&self, _record: &Record<'_>, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    fn plan(&self, shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        let object = StoredObject::of_file(shard, self.file_bytes);
        let mut plan: Vec<ObjectRange> = Vec::new();
        for wanted in ranges {
            for segment in self.segments_in(wanted) {
                let (PlacedSegment { at, .. }, stored) = (self.segments[segment], self.stored_segment(segment));
                let (start, end) = (wanted.start.max(at), wanted.end.min(at + (stored.end - stored.start)));
                if start < end {
                    let range = stored.start + (start - at)..stored.start + (end - at);
                    plan.push(ObjectRange { object: object.clone(), range, at: start });
                }
            }
        }
        plan
    }

    fn decoding(&self, ranges: &[Range<u64>], _fetched: &FetchedBytes<'_>) -> Decoding {
        super::decode::decoding(self, ranges)
    }

    fn decode(&self, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Option<Arc<dyn DecodedBlock>> {
        Some(Arc::new(super::decode::decode(self, ranges, fetched)))
    }
}
