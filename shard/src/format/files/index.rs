//! The file index: which files a shard of loose files has, how they form records, and the values that a table or their
//! folders give these records. `docs/spec/formats/files.md` has the layout.

use std::ops::Range;

use bytes::Bytes;
use spdl_types::Fingerprint;

use crate::{
    FormatError,
    envelope::{FileKind, check_expected, last_before, partition_point, sections_of, text, u32_at, u64_at, wrong},
    format::{
        FetchedBytes, Field, FieldValue, ObjectRange, ObjectRole, OpenError, Record, ShardIndex, StoredObject,
        shard_index::stored_bytes,
    },
    manifest::Shard,
};

pub(super) const KIND: FileKind =
    FileKind { name: "file index", magic: *b"SPDLFIL\n", version: 3, header_bytes: HEADER_BYTES };
/// The version without keys of their own and shared files, which is written if no record has either.
pub(super) const VERSION_OF_PATHS: u32 = 1;
/// The version with these, and without lists and tables of sounds, which is written if it has neither.
pub(super) const VERSION_OF_KEYS: u32 = 2;
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
    /// The same file as that of an earlier field, whose number is where a file has its etag.
    Shared,
    /// The record's key, where it is not the beginning of its first file's path. It is the last entry of its record, and no field.
    Key,
    /// The table of the packets of a sound or a video, of the record's field whose number is where a file has its etag. It comes behind the values, and is no field.
    PacketTable,
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
            Self::Shared => 4,
            Self::Key => 5,
            Self::PacketTable => 6,
        }
    }

    pub(super) fn of(code: u16) -> Option<Self> {
        let [kind, etag_bytes] = code.to_le_bytes();
        Some(match (kind, etag_bytes) {
            (0, 0) => Self::File(EtagForm::None),
            (1, 0) => Self::File(EtagForm::Md5),
            (2, 1..) => Self::File(EtagForm::Text(etag_bytes)),
            (3, 0) => Self::Value,
            (4, 0) => Self::Shared,
            (5, 0) => Self::Key,
            (6, 0) => Self::PacketTable,
            _ => return None,
        })
    }

    pub(super) const fn etag_bytes(self) -> usize {
        match self {
            Self::File(EtagForm::Md5) => 16,
            Self::File(EtagForm::Text(bytes)) => bytes as usize,
            Self::Shared | Self::PacketTable => 4,
            Self::File(EtagForm::None) | Self::Value | Self::Key => 0,
        }
    }

    /// Returns whether the field is a file.
    pub(super) const fn is_file(self) -> bool {
        matches!(self, Self::File(_) | Self::Shared)
    }
}

/// A file index, which was checked when it was opened.
#[derive(Clone)]
pub(super) struct FileIndex {
    pub(super) bytes: Bytes,
    pub(super) records: u32,
    pub(super) fields: u32,
    pub(super) names: u32,
    /// What it has that few indexes have.
    extras: FileIndexExtras,
    record_table: usize,
    field_table: usize,
    pub(super) name_ends: usize,
    pub(super) name_text: usize,
    /// Paths, etags and values.
    pub(super) text: usize,
}

/// What a file index has that few have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileIndexExtras {
    /// Whether records share files.
    pub(super) has_shared: bool,
    /// Whether fields are lists: neighbouring files of one record with one name.
    pub(super) has_lists: bool,
    /// Whether files have tables of packets.
    pub(super) has_packet_tables: bool,
}

/// One entry of the table of fields.
#[derive(Clone, Copy)]
pub(super) struct FieldEntry<'i> {
    /// Size of the file, or of the value.
    pub(super) bytes: u32,
    pub(super) name: u16,
    pub(super) kind: FieldKind,
    /// The path or the value.
    pub(super) text: &'i [u8],
    pub(super) etag: &'i [u8],
}

impl FileIndex {
    /// Opens the file index whose hash in the manifest is `expected`.
    pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<Self, FormatError> {
        check_expected(&KIND, &bytes, expected)?;
        let mut index = Self::sections(bytes)?;
        index.extras = index.check()?;
        Ok(index)
    }

    fn sections(bytes: Bytes) -> Result<Self, FormatError> {
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
        let [record_table, field_table, name_ends, name_text, text] = sections_of(HEADER_BYTES, lengths, &bytes)?;
        let extras = FileIndexExtras::default();
        Ok(Self { bytes, records, fields, names, extras, record_table, field_table, name_ends, name_text, text })
    }

    pub(super) fn record_entry(&self, record: u32) -> &[u8] {
        &self.bytes[self.record_table + RECORD_BYTES * record as usize..][..RECORD_BYTES]
    }

    pub(super) fn offset(&self, record: u32) -> u64 {
        u64_at(self.record_entry(record), 0)
    }

    pub(super) fn first_field(&self, record: u32) -> u32 {
        if record == self.records { self.fields } else { u32_at(self.record_entry(record), 8) }
    }

    pub(super) fn entry_bytes(&self, field: u32) -> &[u8] {
        &self.bytes[self.field_table + FIELD_BYTES * field as usize..][..FIELD_BYTES]
    }

    fn text_end(&self, field: u32) -> usize {
        u32_at(self.entry_bytes(field), 4) as usize
    }

    pub(super) fn entry(&self, field: u32) -> FieldEntry<'_> {
        let entry = self.entry_bytes(field);
        let kind = FieldKind::of(u16_at(entry, 10)).expect("kinds are checked when the index is opened");
        let start = if field == 0 { 0 } else { self.text_end(field - 1) };
        let end = self.text_end(field);
        let whole = &self.bytes[self.text + start..self.text + end];
        let (text, etag) = whole.split_at(whole.len() - kind.etag_bytes());
        FieldEntry { bytes: u32_at(entry, 0), name: u16_at(entry, 8), kind, text, etag }
    }

    /// Returns the number of the field that has the file of field number `field`: its own, if the file is not shared.
    pub(super) fn owner_of(&self, field: u32) -> u32 {
        let entry = self.entry(field);
        match entry.kind {
            FieldKind::Shared => u32_at(entry.etag, 0),
            _ => field,
        }
    }

    /// Divides the entries of a record into those of each field.
    fn runs(&self, entries: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut next = entries.start;
        std::iter::from_fn(move || {
            let start = next;
            (start < entries.end).then(|| {
                next = self.run_end(start, entries.end);
                start..next
            })
        })
    }

    /// Returns the end of the entries that are one field with entry number `start`.
    fn run_end(&self, start: u32, end: u32) -> u32 {
        if !self.extras.has_lists {
            return start + 1;
        }
        let name_of = |entry: u32| u16_at(self.entry_bytes(entry), 8);
        let is_file = |entry: u32| FieldKind::of(u16_at(self.entry_bytes(entry), 10)).is_some_and(FieldKind::is_file);
        let of_list = |entry: &u32| is_file(*entry) && name_of(*entry) == name_of(start);
        (start + 1..end).take_while(of_list).last().map_or(start + 1, |last| last + 1)
    }

    /// Returns the entries of a record: those of its fields, and that of its key if it has one.
    fn entries_of(&self, record: u32) -> Range<u32> {
        self.first_field(record)..self.first_field(record + 1)
    }

    /// Returns the entries of field number `nth` of a record.
    fn run_of(&self, record: &Record<'_>, nth: u32) -> Range<u32> {
        if !self.extras.has_lists {
            return record.first_field + nth..record.first_field + nth + 1;
        }
        let found = self.runs(self.entries_of(record.number)).nth(nth as usize);
        found.expect("the record has the field")
    }

    /// Returns the bytes of files or values, one after the other.
    fn bytes_of(&self, entries: Range<u32>) -> u64 {
        entries.map(|entry| u64::from(u32_at(self.entry_bytes(entry), 0))).sum()
    }

    /// Returns the places in the shard of the files of `run`, the first of which begins at `at`.
    fn places(&self, run: Range<u32>, at: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        run.scan(at, move |at, entry| {
            let start = *at;
            *at += u64::from(u32_at(self.entry_bytes(entry), 0));
            Some(start..*at)
        })
    }

    /// Returns the entries with the files of `field`, if it is a list.
    fn list_of(&self, field: &Field<'_>) -> Option<Range<u32>> {
        if !self.extras.has_lists || field.value.is_some() || field.bytes == 0 {
            return None;
        }
        // It has bytes, so it is of the last record that begins before them, and lists are not shared.
        let first = self.first_at(self.record_at(field.offset));
        let mut at = self.offset(first);
        for record in first..self.records {
            for run in self.runs(self.entries_of(record)) {
                let entry = self.entry(run.start);
                if !matches!(entry.kind, FieldKind::File(_)) {
                    continue;
                }
                let bytes = self.bytes_of(run.clone());
                if at == field.offset && bytes == u64::from(field.bytes) {
                    return (run.len() > 1).then_some(run);
                }
                at += bytes;
                if at > field.offset {
                    return None;
                }
            }
        }
        None
    }

    /// Returns the first record that begins at the same place as `record`: that with the files of its own, if files are shared.
    fn first_at(&self, record: u32) -> u32 {
        let offset = self.offset(record);
        partition_point(self.records, |other| self.offset(other) < offset)
    }

    /// Returns the number of records whose files are those of `record`.
    fn sharing(&self, record: u32) -> u32 {
        if !self.extras.has_shared {
            return 1;
        }
        let offset = self.offset(record);
        (partition_point(self.records, |other| self.offset(other) <= offset) - self.first_at(record)).max(1)
    }

    /// Returns the entries of the tables of packets of the record that has field number `field`.
    fn packet_tables(&self, field: u32) -> impl Iterator<Item = FieldEntry<'_>> {
        let records = if self.extras.has_packet_tables { self.records } else { 0 };
        let record = last_before(records, |record| self.first_field(record) <= field);
        let entries = self.first_field(record)..self.first_field(records.min(record + 1));
        let entries = entries.rev().map(|field| self.entry(field)).skip_while(|entry| entry.kind == FieldKind::Key);
        entries.take_while(|entry| entry.kind == FieldKind::PacketTable)
    }

    fn name(&self, name: u16) -> &str {
        let end = |name: usize| u32_at(&self.bytes, self.name_ends + 4 * name) as usize;
        let start = if name == 0 { 0 } else { end(usize::from(name) - 1) };
        text(&self.bytes[self.name_text + start..self.name_text + end(name.into())])
    }

    /// Returns the number of the last record that begins at or before `offset`.
    fn record_at(&self, offset: u64) -> u32 {
        last_before(self.records, |record| self.offset(record) <= offset)
    }

    /// Returns the parts of `range` of the shard that the files of records hold.
    fn parts(&self, range: &Range<u64>, parts: &mut Vec<ObjectRange>) {
        if range.is_empty() || self.records == 0 {
            return;
        }
        // Empty records begin where the one after them begins; none of their bytes are wanted.
        let last = self.record_at(range.start);
        let first = if self.extras.has_shared { self.first_at(last) } else { last };
        let mut at = self.offset(first);
        for field in self.first_field(first)..self.fields {
            if at >= range.end {
                break;
            }
            let entry = self.entry(field);
            if !matches!(entry.kind, FieldKind::File(_)) {
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
            _ => None,
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
        let Range { start: first_field, mut end } = self.entries_of(record);
        let key_bytes = u32_at(self.record_entry(record), 12) as usize;
        let key = if key_bytes == 0 {
            end -= 1;
            self.entry(end).text
        } else {
            &self.entry(first_field).text[..key_bytes]
        };
        if self.extras.has_packet_tables {
            while end > first_field + 1 && self.entry(end - 1).kind == FieldKind::PacketTable {
                end -= 1;
            }
        }
        let entries = first_field..end;
        let fields = if self.extras.has_lists { self.runs(entries).count() as u32 } else { end - first_field };
        Record {
            index: self,
            number: record,
            key: text(key).into(),
            first_sample: record,
            samples: 1,
            first_field,
            fields,
        }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let run = self.run_of(record, nth);
        let entry = self.entry(run.start);
        let is_value = entry.kind == FieldKind::Value;
        let offset = || {
            // The files of a record come before its values.
            let [first, file] = [record.first_field, run.start].map(|field| self.owner_of(field));
            self.offset(record.number) + self.bytes_of(first..file)
        };
        Field {
            name: self.name(entry.name),
            offset: if is_value { 0 } else { offset() },
            bytes: if run.len() > 1 { self.bytes_of(run.clone()) as u32 } else { entry.bytes },
            shared_by: if is_value { 1 } else { self.sharing(record.number) },
            crc32c: None,
            value: is_value.then_some(entry.text),
        }
    }

    fn files(&self, record: &Record<'_>, nth: u32) -> Option<Vec<Range<u64>>> {
        let run = self.list_of(&self.field(record, nth))?;
        Some(self.places(run, self.field(record, nth).offset).collect())
    }

    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        let Some(run) = self.list_of(field) else {
            return stored_bytes(&self.bytes, field, fetched).map(FieldValue::from);
        };
        let files = self.places(run, field.offset).map(|place| fetched(place).map(Some).ok_or(OpenError::Missing));
        files.collect::<Result<_, _>>().map(FieldValue::List)
    }

    fn packet_table(&self, record: &Record<'_>, nth: u32) -> Option<&[u8]> {
        let file = self.owner_of(self.run_of(record, nth).start);
        self.packet_tables(file).find(|table| u32_at(table.etag, 0) == file).map(|table| table.text)
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

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("offsets are checked when the file is opened"))
}
