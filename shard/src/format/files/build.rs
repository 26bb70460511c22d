//! Builds file indexes.

use std::collections::HashMap;

use bytes::Bytes;
use spdl_store::ListedObject;
use spdl_types::Fingerprint;

use super::index::{EtagForm, FieldKind, FileIndex, HEADER_BYTES, KIND, MAX_NAMES, VERSION_OF_KEYS, VERSION_OF_PATHS};
use crate::{
    FormatError,
    envelope::{HEAD_BYTES, sealed_as},
};

/// Collects the records of a shard in order and writes its file index.
#[derive(Debug, Default)]
pub struct FileIndexBuilder {
    records: Vec<u8>,
    fields: Vec<u8>,
    names: HashMap<String, u16>,
    name_ends: Vec<u8>,
    name_text: String,
    text: Vec<u8>,
    record_count: u32,
    file_count: u32,
    field_count: u32,
    shard_bytes: u64,
    /// The last record with files of its own.
    owner: OwnFiles,
    has_keys: bool,
    has_lists: bool,
    /// Tables of files of the next record, with the names of their fields.
    next_tables: Vec<(String, Bytes)>,
    table_bytes: u64,
}

/// The files of a record: where they begin in the shard, and the number of the field and the size of each.
#[derive(Debug, Default)]
struct OwnFiles {
    offset: u64,
    files: Vec<(String, u32, u32)>,
}

impl FileIndexBuilder {
    /// Returns the number of records so far.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Returns the number of files so far.
    #[must_use]
    pub const fn file_count(&self) -> u32 {
        self.file_count
    }

    /// Returns the size of the shard so far, in bytes.
    #[must_use]
    pub const fn shard_bytes(&self) -> u64 {
        self.shard_bytes
    }

    /// Returns the bytes of the tables of packets so far.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Takes the table of the packets in field `name` of the next record with files of its own. It is left out if the record has no file in
    /// that field.
    pub fn packet_table(&mut self, name: &str, table: Bytes) {
        self.next_tables.push((name.to_owned(), table));
    }

    /// Appends a record: its files with the names of their fields, then its values. The path of the first file begins
    /// with the key. Files of one name that follow each other are a list.
    ///
    /// # Errors
    /// If the index cannot hold it.
    pub fn record<'r>(
        &mut self,
        key_bytes: usize,
        files: impl Iterator<Item = (&'r str, ListedObject<'r>)>,
        values: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Result<(), FormatError> {
        self.begin(self.shard_bytes, key_bytes);
        self.files(files)?;
        self.end(values)?;
        self.tables()
    }

    /// Appends a record with a key of its own.
    ///
    /// # Errors
    /// If the index cannot hold it.
    pub fn record_called<'r>(
        &mut self,
        key: &str,
        files: impl Iterator<Item = (&'r str, ListedObject<'r>)>,
        values: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Result<(), FormatError> {
        self.begin(self.shard_bytes, 0);
        self.files(files)?;
        self.end(values)?;
        self.tables()?;
        self.key(key)
    }

    /// Appends a record with a key of its own whose files are those of the last record that has files, without those in the
    /// fields `without`.
    ///
    /// # Errors
    /// If the index cannot hold it, as where a field is a list.
    ///
    /// # Panics
    /// If no record was appended before.
    pub fn record_sharing<'r>(
        &mut self,
        key: &str,
        without: impl Fn(&str) -> bool,
        values: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Result<(), FormatError> {
        self.begin(self.owner.offset, 0);
        let owner = std::mem::take(&mut self.owner);
        assert!(!owner.files.is_empty(), "there is no record whose files `{key}` could share");
        for (nth, (name, field, bytes)) in owner.files.iter().enumerate() {
            if nth == 0 || !without(name) {
                self.text.extend(field.to_le_bytes());
                self.field(name, FieldKind::Shared, *bytes).ok_or_else(|| too_much(key))?;
            }
        }
        self.owner = owner;
        self.end(values)?;
        self.key(key)
    }

    fn begin(&mut self, offset: u64, key_bytes: usize) {
        self.records.extend(offset.to_le_bytes());
        self.records.extend(self.field_count.to_le_bytes());
        self.records.extend((key_bytes as u32).to_le_bytes());
    }

    fn files<'r>(&mut self, files: impl Iterator<Item = (&'r str, ListedObject<'r>)>) -> Result<(), FormatError> {
        self.owner = OwnFiles { offset: self.shard_bytes, files: Vec::new() };
        for (name, file) in files {
            self.text.extend_from_slice(file.name.as_bytes());
            let form = self.etag(file.etag);
            let bytes = u32::try_from(file.bytes).map_err(|_| too_much(file.name))?;
            self.has_lists |= self.owner.files.last().is_some_and(|(last, ..)| last == name);
            self.owner.files.push((name.to_owned(), self.field_count, bytes));
            self.field(name, FieldKind::File(form), bytes).ok_or_else(|| too_much(file.name))?;
            self.shard_bytes += file.bytes;
            self.file_count += 1;
        }
        Ok(())
    }

    fn end<'r>(&mut self, values: impl Iterator<Item = (&'r str, &'r str)>) -> Result<(), FormatError> {
        for (name, value) in values {
            self.text(name, FieldKind::Value, value)?;
        }
        self.record_count += 1;
        Ok(())
    }

    /// Appends the tables of the record that has just ended.
    fn tables(&mut self) -> Result<(), FormatError> {
        for (name, table) in std::mem::take(&mut self.next_tables) {
            let Some((_, file, _)) = self.owner.files.iter().find(|(field, ..)| *field == name) else { continue };
            self.text.extend_from_slice(&table);
            self.text.extend(file.to_le_bytes());
            let bytes = u32::try_from(table.len()).map_err(|_| too_much(&name))?;
            self.field(&name, FieldKind::PacketTable, bytes).ok_or_else(|| too_much(&name))?;
            self.table_bytes += u64::from(bytes);
        }
        Ok(())
    }

    /// Appends the key of the record that has just ended.
    fn key(&mut self, key: &str) -> Result<(), FormatError> {
        let Some((name, ..)) = self.owner.files.first() else {
            return Err(FormatError::Unwritable(format!("`{key}` has no file")));
        };
        self.has_keys = true;
        self.text(&name.clone(), FieldKind::Key, key)
    }

    fn text(&mut self, name: &str, kind: FieldKind, text: &str) -> Result<(), FormatError> {
        self.text.extend_from_slice(text.as_bytes());
        let bytes = u32::try_from(text.len()).map_err(|_| too_much(name))?;
        self.field(name, kind, bytes).ok_or_else(|| too_much(name))
    }

    /// Writes the index and opens it again to verify that it is valid. Returns the index and its hash.
    ///
    /// # Errors
    /// If the index would not be valid.
    pub fn finish(self) -> Result<(Bytes, Fingerprint), FormatError> {
        let mut file = vec![0; HEAD_BYTES];
        file.extend(self.shard_bytes.to_le_bytes());
        for number in [self.record_count, self.field_count, self.names.len() as u32, self.name_text.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        file.extend((self.text.len() as u64).to_le_bytes());
        debug_assert_eq!(file.len(), HEADER_BYTES);
        for section in [&self.records, &self.fields, &self.name_ends, self.name_text.as_bytes(), &self.text] {
            file.extend(section);
        }
        let version = match (self.has_lists || self.table_bytes > 0, self.has_keys) {
            (true, _) => KIND.version,
            (false, true) => VERSION_OF_KEYS,
            (false, false) => VERSION_OF_PATHS,
        };
        sealed_as(&KIND, version, file, FileIndex::open)
    }

    /// Appends the entry of a field whose text was written.
    fn field(&mut self, name: &str, kind: FieldKind, bytes: u32) -> Option<()> {
        let name = self.name(name)?;
        let text_end = u32::try_from(self.text.len()).ok()?;
        for number in [bytes, text_end] {
            self.fields.extend(number.to_le_bytes());
        }
        for number in [name, kind.code()] {
            self.fields.extend(number.to_le_bytes());
        }
        self.field_count = self.field_count.checked_add(1)?;
        Some(())
    }

    fn name(&mut self, name: &str) -> Option<u16> {
        if let Some(&number) = self.names.get(name) {
            return Some(number);
        }
        let number = u16::try_from(self.names.len()).ok().filter(|number| u32::from(*number) < MAX_NAMES)?;
        self.name_text.push_str(name);
        self.name_ends.extend(u32::try_from(self.name_text.len()).ok()?.to_le_bytes());
        self.names.insert(name.to_owned(), number);
        Some(number)
    }

    /// Writes an etag in its shortest form. An etag that is too long is left out.
    fn etag(&mut self, etag: Option<&str>) -> EtagForm {
        let Some(etag) = etag else { return EtagForm::None };
        let digits = etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).filter(|etag| etag.len() == 32);
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if let Some(digits) = digits.filter(|digits| digits.bytes().all(is_hex)) {
            let number = u128::from_str_radix(digits, 16).expect("32 hexadecimal digits");
            self.text.extend_from_slice(&number.to_be_bytes());
            return EtagForm::Md5;
        }
        match u8::try_from(etag.len()) {
            Ok(bytes @ 1..) => {
                self.text.extend_from_slice(etag.as_bytes());
                EtagForm::Text(bytes)
            }
            _ => EtagForm::None,
        }
    }
}

fn too_much(name: &str) -> FormatError {
    FormatError::Unwritable(format!("`{name}`: too many files or fields, or too much text"))
}
