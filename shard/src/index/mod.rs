//! The record index of a shard: the offset, length and checksum of each record's fields, where the restart segments of
//! crop-ready pictures begin, and where the packets of long sounds and videos lie.
//!
//! The index of a shard lies with the manifest as `SHARD.idx`; a process reads it when it needs the shard's records.
//! `docs/spec/formats/record-index.md` has the layout.

mod build;
mod file;
mod open;
mod packets;
mod segments;
mod spool;

pub use build::IndexBuilder;
pub use file::IndexFile;
pub use segments::Segments;
pub use spool::Spool;

pub use crate::{
    envelope::FormatError as IndexError,
    format::{Field, Record},
};

use bytes::Bytes;

use crate::{
    envelope::{FileKind, last_before, partition_point, text, u32_at, u64_at},
    format::ShardIndex,
};

/// The suffix that turns a shard's name into the name of its record index.
pub const INDEX_SUFFIX: &str = ".idx";

/// Returns whether an object has the name of an index, or of an index that is about to replace another one.
#[must_use]
pub fn is_index(name: &str) -> bool {
    name.strip_suffix(".new").unwrap_or(name).ends_with(INDEX_SUFFIX)
}

pub(crate) const KIND: FileKind =
    FileKind { name: "record index", magic: *b"SPDLIDX\n", version: 4, header_bytes: HEADER_BYTES };
/// The version without tables of segments, which is written if there are no tables, values or shared fields.
const VERSION_WITHOUT_TABLES: u32 = 1;
/// The version without values and shared fields, which is written if there are tables and neither of these.
const VERSION_WITHOUT_VALUES: u32 = 2;
/// The version without tables of packets, which is written if there are values or shared fields and no such tables.
const VERSION_WITHOUT_PACKETS: u32 = 3;
const HEADER_BYTES: usize = 72;
/// Size of what version 2 adds to the header.
const TABLE_COUNT_BYTES: usize = 8;
/// Size of what version 3 adds to the header.
const VALUE_COUNT_BYTES: usize = 8;
/// Size of what version 4 adds to the header.
const PACKET_COUNT_BYTES: usize = 8;
const TABLE_BYTES: usize = 12;
const PACKET_TABLE_BYTES: usize = 8;
const RECORD_BYTES: usize = 12;
const FIELD_BYTES: usize = 20;
const MAX_NAMES: u32 = 1 << 16;
/// The bit beside the number of a field's name that makes the field a value in the index.
const VALUE: u32 = 1 << 31;

/// The record index of a shard whose format stores the fields as they are. It was checked when it was opened, and is
/// cheap to clone.
#[derive(Clone)]
pub struct RecordIndex {
    bytes: Bytes,
    records: u32,
    fields: u32,
    samples: u32,
    record_table: usize,
    field_table: usize,
    name_ends: usize,
    names: usize,
    keys: usize,
    keys_end: usize,
    /// Number of tables of segments; `table_table` and `lengths` are the offsets of their entries.
    tables: u32,
    table_table: usize,
    lengths: usize,
    /// Offset of the values.
    values: usize,
    /// Number of tables of packets; `packet_table` and `packets` are the offsets of their entries and of the tables.
    packet_tables: u32,
    packet_table: usize,
    packets: usize,
    /// Whether records share fields.
    has_shared: bool,
}

impl RecordIndex {
    /// Iterates over all records, in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> + '_ {
        (0..self.records).map(|record| self.record(record))
    }

    fn first_sample(&self, record: u32) -> u32 {
        u32_at(self.record_entry(record), 4)
    }

    fn record_entry(&self, record: u32) -> &[u8] {
        &self.bytes[self.record_table + RECORD_BYTES * record as usize..][..RECORD_BYTES]
    }

    fn field_entry(&self, field: u32) -> &[u8] {
        &self.bytes[self.field_table + FIELD_BYTES * field as usize..][..FIELD_BYTES]
    }

    /// Returns the bytes of the field's value, if it is one that lies in the index.
    fn value(&self, entry: &[u8]) -> Option<&[u8]> {
        let (at, bytes) = (u64_at(entry, 0) as usize, u32_at(entry, 8) as usize);
        is_value(entry).then(|| &self.bytes[self.values + at..][..bytes])
    }

    /// Returns the number of records that have the bytes of that whose first field is `first_field`.
    fn sharing(&self, first_field: u32) -> u32 {
        if !self.has_shared {
            return 1;
        }
        let offset = u64_at(self.field_entry(first_field), 0);
        (partition_point(self.records, |other| self.place(other) <= offset) - self.first_at(offset)).max(1)
    }

    /// Returns the first field of the first record that has the bytes of that whose first field is `first_field`.
    fn owner_of(&self, first_field: u32) -> u32 {
        if !self.has_shared {
            return first_field;
        }
        u32_at(self.record_entry(self.first_at(u64_at(self.field_entry(first_field), 0))), 0)
    }

    /// Returns the first record whose bytes begin at `offset` of the shard, or behind it.
    fn first_at(&self, offset: u64) -> u32 {
        partition_point(self.records, |record| self.place(record) < offset)
    }

    /// Returns where in the shard the bytes of a record begin.
    fn place(&self, record: u32) -> u64 {
        u64_at(self.field_entry(u32_at(self.record_entry(record), 0)), 0)
    }

    /// Returns name number `name` of the table of names.
    fn name(&self, name: usize) -> &str {
        let end = |name: usize| u32_at(&self.bytes, self.name_ends + 4 * name) as usize;
        let start = if name == 0 { 0 } else { end(name - 1) };
        text(&self.bytes[self.names + start..self.names + end(name)])
    }
}

impl ShardIndex for RecordIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }

    fn record_count(&self) -> u32 {
        self.records
    }

    fn sample_count(&self) -> u32 {
        self.samples
    }

    fn locate(&self, sample: u32) -> (u32, u32) {
        assert!(sample < self.samples, "sample {sample} of {}", self.samples);
        let record = last_before(self.records, |record| self.first_sample(record) <= sample);
        (record, sample - self.first_sample(record))
    }

    fn record(&self, record: u32) -> Record<'_> {
        assert!(record < self.records, "record {record} of {}", self.records);
        let key_start = if record == 0 { 0 } else { u32_at(self.record_entry(record - 1), 8) as usize };
        let key_end = u32_at(self.record_entry(record), 8) as usize;
        let (first_field, first_sample) = (u32_at(self.record_entry(record), 0), self.first_sample(record));
        let (fields_end, samples_end) = if record + 1 < self.records {
            (u32_at(self.record_entry(record + 1), 0), self.first_sample(record + 1))
        } else {
            (self.fields, self.samples)
        };
        Record {
            index: self,
            number: record,
            key: text(&self.bytes[self.keys + key_start..self.keys + key_end]).into(),
            first_sample,
            samples: samples_end - first_sample,
            first_field,
            fields: fields_end - first_field,
        }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let entry = self.field_entry(record.first_field + nth);
        let value = self.value(entry);
        Field {
            name: self.name((u32_at(entry, 16) & !VALUE) as usize),
            offset: if value.is_some() { 0 } else { u64_at(entry, 0) },
            bytes: u32_at(entry, 8),
            shared_by: if value.is_some() { 1 } else { self.sharing(record.first_field) },
            crc32c: value.is_none().then(|| u32_at(entry, 12)),
            value,
        }
    }

    fn segments(&self, record: &Record<'_>, nth: u32) -> Option<Segments<'_>> {
        self.table_of(record.first_field + nth)
    }

    fn packet_table(&self, record: &Record<'_>, nth: u32) -> Option<&[u8]> {
        (self.packet_tables > 0).then(|| self.packets_of(self.owner_of(record.first_field) + nth)).flatten()
    }
}

impl std::fmt::Debug for RecordIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordIndex")
            .field("records", &self.records)
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

/// Returns whether the entry of a field is that of a value.
fn is_value(entry: &[u8]) -> bool {
    u32_at(entry, 16) & VALUE != 0
}
