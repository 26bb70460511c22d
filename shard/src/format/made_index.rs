//! The index of a file of a format whose files state at their end where their records lie.

use std::ops::Range;

use bytes::Bytes;
use spdl_types::Fingerprint;

use crate::manifest::BlockFacts;

/// The index that was made for a file.
#[derive(Debug)]
pub struct MadeIndex {
    /// The stored form of the index.
    pub index: Bytes,
    /// Its hash.
    pub hash: Fingerprint,
    /// Number of records.
    pub records: u32,
    /// Bytes of the shard.
    pub bytes: u64,
    /// The blocks.
    pub blocks: Vec<BlockFacts>,
    /// The names of the fields, and how many records have each, if the file states it.
    pub fields: Vec<(String, Option<u64>)>,
}

/// Returns the numbers of the segments that overlap `range` of the shard; `at` returns where a segment begins.
pub(super) fn segments_in<S>(segments: &[S], at: impl Fn(&S) -> u64, range: &Range<u64>) -> Range<usize> {
    let first = segments.partition_point(|segment| at(segment) <= range.start).saturating_sub(1);
    let end = segments.partition_point(|segment| at(segment) < range.end);
    first..end.max(first)
}
