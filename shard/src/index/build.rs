//! Builds record indexes.

use std::collections::HashMap;

use super::{
    IndexError, KIND, MAX_NAMES, RecordIndex, Segments, VALUE, VERSION_WITHOUT_PACKETS, VERSION_WITHOUT_TABLES,
    VERSION_WITHOUT_VALUES,
};
use crate::index::{IndexFile, Spool};
use spdl_types::Fingerprint;

/// Collects the records of a shard in order and writes its record index.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    records: Spool,
    fields: Spool,
    names: FieldNames,
    keys: Spool,
    record_count: u32,
    field_count: u32,
    samples: u32,
    /// Where the last field ends in the shard.
    fields_end: u64,
    /// The last record's fields in the shard.
    stored: Vec<ShardField>,
    /// Number of the first of them.
    first_field: u32,
    values: Spool,
    /// Whether records have values or share fields.
    has_values: bool,
    tables: Spool,
    lengths: Spool,
    table_count: u32,
    /// The first field that the next table can belong to.
    next_table: u32,
    packet_entries: Spool,
    packets: Spool,
    /// The same for tables of packets.
    next_packets: u32,
}

/// A field in the shard: its place, and its size, its checksum and the number of its name.
#[derive(Clone, Copy, Debug)]
struct ShardField {
    offset: u64,
    numbers: [u32; 3],
}

/// The names of fields in the order of their first appearance.
#[derive(Debug, Default)]
struct FieldNames {
    numbers: HashMap<String, u32>,
    ends: Vec<u8>,
    text: String,
    /// For each name, the last record that has it, counted from 1.
    seen_in: Vec<u32>,
}

impl IndexBuilder {
    /// Creates an index without records, which is built in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an index without records that keeps at most some MiB in memory; the rest goes to `folder`.
    #[must_use]
    pub fn in_folder(folder: &spdl_store::TemporaryFolder) -> Self {
        let [records, fields, keys, tables, lengths, values, packets] = [(); 7].map(|()| Spool::in_folder(folder));
        Self { records, fields, keys, tables, lengths, values, packets, ..Self::default() }
    }

    /// Returns the number of records so far.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Appends a record. Its fields come in the order in which they lie in the shard, each as name, offset in the
    /// shard, bytes and CRC-32C.
    ///
    /// # Errors
    /// If the record has no key or no fields, a field lies in the one before it, two have the same name, or the index
    /// would outgrow the format's 32-bit counts.
    pub fn record<'n>(
        &mut self,
        key: &str,
        samples: u32,
        fields: impl IntoIterator<Item = (&'n str, u64, u32, u32)>,
    ) -> Result<(), IndexError> {
        let record_count = self.record_count.wrapping_add(1);
        self.stored.clear();
        for (name, offset, bytes, crc32c) in fields {
            let end = offset.checked_add(bytes.into()).filter(|_| offset >= self.fields_end);
            self.fields_end = end.ok_or_else(|| wrong(key, "a field lies in the one before it"))?;
            let name = self.names.number(name).ok_or_else(|| too_much(key))?;
            if std::mem::replace(&mut self.names.seen_in[name as usize], record_count) == record_count {
                return Err(wrong(key, "it has a field twice"));
            }
            self.stored.push(ShardField { offset, numbers: [bytes, crc32c, name] });
        }
        self.end(key, samples)
    }

    /// Appends a record that has the fields in the shard of the record before it.
    ///
    /// # Errors
    /// If the record has no key, or the index would outgrow the format's 32-bit counts.
    ///
    /// # Panics
    /// If there is no record before it.
    pub fn record_sharing(&mut self, key: &str, samples: u32) -> Result<(), IndexError> {
        assert!(self.record_count > 0, "there is no record whose fields `{key}` could share");
        self.has_values = true;
        let record_count = self.record_count.wrapping_add(1);
        for field in &self.stored {
            self.names.seen_in[field.numbers[2] as usize] = record_count;
        }
        self.end(key, samples)
    }

    /// Adds values to the last record, with the names of their fields. They lie in the index.
    ///
    /// # Errors
    /// If the record has a field of that name, or the index would outgrow the format's counts.
    pub fn values<'n>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Result<(), IndexError> {
        for (name, value) in values {
            let name = self.names.number(name).ok_or_else(|| too_much(key))?;
            if std::mem::replace(&mut self.names.seen_in[name as usize], self.record_count) == self.record_count {
                return Err(wrong(key, "it has a field twice"));
            }
            let bytes = u32::try_from(value.len()).map_err(|_| too_much(key))?;
            self.field(key, ShardField { offset: self.values.len(), numbers: [bytes, 0, name | VALUE] })?;
            self.values.append(value.as_bytes())?;
            self.has_values = true;
        }
        Ok(())
    }

    /// Writes the entry of the record whose fields in the shard are set, and theirs.
    fn end(&mut self, key: &str, samples: u32) -> Result<(), IndexError> {
        if self.stored.is_empty() || key.is_empty() {
            return Err(wrong(key, "it has no fields or no key"));
        }
        self.first_field = self.field_count;
        let stored = std::mem::take(&mut self.stored);
        stored.iter().try_for_each(|field| self.field(key, *field))?;
        self.stored = stored;
        self.keys.append(key.as_bytes())?;
        let key_end = u32::try_from(self.keys.len()).map_err(|_| too_much(key))?;
        for number in [self.first_field, self.samples, key_end] {
            self.records.append(&number.to_le_bytes())?;
        }
        self.samples = self.samples.checked_add(samples).ok_or_else(|| too_much(key))?;
        self.record_count = self.record_count.checked_add(1).ok_or_else(|| too_much(key))?;
        Ok(())
    }

    fn field(&mut self, key: &str, field: ShardField) -> Result<(), IndexError> {
        self.fields.append(&field.offset.to_le_bytes())?;
        for number in field.numbers {
            self.fields.append(&number.to_le_bytes())?;
        }
        self.field_count = self.field_count.checked_add(1).ok_or_else(|| too_much(key))?;
        Ok(())
    }

    /// Adds a table of segments to field number `field` of the last record. Tables have to be added in the order of
    /// their fields.
    ///
    /// # Errors
    /// If a table leads out of its field or does not follow the one before it, or the tables would outgrow the format's
    /// 32-bit counts.
    ///
    /// # Panics
    /// If the last record has no such field.
    pub fn segments(&mut self, field: u32, segments: Segments<'_>) -> Result<(), IndexError> {
        let unwritable = |problem: &str| IndexError::Unwritable(problem.to_owned());
        let [field_bytes, ..] = self.stored[field as usize].numbers;
        let field = self.first_field + field;
        let bytes: u64 = segments.lengths.iter().map(|length| u64::from(u16::from_le_bytes(*length))).sum();
        if bytes > u64::from(field_bytes) {
            return Err(unwritable("a table of segments leads out of its field"));
        }
        if field < self.next_table || segments.step == 0 {
            return Err(unwritable("a table of segments does not follow the one before it"));
        }
        self.next_table = field + 1;
        self.lengths.append(segments.lengths.as_flattened())?;
        let end = u32::try_from(self.lengths.len() / 2);
        let end = end.map_err(|_| unwritable("too many segments of pictures"))?;
        for number in [field, segments.step, end] {
            self.tables.append(&number.to_le_bytes())?;
        }
        self.table_count += 1;
        Ok(())
    }

    /// Adds the table of the packets in field number `field` of the last record, which has its fields from no other one. Tables have to be
    /// added in the order of their fields.
    ///
    /// # Errors
    /// If a table is empty or does not follow the one before it, or the tables would outgrow the format's 32-bit counts.
    ///
    /// # Panics
    /// If the last record has no such field in the shard.
    pub fn packet_table(&mut self, field: u32, table: &[u8]) -> Result<(), IndexError> {
        let unwritable = |problem: &str| IndexError::Unwritable(problem.to_owned());
        assert!((field as usize) < self.stored.len(), "the record has no field {field} in the shard");
        let field = self.first_field + field;
        if field < self.next_packets || table.is_empty() {
            return Err(unwritable("a table of packets does not follow the one before it"));
        }
        self.next_packets = field + 1;
        self.packets.append(table)?;
        let end = u32::try_from(self.packets.len()).map_err(|_| unwritable("too many packets of sounds and videos"))?;
        for number in [field, end] {
            self.packet_entries.append(&number.to_le_bytes())?;
        }
        Ok(())
    }

    /// Returns the key of a record.
    ///
    /// # Errors
    /// If a temporary file cannot be read.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn key(&self, record: u32) -> Result<String, IndexError> {
        let key_end = |record: u32| {
            let mut end = [0; 4];
            self.records.read(super::RECORD_BYTES as u64 * u64::from(record) + 8, &mut end)?;
            Ok::<_, IndexError>(u32::from_le_bytes(end))
        };
        let start = record.checked_sub(1).map_or(Ok(0), key_end)?;
        let mut key = vec![0; (key_end(record)? - start) as usize];
        self.keys.read(start.into(), &mut key)?;
        Ok(String::from_utf8(key).expect("keys are text"))
    }

    /// Writes the index of a shard of `shard_bytes`, and opens it again. Returns the index and its hash.
    ///
    /// # Errors
    /// If a field lies outside the shard.
    pub fn finish(self, shard_bytes: u64) -> Result<(RecordIndex, Fingerprint), IndexError> {
        let file = self.write(shard_bytes)?;
        let index = RecordIndex::open(file.read()?, file.hash());
        Ok((index.map_err(|error| IndexError::Unwritable(error.to_string()))?, file.hash()))
    }

    /// Writes the index of a shard of `shard_bytes`.
    ///
    /// # Errors
    /// As for [`finish`](Self::finish).
    pub fn write(self, shard_bytes: u64) -> Result<IndexFile, IndexError> {
        if self.fields_end > shard_bytes {
            return Err(IndexError::Unwritable("its last field lies outside the shard".to_owned()));
        }
        let Self { names, keys, record_count, field_count, samples, table_count, .. } = self;
        let mut counts = shard_bytes.to_le_bytes().to_vec();
        let (name_count, names_bytes, keys_bytes) =
            (names.seen_in.len() as u32, names.text.len() as u32, keys.len() as u32);
        for number in [record_count, field_count, samples, name_count, names_bytes, keys_bytes] {
            counts.extend(number.to_le_bytes());
        }
        let version = match (table_count, self.has_values) {
            _ if !self.packets.is_empty() => KIND.version,
            (_, true) => VERSION_WITHOUT_PACKETS,
            (0, false) => VERSION_WITHOUT_TABLES,
            (_, false) => VERSION_WITHOUT_VALUES,
        };
        if version > VERSION_WITHOUT_TABLES {
            counts.extend(table_count.to_le_bytes());
            counts.extend((self.lengths.len() as u32 / 2).to_le_bytes());
        }
        if version > VERSION_WITHOUT_VALUES {
            counts.extend(self.values.len().to_le_bytes());
        }
        if version > VERSION_WITHOUT_PACKETS {
            counts.extend((self.packet_entries.len() as u32 / super::PACKET_TABLE_BYTES as u32).to_le_bytes());
            counts.extend((self.packets.len() as u32).to_le_bytes());
        }
        let names = [names.ends.into(), names.text.into_bytes().into()];
        let content = [counts.into(), self.records, self.fields].into_iter().chain(names);
        let content =
            content.chain([keys, self.tables, self.lengths, self.values, self.packet_entries, self.packets]).collect();
        Ok(IndexFile::sealed(&KIND, version, content)?)
    }
}

impl FieldNames {
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(name) {
            return Some(number);
        }
        let number = self.seen_in.len() as u32;
        self.text.push_str(name);
        self.ends.extend(u32::try_from(self.text.len()).ok()?.to_le_bytes());
        self.numbers.insert(name.to_owned(), number);
        self.seen_in.push(0);
        (number < MAX_NAMES && !name.is_empty()).then_some(number)
    }
}

fn wrong(key: &str, problem: &str) -> IndexError {
    IndexError::Unwritable(format!("record `{key}`: {problem}"))
}

fn too_much(key: &str) -> IndexError {
    wrong(key, "too many records, fields or samples, or too much text")
}
