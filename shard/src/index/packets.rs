//! Tables of packets: where in a long sound or video a decoder finds the part that a segment or a clip needs.

use super::{PACKET_TABLE_BYTES, RecordIndex};
use crate::envelope::{partition_point, u32_at};

impl RecordIndex {
    /// Returns two numbers of table number `table`: its field, and where it ends in the tables.
    pub(super) fn packet_entry(&self, table: u32) -> [u32; 2] {
        let entry = &self.bytes[self.packet_table + PACKET_TABLE_BYTES * table as usize..][..PACKET_TABLE_BYTES];
        [0, 4].map(|at| u32_at(entry, at))
    }

    /// Returns the table of field number `field`, if it has one.
    pub(super) fn packets_of(&self, field: u32) -> Option<&[u8]> {
        let table = partition_point(self.packet_tables, |table| self.packet_entry(table)[0] < field);
        if table == self.packet_tables || self.packet_entry(table)[0] != field {
            return None;
        }
        let start = if table == 0 { 0 } else { self.packet_entry(table - 1)[1] };
        Some(&self.bytes[self.packets..][start as usize..self.packet_entry(table)[1] as usize])
    }
}
