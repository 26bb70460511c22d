//! What reading the parts of long videos and of long sounds has in common.

use std::ops::Range;

use spdl_shard::format::{FieldValue, ShardIndex};

use super::sample::{CutField, WantedField};
use crate::{
    decode::FieldLookup,
    feed::FeedError,
    fetch::{BlockPlace, Fetcher, Pieces},
};

/// A long video or sound, and the parts of it to read.
pub(super) trait FieldParts {
    /// Parts with a gap of at most this many bytes are read by one request.
    const GAP_BYTES: u64;

    /// Returns the field.
    fn field(&self) -> &WantedField;

    /// Returns the ranges of the shard that are to be read.
    fn ranges(&self) -> &[Range<u64>];

    /// Returns an excerpt with the parts; `None` if not all have been read.
    fn cut(&self, read: &Pieces) -> Option<CutField>;
}

/// Returns the number of bytes of the parts of fields.
pub(super) fn bytes_of<P: FieldParts>(fields: &[P]) -> u64 {
    fields.iter().flat_map(FieldParts::ranges).map(|range| range.end - range.start).sum()
}

/// Reads the parts of fields, and returns excerpts of these and the bytes that were read; `None` if one cannot be made.
pub(super) async fn excerpts<P: FieldParts>(
    fetcher: &Fetcher,
    place: &BlockPlace,
    fields: &[P],
) -> Result<Option<(Vec<CutField>, u64)>, FeedError> {
    let ranges = fields.iter().flat_map(FieldParts::ranges).cloned().collect();
    let read = fetcher.read_ranges(place, ranges, P::GAP_BYTES).await?;
    let cut = fields.iter().map(|field| field.cut(&read)).collect::<Option<Vec<_>>>();
    Ok(cut.map(|cut| (cut, read.bytes())))
}

/// The fields of a record that lie in its index, or have been read whole, by which crops and segments are planned.
pub(super) struct ReadFields<'r> {
    pub(super) index: &'r dyn ShardIndex,
    pub(super) record: u32,
    pub(super) read: &'r Pieces,
}

impl FieldLookup for ReadFields<'_> {
    fn value(&self, name: &str) -> Option<FieldValue> {
        let record = self.index.record(self.record);
        let field = record.field(name)?;
        self.index.open(&field, &|range| self.read.slice(range)).ok()
    }
}
