//! Opens record indexes: every number is checked before the code relies on it.

use std::{collections::HashSet, ops::Range};

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{
    FIELD_BYTES, HEADER_BYTES, IndexError, KIND, MAX_NAMES, PACKET_COUNT_BYTES, PACKET_TABLE_BYTES, RECORD_BYTES,
    RecordIndex, TABLE_BYTES, TABLE_COUNT_BYTES, VALUE, VALUE_COUNT_BYTES, VERSION_WITHOUT_PACKETS,
    VERSION_WITHOUT_TABLES, VERSION_WITHOUT_VALUES, is_value,
};
use crate::{
    envelope::{check_expected, sections_of, u32_at, u64_at, wrong},
    format::ShardIndex as _,
};

impl RecordIndex {
    /// Opens the record index whose hash in the manifest is `expected`.
    ///
    /// # Errors
    /// If the bytes are not a complete, undamaged and consistent record index of a known version, or if they are
    /// another index.
    pub fn open(bytes: impl Into<Bytes>, expected: Fingerprint) -> Result<Self, IndexError> {
        let bytes = bytes.into();
        check_expected(&KIND, &bytes, expected)?;
        let mut index = Self::sections(bytes)?;
        index.check_names()?;
        index.check_records()?;
        index.has_shared = index.check_fields()?;
        index.check_tables()?;
        index.check_packets()?;
        Ok(index)
    }

    fn sections(bytes: Bytes) -> Result<Self, IndexError> {
        let version = u32_at(&bytes, 8);
        let (has_tables, has_values) = (version > VERSION_WITHOUT_TABLES, version > VERSION_WITHOUT_VALUES);
        let has_packets = version > VERSION_WITHOUT_PACKETS;
        let header_bytes = HEADER_BYTES
            + if has_tables { TABLE_COUNT_BYTES } else { 0 }
            + if has_values { VALUE_COUNT_BYTES } else { 0 }
            + if has_packets { PACKET_COUNT_BYTES } else { 0 };
        if bytes.len() < header_bytes {
            return Err(wrong("it is shorter than a record index's header"));
        }
        let (packet_tables, packets_bytes) =
            if has_packets { (u32_at(&bytes, 88), u32_at(&bytes, 92)) } else { (0, 0) };
        let (tables, lengths) = if has_tables { (u32_at(&bytes, 72), u32_at(&bytes, 76)) } else { (0, 0) };
        let (records, fields, samples) = (u32_at(&bytes, 48), u32_at(&bytes, 52), u32_at(&bytes, 56));
        let (names, names_bytes, keys_bytes) = (u32_at(&bytes, 60), u32_at(&bytes, 64), u32_at(&bytes, 68));
        if names > MAX_NAMES {
            return Err(wrong("it has more than 65536 names of fields"));
        }
        let lengths_of_sections = [
            RECORD_BYTES as u64 * u64::from(records),
            FIELD_BYTES as u64 * u64::from(fields),
            4 * u64::from(names),
            u64::from(names_bytes),
            u64::from(keys_bytes),
            TABLE_BYTES as u64 * u64::from(tables),
            2 * u64::from(lengths),
            if has_values { u64_at(&bytes, 80) } else { 0 },
            PACKET_TABLE_BYTES as u64 * u64::from(packet_tables),
            u64::from(packets_bytes),
        ];
        let [record_table, field_table, name_ends, names, keys, table_table, lengths, values, packet_table, packets] =
            sections_of(header_bytes, lengths_of_sections, &bytes)?;
        Ok(Self {
            records,
            fields,
            samples,
            record_table,
            field_table,
            name_ends,
            names,
            keys,
            keys_end: table_table,
            tables,
            table_table,
            lengths,
            values,
            packet_tables,
            packet_table,
            packets,
            has_shared: false,
            bytes,
        })
    }

    fn name_count(&self) -> u32 {
        u32_at(&self.bytes, 60)
    }

    fn check_names(&self) -> Result<(), IndexError> {
        let ends = (0..self.name_count()).map(|name| u32_at(&self.bytes, self.name_ends + 4 * name as usize));
        check_pieces(&self.bytes[self.names..self.keys], ends, "names of fields")?;
        let mut names = HashSet::new();
        for number in 0..self.name_count() {
            let name = self.name(number as usize);
            if !names.insert(name) {
                return Err(wrong(&format!("it has the name `{name}` of a field twice")));
            }
        }
        let ends = (0..self.records).map(|record| u32_at(self.record_entry(record), 8));
        check_pieces(&self.bytes[self.keys..self.keys_end], ends, "keys")
    }

    fn check_records(&self) -> Result<(), IndexError> {
        let (mut field, mut sample) = (0, 0);
        for record in 0..self.records {
            let entry = self.record_entry(record);
            let (first_field, first_sample) = (u32_at(entry, 0), u32_at(entry, 4));
            let follows = if record == 0 {
                first_field == 0 && first_sample == 0
            } else {
                first_field > field && first_sample >= sample
            };
            if !follows || first_field >= self.fields || first_sample > self.samples {
                return Err(wrong(&format!("record {record} does not follow the one before it")));
            }
            (field, sample) = (first_field, first_sample);
        }
        if self.records == 0 && (self.fields != 0 || self.samples != 0) {
            return Err(wrong("it has fields or samples but no records"));
        }
        Ok(())
    }

    /// Checks that the fields of records in the shard lie there one after the other, or are those of the record before; that values
    /// follow them, which fill their place; and that no record has two fields with the same name. Returns whether records share
    /// fields.
    fn check_fields(&self) -> Result<bool, IndexError> {
        let (mut end, mut values_end, mut has_shared) = (0, 0, false);
        let mut owned = 0..0;
        let mut seen_in = vec![u32::MAX; self.name_count() as usize];
        for number in 0..self.records {
            let record = self.record(number);
            let fields = record.first_field..record.first_field + record.fields;
            let is_stored = |field: &u32| !is_value(self.field_entry(*field));
            let stored = fields.start..fields.start + fields.clone().take_while(is_stored).count() as u32;
            if stored.is_empty() {
                return Err(wrong(&format!("record {number} has no field in the shard")));
            }
            if self.can_share() && self.entries(&stored) == self.entries(&owned) {
                has_shared = true;
            } else {
                end = self.check_stored(number, &stored, end)?;
                owned = stored.clone();
            }
            values_end = self.check_values(number, stored.end..fields.end, values_end)?;
            for field in fields {
                let name = u32_at(self.field_entry(field), 16) & !VALUE;
                match seen_in.get_mut(name as usize) {
                    Some(seen) if *seen != number => *seen = number,
                    _ => return Err(wrong(&format!("record {number} has a field twice or one without a name"))),
                }
            }
        }
        if values_end == self.packet_table - self.values {
            Ok(has_shared)
        } else {
            Err(wrong("its values have unused bytes"))
        }
    }

    fn can_share(&self) -> bool {
        u32_at(&self.bytes, 8) > VERSION_WITHOUT_VALUES
    }

    fn entries(&self, fields: &Range<u32>) -> &[u8] {
        let at = |field: u32| self.field_table + FIELD_BYTES * field as usize;
        &self.bytes[at(fields.start)..at(fields.end)]
    }

    /// Checks that these fields of a record lie in the shard one after the other, from byte `end` on. Returns where they end.
    fn check_stored(&self, number: u32, fields: &Range<u32>, mut end: u64) -> Result<u64, IndexError> {
        for field in fields.clone() {
            let entry = self.field_entry(field);
            let (offset, bytes) = (u64_at(entry, 0), u64::from(u32_at(entry, 8)));
            let field_end = offset.checked_add(bytes);
            let field_end = field_end.filter(|field_end| offset >= end && *field_end <= self.shard_bytes());
            end = field_end.ok_or_else(|| {
                wrong(&format!("a field of record {number} lies outside the shard or in another field"))
            })?;
        }
        Ok(end)
    }

    /// Checks that these fields of a record are values, one after the other from byte `end` of the values on. Returns where they
    /// end.
    fn check_values(&self, number: u32, fields: Range<u32>, mut end: usize) -> Result<usize, IndexError> {
        let values = &self.bytes[self.values..self.packet_table];
        for field in fields {
            let entry = self.field_entry(field);
            let next = end.saturating_add(u32_at(entry, 8) as usize);
            let is_next =
                self.can_share() && is_value(entry) && u64_at(entry, 0) == end as u64 && u32_at(entry, 12) == 0;
            let value = values.get(end..next).filter(|_| is_next);
            if value.is_none_or(|value| std::str::from_utf8(value).is_err()) {
                return Err(wrong(&format!(
                    "a value of record {number} does not follow the one before it or is no text"
                )));
            }
            end = next;
        }
        Ok(end)
    }
}

impl RecordIndex {
    /// Checks that the tables of segments follow the order of their fields, and that none extends past its field.
    fn check_tables(&self) -> Result<(), IndexError> {
        let entries = (self.values - self.lengths) / 2;
        let (mut next_field, mut start) = (0, 0);
        for table in 0..self.tables {
            let [field, step, end] = self.table_entry(table);
            let is_one = next_field <= field && field < self.fields && !is_value(self.field_entry(field));
            if !is_one || step == 0 || end < start || end as usize > entries {
                return Err(wrong(&format!("table {table} of segments does not follow the one before it")));
            }
            (next_field, start) = (field + 1, end);
            let bytes: u64 =
                self.table(table).lengths.iter().map(|length| u64::from(u16::from_le_bytes(*length))).sum();
            if bytes > u64::from(u32_at(self.field_entry(field), 8)) {
                return Err(wrong(&format!("table {table} of segments leads out of its field")));
            }
        }
        if start as usize == entries { Ok(()) } else { Err(wrong("its tables of segments have unused bytes")) }
    }

    /// Checks that the tables of packets follow the order of their fields, which lie in the shard.
    fn check_packets(&self) -> Result<(), IndexError> {
        let (mut next_field, mut start) = (0, 0);
        for table in 0..self.packet_tables {
            let [field, end] = self.packet_entry(table);
            let is_one = next_field <= field && field < self.fields && !is_value(self.field_entry(field));
            if !is_one || end <= start {
                return Err(wrong(&format!("table {table} of packets does not follow the one before it")));
            }
            (next_field, start) = (field + 1, end);
        }
        if start as usize == self.bytes.len() - self.packets {
            Ok(())
        } else {
            Err(wrong("its tables of packets have unused bytes"))
        }
    }
}

/// Checks that `bytes` is UTF-8 and that `ends` cut it into non-empty pieces which fill it.
fn check_pieces(bytes: &[u8], ends: impl Iterator<Item = u32>, what: &str) -> Result<(), IndexError> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(&format!("its {what} are not UTF-8")))?;
    let mut start = 0;
    for end in ends {
        let end = end as usize;
        if text.get(start..end).is_none_or(str::is_empty) {
            return Err(wrong(&format!("its table of {what} is out of order")));
        }
        start = end;
    }
    if start == text.len() { Ok(()) } else { Err(wrong(&format!("its table of {what} has unused bytes"))) }
}
