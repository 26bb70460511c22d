//! Finds the fields of a file's records by reading the first of them.

use std::{collections::HashSet, ops::Range};

use bytes::Bytes;

use super::{
    Footer, RecordFields,
    chunk::{ArrayRecordChunk, ChunkDecompressor, Values},
};
use crate::format::tfrecord::{features, is_example};

/// Size of the beginning of a file whose chunks are sampled, in bytes. The first chunk always is.
const SAMPLED_BYTES: u64 = 64 << 10;
/// Upper limit of the number of names of fields.
const MAX_NAMES: usize = 1 << 16;

impl Footer {
    /// Returns the range of the file that [`fields_of`] takes; `None` if the file has no records.
    #[must_use]
    pub fn sampled(&self) -> Option<Range<u64>> {
        let start = self.chunks.first()?.at;
        Some(start..self.end_of(self.sampled_chunks() - 1))
    }

    /// Returns the decompressed size of the sampled records, in bytes.
    #[must_use]
    pub fn sampled_bytes(&self) -> u64 {
        self.chunks[..self.sampled_chunks()].iter().map(|chunk| u64::from(chunk.decoded_bytes)).sum()
    }

    /// Returns how many chunks are sampled. Their stored and decompressed sizes are within `SAMPLED_BYTES`, unless it
    /// is one chunk.
    fn sampled_chunks(&self) -> usize {
        let Some(start) = self.chunks.first().map(|chunk| chunk.at) else { return 0 };
        let mut decoded_bytes = 0;
        let mut fits = |number: usize| {
            decoded_bytes += u64::from(self.chunks[number].decoded_bytes);
            (self.end_of(number) - start).max(decoded_bytes) <= SAMPLED_BYTES
        };
        (0..self.chunks.len()).take_while(|number| fits(*number)).count().max(1)
    }
}

/// Returns the fields of a file's records; `stored` are the bytes of the range [`Footer::sampled`].
///
/// If all sampled records are examples, the fields are their features, in the order of first appearance; otherwise the
/// one field is the whole record.
///
/// # Errors
/// What is wrong with the file.
pub fn fields_of(footer: &Footer, stored: &Bytes) -> Result<RecordFields, String> {
    let mut decompressor = ChunkDecompressor::new()?;
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    let mut values = Values::default();
    for (number, facts) in footer.chunks.iter().enumerate().take(footer.sampled_chunks()) {
        let wrong = |problem: String| format!("is not read: chunk {number} at byte {} {problem}", facts.at);
        let start = (facts.at - footer.chunks[0].at) as usize;
        let stored = stored.get(start..).map(|rest| stored.slice_ref(rest)).unwrap_or_default();
        let chunk = ArrayRecordChunk::read(stored, facts.at).map_err(wrong)?;
        if chunk.records != u64::from(facts.records) {
            return Err(wrong(format!("has {} records, and the footer has {}", chunk.records, facts.records)));
        }
        values.bytes.clear();
        values.ends.clear();
        decompressor.records(&chunk, facts.decoded_bytes.into(), &mut values).map_err(wrong)?;
        let mut start = 0;
        for end in &values.ends {
            let record = &values.bytes[start..*end as usize];
            start = *end as usize;
            if !is_example(record) {
                return Ok(RecordFields::Whole);
            }
            for (name, _) in features(record)? {
                if known.insert(name.clone()) {
                    names.push(name);
                }
            }
            if names.len() > MAX_NAMES {
                return Err(format!("has more than {MAX_NAMES} names of features"));
            }
        }
    }
    Ok(if names.is_empty() { RecordFields::Whole } else { RecordFields::Features(names) })
}
