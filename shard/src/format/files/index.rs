//! The file index: which files a shard of loose files has, how they form records, and the values that a table or their
//! folders give these records. `docs/spec/formats/files.md` has the layout.

use std::{collections::HashSet, ops::Range};

use bytes::Bytes;
use spdl_types::Fingerprint;

use crate::{
    FormatError,
    envelope::{FileKind, check_expected, section_offsets, text, u32_at, u64_at, wrong},
    format::{Field, ObjectRange, ObjectRole, Record, ShardIndex, StoredObject},
    manifest::{Shard, is_relative_path},
};

pub(super) const KIND: FileKind = FileKind { name: "file index", magic: *b"SPDLFIL\n", version: 1 };
pub(super) const HEADER_BYTES: usize = 72;
pub(super) const RECORD_BYTES: usize = 16;
pub(super) const FIELD_BYTES: usize = 12;
pub(super) const MAX_NAMES: u32 = 1 << 16;

/// The meaning of a field's entry in the table of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A file: its path, then its etag in this form.
    File(EtagForm),
    /// A value, which is in the index.
    Value,
}

/// How an etag is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EtagForm {
    None,
    /// The 16 bytes of an MD5, which S3 quotes in hexadecimal digits.
    Md5,
    /// Text of this length.
    Text(u8),
}

impl FieldKind {
    pub(super) fn code(self) -> u16 {
        match self {
            Self::File(EtagForm::None) => 0,
            Self::File(EtagForm::Md5) => 1,
            Self::File(EtagForm::Text(bytes)) => 2 | u16::from(bytes) << 8,
            Self::Value => 3,
        }
    }

    fn of(code: u16) -> Option<Self> {
        let [kind, etag_bytes] = code.to_le_bytes();
        Some(match (kind, etag_bytes) {
            (0, 0) => Self::File(EtagForm::None),
            (1, 0) => Self::File(EtagForm::Md5),
            (2, 1..) => Self::File(EtagForm::Text(etag_bytes)),
            (3, 0) => Self::Value,
            _ => return None,
        })
    }

    const fn etag_bytes(self) -> usize {
        match self {
            Self::File(EtagForm::Md5) => 16,
            Self::File(EtagForm::Text(bytes)) => bytes as usize,
            Self::File(EtagForm::None) | Self::Value => 0,
        }
    }
}

/// A file index, which was checked when it was opened.
#[derive(Clone)]
pub(super) struct FileIndex {
    bytes: Bytes,
    records: u32,
    fields: u32,
    names: u32,
    record_table: usize,
    field_table: usize,
    name_ends: usize,
    name_text: usize,
    /// Paths, etags and values.
    text: usize,
}

/// One entry of the table of fields.
#[derive(Clone, Copy)]
struct FieldEntry<'i> {
    /// Size of the file, or of the value.
    bytes: u32,
    name: u16,
    kind: FieldKind,
    /// The path or the value.
    text: &'i [u8],
    etag: &'i [u8],
}

impl FileIndex {
    /// Opens the file index whose hash in the manifest is `expected`.
    pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<Self, FormatError> {
        check_expected(&KIND, &bytes, expected)?;
        let index = Self::sections(bytes)?;
        index.check_names()?;
        index.check_fields()?;
        index.check_records()?;
        Ok(index)
    }

    fn sections(bytes: Bytes) -> Result<Self, FormatError> {
        if bytes.len() < HEADER_BYTES {
            return Err(wrong("it is shorter than a file index's header"));
        }
        let [records, fields, names, names_bytes] = [48, 52, 56, 60].map(|at| u32_at(&bytes, at));
        if names > MAX_NAMES {
            return Err(wrong("it has more than 65536 names of fields"));
        }
        let lengths = [
            RECORD_BYTES as u64 * u64::from(records),
            FIELD_BYTES as u64 * u64::from(fields),
            4 * u64::from(names),
            u64::from(names_bytes),
            u64_at(&bytes, 64),
        ];
        let sections = section_offsets(HEADER_BYTES as u64, lengths);
        match sections.filter(|(_, end)| *end == bytes.len() as u64) {
            Some(([record_table, field_table, name_ends, name_text, text], _)) => {
                Ok(Self { bytes, records, fields, names, record_table, field_table, name_ends, name_text, text })
            }
            None => Err(wrong("its sections do not add up to its size")),
        }
    }

    fn check_names(&self) -> Result<(), FormatError> {
        let whole = &self.bytes[self.name_text..self.text];
        let whole = std::str::from_utf8(whole).map_err(|_| wrong("its names of fields are not UTF-8"))?;
        let (mut start, mut names) = (0, HashSet::new());
        for name in 0..self.names {
            let end = u32_at(&self.bytes, self.name_ends + 4 * name as usize) as usize;
            let name = whole.get(start..end).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| wrong("its table of names of fields is out of order"))?;
            if !names.insert(name) {
                return Err(wrong(&format!("it has the name `{name}` of a field twice")));
            }
            start = end;
        }
        if start == whole.len() { Ok(()) } else { Err(wrong("its table of names of fields has unused bytes")) }
    }

    /// Checks that every field has a known name and kind, and text that follows the text of the field before it: a path
    /// inside the folder, or a value.
    fn check_fields(&self) -> Result<(), FormatError> {
        let text_bytes = self.bytes.len() - self.text;
        let mut start = 0;
        for field in 0..self.fields {
            let entry = self.entry_bytes(field);
            let kind = FieldKind::of(u16_at(entry, 10));
            let kind = kind.ok_or_else(|| wrong(&format!("field {field} has an unknown kind")))?;
            let (bytes, end, name) = (u32_at(entry, 0), u32_at(entry, 4) as usize, u32::from(u16_at(entry, 8)));
            let path_end = end.checked_sub(kind.etag_bytes()).filter(|path_end| start <= *path_end);
            let Some(path_end) = path_end.filter(|_| end <= text_bytes && name < self.names) else {
                return Err(wrong(&format!("field {field} does not follow the field before it")));
            };
            let whole = std::str::from_utf8(&self.bytes[self.text + start..self.text + path_end]);
            let whole = whole.map_err(|_| wrong(&format!("the text of field {field} is not UTF-8")))?;
            match kind {
                FieldKind::Value if whole.len() != bytes as usize => {
                    return Err(wrong(&format!("the value of field {field} has another size than its text")));
                }
                FieldKind::File(_) if whole.is_empty() || !is_relative_path(whole) => {
                    let path = whole.escape_debug();
                    return Err(wrong(&format!("`{path}` cannot be a file's place in the dataset's folder")));
                }
                FieldKind::File(EtagForm::Text(_))
                    if std::str::from_utf8(&self.bytes[self.text + path_end..self.text + end]).is_err() =>
                {
                    return Err(wrong(&format!("the etag of field {field} is not UTF-8")));
                }
                _ => {}
            }
            start = end;
        }
        if start == text_bytes { Ok(()) } else { Err(wrong("its text has unused bytes")) }
    }

    /// Checks that records follow each other without gaps, that each begins with a file whose path begins with its key,
    /// that values come after files, and that no record has a field twice.
    fn check_records(&self) -> Result<(), FormatError> {
        let (mut field, mut offset) = (0, 0);
        let mut seen_in = vec![u32::MAX; self.names as usize];
        for number in 0..self.records {
            let [first_field, fields_end] = [self.first_field(number), self.first_field(number + 1)];
            let follows = first_field == field && fields_end > first_field && fields_end <= self.fields;
            if !follows || self.offset(number) != offset {
                return Err(wrong(&format!("record {number} does not follow the one before it")));
            }
            let first = self.entry(first_field);
            let key_bytes = u32_at(self.record_entry(number), 12) as usize;
            let is_key = key_bytes > 0 && text(first.text).is_char_boundary(key_bytes) && key_bytes <= first.text.len();
            if first.kind == FieldKind::Value || !is_key {
                return Err(wrong(&format!("record {number} does not begin with a file that has its key")));
            }
            let mut has_value = false;
            for entry in (first_field..fields_end).map(|field| self.entry(field)) {
                if has_value && entry.kind != FieldKind::Value {
                    return Err(wrong(&format!("record {number} has a file behind a value")));
                }
                has_value = entry.kind == FieldKind::Value;
                if std::mem::replace(&mut seen_in[usize::from(entry.name)], number) == number {
                    return Err(wrong(&format!("record {number} has a field twice")));
                }
                if entry.kind != FieldKind::Value {
                    offset += u64::from(entry.bytes);
                }
            }
            field = fields_end;
        }
        let is_whole = field == self.fields && offset == self.shard_bytes();
        if is_whole { Ok(()) } else { Err(wrong("its files do not add up to the size of the shard")) }
    }

    fn record_entry(&self, record: u32) -> &[u8] {
        &self.bytes[self.record_table + RECORD_BYTES * record as usize..][..RECORD_BYTES]
    }

    fn offset(&self, record: u32) -> u64 {
        u64_at(self.record_entry(record), 0)
    }

    fn first_field(&self, record: u32) -> u32 {
        if record == self.records { self.fields } else { u32_at(self.record_entry(record), 8) }
    }

    fn entry_bytes(&self, field: u32) -> &[u8] {
        &self.bytes[self.field_table + FIELD_BYTES * field as usize..][..FIELD_BYTES]
    }

    fn text_end(&self, field: u32) -> usize {
        u32_at(self.entry_bytes(field), 4) as usize
    }

    fn entry(&self, field: u32) -> FieldEntry<'_> {
        let entry = self.entry_bytes(field);
        let kind = FieldKind::of(u16_at(entry, 10)).expect("kinds are checked when the index is opened");
        let start = if field == 0 { 0 } else { self.text_end(field - 1) };
        let end = self.text_end(field);
        let whole = &self.bytes[self.text + start..self.text + end];
        let (text, etag) = whole.split_at(whole.len() - kind.etag_bytes());
        FieldEntry { bytes: u32_at(entry, 0), name: u16_at(entry, 8), kind, text, etag }
    }

    fn name(&self, name: u16) -> &str {
        let end = |name: usize| u32_at(&self.bytes, self.name_ends + 4 * name) as usize;
        let start = if name == 0 { 0 } else { end(usize::from(name) - 1) };
        text(&self.bytes[self.name_text + start..self.name_text + end(name.into())])
    }

    /// Returns the number of the last record that begins at or before `offset`.
    fn record_at(&self, offset: u64) -> u32 {
        let (mut low, mut high) = (0, self.records);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset(middle) <= offset { low = middle } else { high = middle }
        }
        low
    }

    /// Returns the parts of `range` of the shard that the files of records hold.
    fn parts(&self, range: &Range<u64>, parts: &mut Vec<ObjectRange>) {
        if range.is_empty() || self.records == 0 {
            return;
        }
        // Empty records begin where the one after them begins; none of their bytes are wanted.
        let first = self.record_at(range.start);
        let mut at = self.offset(first);
        for field in self.first_field(first)..self.fields {
            if at >= range.end {
                break;
            }
            let entry = self.entry(field);
            if entry.kind == FieldKind::Value {
                continue;
            }
            let end = at + u64::from(entry.bytes);
            let part = range.start.max(at)..range.end.min(end);
            if part.start < part.end {
                let (range, place) = (part.start - at..part.end - at, part.start);
                parts.push(ObjectRange { object: entry.object(), range, at: place });
            }
            at = end;
        }
    }
}

impl FieldEntry<'_> {
    fn object(&self) -> StoredObject {
        let etag = match self.kind {
            FieldKind::File(EtagForm::Md5) => {
                let number = u128::from_be_bytes(self.etag.try_into().expect("an MD5 has 16 bytes"));
                Some(format!("\"{number:032x}\""))
            }
            FieldKind::File(EtagForm::Text(_)) => Some(text(self.etag).to_owned()),
            FieldKind::File(EtagForm::None) | FieldKind::Value => None,
        };
        let (url, bytes) = (text(self.text).to_owned(), u64::from(self.bytes));
        StoredObject { url, bytes, etag, role: ObjectRole::File }
    }
}

impl ShardIndex for FileIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }

    fn record_count(&self) -> u32 {
        self.records
    }

    fn record(&self, record: u32) -> Record<'_> {
        assert!(record < self.records, "record {record} of {}", self.records);
        let first_field = self.first_field(record);
        let key_bytes = u32_at(self.record_entry(record), 12) as usize;
        let start = if first_field == 0 { 0 } else { self.text_end(first_field - 1) };
        Record {
            index: self,
            number: record,
            key: text(&self.bytes[self.text + start..][..key_bytes]).into(),
            first_sample: record,
            samples: 1,
            first_field,
            fields: self.first_field(record + 1) - first_field,
        }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let entry = self.entry(record.first_field + nth);
        let is_value = entry.kind == FieldKind::Value;
        // The files of a record come before its values.
        let before = (0..nth).map(|nth| self.entry_bytes(record.first_field + nth));
        let before: u64 = before.map(|entry| u64::from(u32_at(entry, 0))).sum();
        Field {
            name: self.name(entry.name),
            offset: if is_value { 0 } else { self.offset(record.number) + before },
            bytes: entry.bytes,
            shared_by: 1,
            crc32c: None,
            value: is_value.then_some(entry.text),
        }
    }

    fn plan(&self, _shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        let mut parts = Vec::new();
        ranges.iter().for_each(|range| self.parts(range, &mut parts));
        parts
    }
}

impl std::fmt::Debug for FileIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileIndex")
            .field("records", &self.records)
            .field("fields", &self.fields)
            .field("bytes", &self.shard_bytes())
            .finish_non_exhaustive()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("offsets are checked when the file is opened"))
}
