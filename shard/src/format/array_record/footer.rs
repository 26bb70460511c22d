//! The end of an ArrayRecord file: where its footer lies, and what the footer states about the chunks.
//!
//! ```text
//! last 64 KiB  a chunk of `RiegeliPostscript`     1: place of the footer  2: magic
//! footer       a chunk, first `RiegeliFooterMetadata`  1: ArrayRecordMetadata
//!              then an `ArrayRecordFooter` for each chunk  1: its place  2: size of its records  3: number of its records
//! ArrayRecordMetadata  1: version  2: number of chunks  3: number of records  4: options of the writer
//! ```

use std::ops::Range;

use bytes::Bytes;

use super::{
    END_BYTES, RecordFields,
    chunk::{ArrayRecordChunk, BLOCK_BYTES, ChunkDecompressor, TRANSPOSED_PROBLEM, Values},
    index_file,
};
use crate::format::{
    MadeIndex,
    protobuf::{ProtobufMessage, ProtobufValue},
};

/// Size of the end of a file that states where the footer lies, in bytes.
pub const LAST_BLOCK_BYTES: u64 = BLOCK_BYTES;
/// Upper limit of the size of a footer, in bytes, stored and decompressed.
pub const MAX_FOOTER_BYTES: u64 = 256 << 20;
/// Upper limit of the bytes of a chunk, stored and decompressed: it has to be in memory as a whole.
const MAX_CHUNK_BYTES: u64 = 1 << 30;
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
/// The version of the footer that is read.
const VERSION: u64 = 1;

/// Returns the range of the footer in a file of `file_bytes`, with the padding of its last block; `last` are the last
/// [`LAST_BLOCK_BYTES`] of the file.
///
/// # Errors
/// What is wrong with the file.
pub fn footer_range(last: &Bytes, file_bytes: u64) -> Result<Range<u64>, String> {
    if file_bytes < 2 * LAST_BLOCK_BYTES || !file_bytes.is_multiple_of(LAST_BLOCK_BYTES) {
        return Err(format!(
            "is cut off, or no ArrayRecord file: it has {file_bytes} bytes, and not two or more times {LAST_BLOCK_BYTES}"
        ));
    }
    let at = file_bytes - LAST_BLOCK_BYTES;
    let wrong = |problem: String| format!("is cut off, or no ArrayRecord file: the chunk in its last 64 KiB {problem}");
    let chunk = ArrayRecordChunk::read(last.clone(), at).map_err(wrong)?;
    let values = records(&chunk, LAST_BLOCK_BYTES).map_err(wrong)?;
    let first = values.ends.first().map_or(0, |end| *end as usize);
    let postscript = MessageIntegers::of(&values.bytes[..first]).ok_or_else(|| wrong("is no postscript".to_owned()))?;
    if postscript.of_field(2) != MAGIC {
        return Err(wrong("has no postscript of ArrayRecord".to_owned()));
    }
    let footer = postscript.of_field(1)..at;
    if footer.is_empty() || footer.end - footer.start > MAX_FOOTER_BYTES {
        return Err(format!(
            "has its footer at byte {}, not within the {MAX_FOOTER_BYTES} before its end",
            footer.start
        ));
    }
    Ok(footer)
}

/// The footer of a file, which describes its chunks.
#[derive(Debug)]
pub struct Footer {
    pub(super) chunks: Vec<ChunkFacts>,
    /// Where the last chunk ends in the file.
    pub(super) end: u64,
    /// Number of records in the file.
    pub(super) records: u32,
}

/// A chunk of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkFacts {
    /// Offset in the file.
    pub(super) at: u64,
    pub(super) records: u32,
    /// Bytes of its records.
    pub(super) decoded_bytes: u32,
}

impl ChunkFacts {
    /// Returns what its records take in memory.
    fn memory(&self) -> u64 {
        u64::from(self.decoded_bytes) + END_BYTES * u64::from(self.records)
    }
}

impl Footer {
    /// Reads the footer that begins at byte `at` of the file; `stored` are the file's bytes from there.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn parse(stored: Bytes, at: u64) -> Result<Self, String> {
        let wrong = |problem: String| format!("has a footer that {problem}");
        let chunk = ArrayRecordChunk::read(stored, at).map_err(wrong)?;
        let values = records(&chunk, MAX_FOOTER_BYTES).map_err(wrong)?;
        let mut messages = messages(&values);
        let metadata = messages.next().and_then(Metadata::read).ok_or_else(|| wrong("has no metadata".to_owned()))?;
        if metadata.version != VERSION {
            return Err(wrong(format!("has version {}, of which this program reads {VERSION}", metadata.version)));
        }
        if metadata.options.split(',').any(|option| option.trim() == "transpose:true") {
            return Err(TRANSPOSED_PROBLEM.to_owned());
        }
        let mut footer = Self { chunks: Vec::with_capacity(values.ends.len() - 1), end: at, records: 0 };
        for (number, message) in messages.enumerate() {
            footer.chunk(message).map_err(|problem| format!("has a footer whose chunk {number} {problem}"))?;
        }
        footer.check_sizes()?;
        if metadata.counts == [footer.chunks.len() as u64, footer.records.into()] {
            return Ok(footer);
        }
        let (chunks, [claimed_chunks, claimed_records]) = (footer.chunks.len(), metadata.counts);
        Err(wrong(format!(
            "has {chunks} chunks with {} records, and claims {claimed_chunks} with {claimed_records}",
            footer.records
        )))
    }

    /// Adds a chunk.
    fn chunk(&mut self, message: &[u8]) -> Result<(), String> {
        let numbers = MessageIntegers::of(message).ok_or("is damaged")?;
        let [at, decoded_bytes, records] = [1, 2, 3].map(|field| numbers.of_field(field));
        if self.chunks.last().is_some_and(|before| before.at >= at) || at >= self.end {
            return Err(format!("is at byte {at}, before the one before it or behind the footer"));
        }
        if decoded_bytes > MAX_CHUNK_BYTES {
            return Err(too_large(records, decoded_bytes));
        }
        let count = u32::try_from(records).ok().filter(|records| *records > 0);
        let records = count.ok_or_else(|| format!("has {records} records"))?;
        self.records = self.records.checked_add(records).ok_or("has more than 4 294 967 295 records before it")?;
        self.chunks.push(ChunkFacts { at, records, decoded_bytes: decoded_bytes as u32 });
        Ok(())
    }

    /// Checks that each chunk can be read.
    fn check_sizes(&self) -> Result<(), String> {
        for (number, chunk) in self.chunks.iter().enumerate() {
            let bytes = (self.end_of(number) - chunk.at).max(chunk.memory());
            if bytes > MAX_CHUNK_BYTES {
                return Err(format!("has a chunk {number} that {}", too_large(chunk.records.into(), bytes)));
            }
        }
        Ok(())
    }

    /// Returns where chunk number `number` ends in the file, with the padding after it.
    pub(super) fn end_of(&self, number: usize) -> u64 {
        self.chunks.get(number + 1).map_or(self.end, |next| next.at)
    }

    /// Makes the index of the file of `file_bytes`, with blocks of about `block_bytes`. Keys of records begin with
    /// `key_prefix`.
    ///
    /// # Errors
    /// Why the file has no index.
    pub fn index(
        &self,
        file_bytes: u64,
        fields: &RecordFields,
        key_prefix: &str,
        block_bytes: u64,
    ) -> Result<MadeIndex, String> {
        let segments = self.segments(block_bytes);
        let made = index_file::write(self, &segments, file_bytes, fields, key_prefix);
        made.map_err(|error| error.to_string())
    }

    /// Cuts the file into segments: neighbouring chunks that take about `target_bytes`, or one that takes more.
    fn segments(&self, target_bytes: u64) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let (mut at, mut memory) = (0, 0);
        for (number, chunk) in self.chunks.iter().enumerate() {
            let end = self.end_of(number);
            memory += chunk.memory();
            match segments.last_mut() {
                Some(last) if memory.max(end - self.chunks[last.chunks.start].at) <= target_bytes => {
                    last.chunks.end = number + 1;
                    last.bytes = memory.max(end - self.chunks[last.chunks.start].at);
                }
                last => {
                    at += last.map_or(0, |last| last.bytes);
                    memory = chunk.memory();
                    segments.push(Segment { at, bytes: memory.max(end - chunk.at), chunks: number..number + 1 });
                }
            }
        }
        segments
    }
}

/// Neighbouring chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Offset in the shard.
    pub(super) at: u64,
    /// Bytes in the shard.
    pub(super) bytes: u64,
    /// Numbers of the chunks.
    pub(super) chunks: Range<usize>,
}

fn too_large(records: u64, bytes: u64) -> String {
    format!(
        "has {records} records that take {bytes} bytes, more than {MAX_CHUNK_BYTES}: write it again with a smaller `group_size`"
    )
}

/// Reads the records of a chunk that holds metadata and no samples.
fn records(chunk: &ArrayRecordChunk, max_bytes: u64) -> Result<Values, String> {
    // Each of its messages has two bytes or more.
    if chunk.records == 0 || chunk.records > max_bytes / 2 {
        return Err(format!("has {} records", chunk.records));
    }
    let mut values = Values::default();
    ChunkDecompressor::new()?.records(chunk, max_bytes, &mut values)?;
    Ok(values)
}

fn messages(values: &Values) -> impl Iterator<Item = &[u8]> {
    let starts = std::iter::once(0).chain(values.ends.iter().copied());
    starts.zip(&values.ends).map(|(start, end)| &values.bytes[start as usize..*end as usize])
}

/// The integers of the first fields of a message; a missing one is 0.
struct MessageIntegers([u64; 4]);

impl MessageIntegers {
    fn of(message: &[u8]) -> Option<Self> {
        let (mut fields, mut numbers) = (ProtobufMessage::new(message, 0..message.len()), [0; 4]);
        while let Some(field) = fields.next()? {
            if let (number @ 1..=3, ProtobufValue::Number(value)) = (field.number, field.value) {
                numbers[number as usize] = value;
            }
        }
        Some(Self(numbers))
    }

    const fn of_field(&self, field: usize) -> u64 {
        self.0[field]
    }
}

/// The footer's metadata about the whole file.
struct Metadata {
    version: u64,
    /// Numbers of chunks and of records.
    counts: [u64; 2],
    /// The options that the file was written with, separated by commas.
    options: String,
}

impl Metadata {
    fn read(message: &[u8]) -> Option<Self> {
        let mut fields = ProtobufMessage::new(message, 0..message.len());
        let mut found = None;
        while let Some(field) = fields.next()? {
            if let (1, ProtobufValue::Delimited(metadata)) = (field.number, field.value) {
                found = Some(&message[metadata]);
            }
        }
        let metadata = found?;
        let numbers = MessageIntegers::of(metadata)?;
        let (mut fields, mut options) = (ProtobufMessage::new(metadata, 0..metadata.len()), String::new());
        while let Some(field) = fields.next()? {
            if let (4, ProtobufValue::Delimited(text)) = (field.number, field.value) {
                options = String::from_utf8_lossy(&metadata[text]).into_owned();
            }
        }
        let counts = [numbers.of_field(2), numbers.of_field(3)];
        Some(Self { version: numbers.of_field(1), counts, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer(chunks: &[(u64, u32, u32)], end: u64) -> Footer {
        let chunks = chunks.iter().map(|(at, records, decoded_bytes)| ChunkFacts {
            at: *at,
            records: *records,
            decoded_bytes: *decoded_bytes,
        });
        let chunks: Vec<_> = chunks.collect();
        Footer { records: chunks.iter().map(|chunk| chunk.records).sum(), chunks, end }
    }

    #[test]
    fn neighbouring_chunks_are_a_segment_up_to_the_size_of_a_block_and_a_larger_one_is_one_alone() {
        let footer = footer(&[(64, 1, 100), (164, 1, 50), (264, 1, 5000), (300, 1, 10), (400, 2, 300)], 1000);
        let segments = footer.segments(800);
        let found: Vec<_> =
            segments.iter().map(|segment| (segment.at, segment.bytes, segment.chunks.clone())).collect();
        // A chunk counts as its stored size, or as its decompressed size and four bytes for each record, whichever is
        // more.
        assert_eq!(found, [(0, 200, 0..2), (200, 5004, 2..3), (5204, 700, 3..5)]);
        assert_eq!(footer.segments(0).len(), 5);
    }

    #[test]
    fn a_chunk_that_has_to_be_in_memory_is_limited() {
        let large = footer(&[(64, 7, 1 << 30)], 1000);
        let error = large.check_sizes().unwrap_err();
        assert!(error.contains("chunk 0 that has 7 records") && error.contains("`group_size`"), "{error}");
        assert!(footer(&[(64, 7, (1 << 30) - 28)], 1000).check_sizes().is_ok());
    }
}
