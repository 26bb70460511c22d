//! Tables of restart segments: where in a JPEG a decoder finds the part that a crop needs.

use super::{RecordIndex, TABLE_BYTES};
use crate::envelope::{partition_point, u32_at};

/// The places where restart segments of a JPEG begin: every `step`th segment is recorded, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments<'a> {
    /// Number of segments from one recorded segment to the next; at least 1.
    pub step: u32,
    /// Bytes from one recorded segment to the next; little-endian.
    pub lengths: &'a [[u8; 2]],
}

impl Segments<'_> {
    /// Returns the size in bytes that a table with this many entries takes in a record index.
    #[must_use]
    pub const fn index_bytes(entries: usize) -> usize {
        TABLE_BYTES + 2 * entries
    }
}

impl RecordIndex {
    /// Returns the number of fields that have a table of segments.
    #[must_use]
    pub fn table_count(&self) -> u32 {
        self.tables
    }

    /// Returns three numbers of table number `table`: its field, its step, and the end of its entries.
    pub(super) fn table_entry(&self, table: u32) -> [u32; 3] {
        let entry = &self.bytes[self.table_table + TABLE_BYTES * table as usize..][..TABLE_BYTES];
        [0, 4, 8].map(|at| u32_at(entry, at))
    }

    pub(super) fn table(&self, table: u32) -> Segments<'_> {
        let start = if table == 0 { 0 } else { self.table_entry(table - 1)[2] as usize };
        let [_, step, end] = self.table_entry(table);
        let lengths = &self.bytes[self.lengths..self.values].as_chunks().0[start..end as usize];
        Segments { step, lengths }
    }

    pub(super) fn table_of(&self, field: u32) -> Option<Segments<'_>> {
        let table = partition_point(self.tables, |table| self.table_entry(table)[0] < field);
        (table < self.tables && self.table_entry(table)[0] == field).then(|| self.table(table))
    }
}
