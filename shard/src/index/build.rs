//! Builds record indexes.

use std::collections::HashMap;

use super::{IndexError, KIND, MAX_NAMES, RECORD_BYTES, RecordIndex, Segments, VERSION_WITHOUT_TABLES};
use crate::envelope::{HEAD_BYTES, seal, u32_at};
use spdl_core::Fingerprint;

/// Collects the records of a shard in order and writes its record index.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    records: Vec<u8>,
    fields: Vec<u8>,
    names: HashMap<String, u32>,
    name_ends: Vec<u8>,
    name_text: String,
    keys: String,
    record_count: u32,
    field_count: u32,
    samples: u32,
    tables: Vec<u8>,
    lengths: Vec<u8>,
    table_count: u32,
}

impl IndexBuilder {
    /// Creates an index without records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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
    /// If the record has no fields or the index would outgrow the format's 32-bit counts.
    pub fn record<'n>(
        &mut self,
        key: &str,
        samples: u32,
        fields: impl IntoIterator<Item = (&'n str, u64, u32, u32)>,
    ) -> Result<(), IndexError> {
        let too_much = || IndexError::Unwritable(format!("record `{key}`: too many records, fields or samples"));
        let first_field = self.field_count;
        for (name, offset, bytes, crc32c) in fields {
            let name = self.name(name).ok_or_else(too_much)?;
            self.fields.extend(offset.to_le_bytes());
            for number in [bytes, crc32c, name] {
                self.fields.extend(number.to_le_bytes());
            }
            self.field_count = self.field_count.checked_add(1).ok_or_else(too_much)?;
        }
        if self.field_count == first_field {
            return Err(IndexError::Unwritable(format!("record `{key}` has no fields")));
        }
        self.keys.push_str(key);
        let key_end = u32::try_from(self.keys.len()).map_err(|_| too_much())?;
        for number in [first_field, self.samples, key_end] {
            self.records.extend(number.to_le_bytes());
        }
        self.samples = self.samples.checked_add(samples).ok_or_else(too_much)?;
        self.record_count = self.record_count.checked_add(1).ok_or_else(too_much)?;
        Ok(())
    }

    /// Adds a table of segments to field number `field` of the last record. Tables have to be added in the order of
    /// their fields.
    ///
    /// # Errors
    /// If the tables would outgrow the format's 32-bit counts.
    ///
    /// # Panics
    /// If the last record has no such field.
    pub fn segments(&mut self, field: u32, segments: Segments<'_>) -> Result<(), IndexError> {
        let first_field = u32_at(&self.records[self.records.len() - RECORD_BYTES..], 0);
        let field = first_field + field;
        assert!(field < self.field_count, "field {field} of {}", self.field_count);
        self.lengths.extend(segments.lengths.as_flattened());
        let end = u32::try_from(self.lengths.len() / 2);
        let end = end.map_err(|_| IndexError::Unwritable("too many segments of pictures".to_owned()))?;
        for number in [field, segments.step, end] {
            self.tables.extend(number.to_le_bytes());
        }
        self.table_count += 1;
        Ok(())
    }

    /// Writes the index of a shard of `shard_bytes`, and opens it again to verify that it is valid. Returns the index
    /// and its hash.
    ///
    /// # Errors
    /// If fields overlap or lie outside the shard, or a record has two fields with the same name.
    pub fn finish(self, shard_bytes: u64) -> Result<(RecordIndex, Fingerprint), IndexError> {
        let mut file = vec![0; HEAD_BYTES];
        file.extend(shard_bytes.to_le_bytes());
        let (names, names_bytes, keys_bytes) =
            (self.names.len() as u32, self.name_text.len() as u32, self.keys.len() as u32);
        for number in [self.record_count, self.field_count, self.samples, names, names_bytes, keys_bytes] {
            file.extend(number.to_le_bytes());
        }
        let version = if self.table_count == 0 { VERSION_WITHOUT_TABLES } else { KIND.version };
        if self.table_count > 0 {
            file.extend(self.table_count.to_le_bytes());
            file.extend((self.lengths.len() as u32 / 2).to_le_bytes());
        }
        let (names, keys) = (self.name_text.as_bytes(), self.keys.as_bytes());
        for section in [&self.records, &self.fields, &self.name_ends, names, keys, &self.tables, &self.lengths] {
            file.extend(section);
        }
        seal(&KIND, version, &mut file);
        let hash = Fingerprint::of(&file);
        let index = RecordIndex::open(file, hash).map_err(|error| IndexError::Unwritable(error.to_string()))?;
        Ok((index, hash))
    }

    fn name(&mut self, name: &str) -> Option<u32> {
        if let Some(&number) = self.names.get(name) {
            return Some(number);
        }
        let number = self.names.len() as u32;
        self.name_text.push_str(name);
        self.name_ends.extend(u32::try_from(self.name_text.len()).ok()?.to_le_bytes());
        self.names.insert(name.to_owned(), number);
        (number < MAX_NAMES).then_some(number)
    }
}
