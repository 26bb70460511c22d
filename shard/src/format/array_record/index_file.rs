//! The stored form of the index of an ArrayRecord file. `docs/spec/formats/array-record.md` has the layout.

use std::collections::HashMap;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::footer::{Footer, Segment};
use super::{
    END_BYTES, RecordFields, WHOLE_RECORD,
    index::{ArrayRecordIndex, CHUNK_BYTES, PlacedSegment},
};
use crate::{
    FormatError,
    envelope::{FileKind, HEAD_BYTES, check_expected, sealed, sections_of, u32_at, u64_at, wrong},
    format::MadeIndex,
    manifest::BlockFacts,
};

const KIND: FileKind =
    FileKind { name: "ArrayRecord index", magic: *b"SPDLARR\n", version: 1, header_bytes: HEADER_BYTES };

const HEADER_BYTES: usize = 92;
const SEGMENT_BYTES: usize = 12;
/// Codes for what the fields of records are.
const WHOLE: u32 = 0;
const FEATURES: u32 = 1;

/// Opens an index whose hash in the manifest is `expected`.
pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<ArrayRecordIndex, FormatError> {
    check_expected(&KIND, &bytes, expected)?;
    ArrayRecordIndex::read(bytes)
}

/// Makes the index of a file of `file_bytes` that is cut into `segments`.
pub(super) fn write(
    footer: &Footer,
    segments: &[Segment],
    file_bytes: u64,
    fields: &RecordFields,
    prefix: &str,
) -> Result<MadeIndex, FormatError> {
    let (names, mut text) = (fields.names(), prefix.to_owned());
    let mut file = vec![0; HEAD_BYTES];
    let bytes = segments.last().map_or(0, |last| last.at + last.bytes);
    [file_bytes, footer.end, bytes].iter().for_each(|number| file.extend(number.to_le_bytes()));
    file.extend([0; HEADER_BYTES - HEAD_BYTES - 24]);
    let mut first_record = 0;
    for chunk in &footer.chunks {
        file.extend(chunk.at.to_le_bytes());
        file.extend(u32::to_le_bytes(first_record));
        file.extend(chunk.decoded_bytes.to_le_bytes());
        first_record += chunk.records;
    }
    let mut blocks: Vec<BlockFacts> = Vec::with_capacity(segments.len());
    for Segment { at, bytes, chunks } in segments {
        file.extend(at.to_le_bytes());
        file.extend((chunks.start as u32).to_le_bytes());
        let first_record = blocks.last().map_or(0, |before| before.first_record + before.records);
        let records = footer.chunks[chunks.clone()].iter().map(|chunk| chunk.records).sum();
        let too_long = |_| FormatError::Unwritable("one of its blocks has 4 GiB or more".to_owned());
        let bytes = u32::try_from(*bytes).map_err(too_long)?;
        blocks.push(BlockFacts { offset: *at, bytes, first_record, records, samples: records });
    }
    for name in &names {
        text.push_str(name);
        file.extend((text.len() as u32).to_le_bytes());
    }
    file.extend(text.as_bytes());
    let kind = if *fields == RecordFields::Whole { WHOLE } else { FEATURES };
    let counts = [footer.chunks.len(), segments.len(), kind as usize, names.len(), text.len(), prefix.len()];
    let too_much = |_| FormatError::Unwritable("it has too many chunks, or names of fields".to_owned());
    file[64..68].copy_from_slice(&footer.records.to_le_bytes());
    for (count, place) in counts.into_iter().zip(file[68..HEADER_BYTES].chunks_exact_mut(4)) {
        place.copy_from_slice(&u32::try_from(count).map_err(too_much)?.to_le_bytes());
    }
    let (index, hash) = sealed(&KIND, file, open)?;
    // Only the records themselves show which features each of them has.
    let having = (kind == WHOLE).then_some(u64::from(footer.records));
    let fields = names.into_iter().map(|name| (name, having)).collect();
    Ok(MadeIndex { index, hash, records: footer.records, bytes, blocks, fields })
}

impl ArrayRecordIndex {
    /// Reads and checks an index whose envelope is right.
    fn read(bytes: Bytes) -> Result<Self, FormatError> {
        let [chunk_count, segments, kind, names, text_bytes, prefix_bytes] =
            [68, 72, 76, 80, 84, 88].map(|at| u32_at(&bytes, at));
        let lengths = [(chunk_count, CHUNK_BYTES), (segments, SEGMENT_BYTES), (names, 4), (text_bytes, 1)];
        let lengths = lengths.map(|(count, width)| u64::from(count) * width as u64);
        let [chunks, segments, ends, text_at] = sections_of(HEADER_BYTES, lengths, &bytes)?;
        let names = names_of(&bytes, ends..text_at, prefix_bytes)?;
        let fields = match (kind, &names[..]) {
            (WHOLE, [name]) if name == WHOLE_RECORD => RecordFields::Whole,
            (FEATURES, [_, ..]) => RecordFields::Features(names.clone()),
            _ => return Err(wrong("its fields are neither features nor whole records")),
        };
        let mut by_name = HashMap::new();
        for (number, name) in (0..).zip(&names) {
            if name.is_empty() || name.contains(char::is_control) || by_name.insert(name.clone(), number).is_some() {
                return Err(wrong("it has a field twice, or one without a proper name"));
            }
        }
        let segment = |entry: &[u8]| PlacedSegment { at: u64_at(entry, 0), first_chunk: u32_at(entry, 8) };
        let index = Self {
            file_bytes: u64_at(&bytes, 40),
            end: u64_at(&bytes, 48),
            shard_bytes: u64_at(&bytes, 56),
            records: u32_at(&bytes, 64),
            chunks: chunks..segments,
            segments: bytes[segments..ends].chunks_exact(SEGMENT_BYTES).map(segment).collect(),
            prefix: text_at..text_at + prefix_bytes as usize,
            fields,
            names,
            by_name,
            bytes,
        };
        index.check_chunks()?;
        index.check_segments()?;
        Ok(index)
    }

    /// Checks that chunks follow each other in the file, and have records.
    fn check_chunks(&self) -> Result<(), FormatError> {
        let count = self.chunk_count();
        if (count == 0) != (self.records == 0) || self.end > self.file_bytes {
            return Err(wrong("it has chunks without records, or behind the end of the file"));
        }
        for number in 0..count {
            let (stored, records) = (self.stored(number), self.records_of(number));
            if stored.is_empty() || records.is_empty() || number == 0 && records.start != 0 {
                return Err(wrong(&format!("chunk {number} is out of order")));
            }
        }
        Ok(())
    }

    /// Checks that segments follow each other, and have room for their chunks, stored and decompressed.
    fn check_segments(&self) -> Result<(), FormatError> {
        if self.segments.is_empty() != (self.records == 0) {
            return Err(wrong("it has chunks in no run of chunks"));
        }
        for (number, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(number + 1).copied();
            let next = next.unwrap_or(PlacedSegment { at: self.shard_bytes, first_chunk: self.chunk_count() });
            let is_first = number > 0 || segment.at == 0 && segment.first_chunk == 0;
            let has_chunks = (segment.first_chunk.saturating_add(1)..=self.chunk_count()).contains(&next.first_chunk);
            if !is_first || !has_chunks || next.at < segment.at {
                return Err(wrong("its runs of chunks are out of order"));
            }
            let (chunks, stored) = (self.chunks_of(number), self.stored_segment(number));
            let decoded = chunks.clone().map(|chunk| u64::from(self.chunk(chunk).decoded_bytes)).sum::<u64>();
            let records = self.records_of(chunks.end - 1).end - self.chunk(chunks.start).first_record;
            let memory = decoded + END_BYTES * u64::from(records);
            let room = self.segment_bytes(number);
            if room < memory.max(stored.end - stored.start) || u32::try_from(room).is_err() {
                return Err(wrong("a run of chunks has no room for them, or too much"));
            }
        }
        Ok(())
    }
}

/// Reads the names of fields, which follow the prefix of keys in the text; `ends` is the place of their ends.
fn names_of(bytes: &[u8], ends: std::ops::Range<usize>, prefix_bytes: u32) -> Result<Vec<String>, FormatError> {
    let all = std::str::from_utf8(&bytes[ends.end..]).map_err(|_| wrong("its text is not UTF-8"))?;
    let out_of_order = || wrong("its table of text is out of order");
    let mut start = prefix_bytes as usize;
    all.get(..start).ok_or_else(out_of_order)?;
    let mut names = Vec::with_capacity(ends.len() / 4);
    for entry in bytes[ends].chunks_exact(4) {
        let end = u32_at(entry, 0) as usize;
        names.push(all.get(start..end).ok_or_else(out_of_order)?.to_owned());
        start = end;
    }
    match start == all.len() {
        true => Ok(names),
        false => Err(wrong("its text has unused bytes")),
    }
}
