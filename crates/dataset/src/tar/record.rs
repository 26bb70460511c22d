//! Groups members into records: consecutive members with one key, with the checksum and offset of every field.

use super::{Member, OddTally, TarAnomaly, TarError, TarEvent, TarFault, TarReader, read::padding};
use crate::passing_tables::PassingTables;
use spdl_store::TemporaryError;

/// The place in a member's name where the key of its record ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyEnd {
    /// At the first dot, as in WebDataset: `cat.0.jpg` is the field `0.jpg` of `cat`.
    #[default]
    FirstDot,
    /// At the last dot: `cat.0.jpg` is the field `jpg` of `cat.0`.
    LastDot,
}

impl KeyEnd {
    /// All ends, with their names on the command line.
    pub const NAMES: [(Self, &str); 2] = [(Self::FirstDot, "first-dot"), (Self::LastDot, "last-dot")];

    /// Returns the key end called `name`.
    ///
    /// # Errors
    /// The valid names, in words that follow the given one.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found
            .map(|(end, _)| end)
            .ok_or_else(|| format!("known are: {}", Self::NAMES.map(|(_, known)| known).join(", ")))
    }

    /// Splits a member's path into the key and the field's name. Returns `None` for what is skipped: files without a dot or with
    /// nothing after it, hidden files, and everything under a first part that starts and ends with `__`.
    #[must_use]
    pub fn split(self, path: &str) -> Option<(&str, &str)> {
        let first = path.split('/').next().unwrap_or_default();
        let reserved = first.strip_prefix("__").is_some_and(|rest| rest.ends_with("__"));
        let file = path.rfind('/').map_or(0, |slash| slash + 1);
        let name = &path[file..];
        let dot = match self {
            Self::FirstDot => name.find('.'),
            Self::LastDot => name.rfind('.').filter(|_| !name.starts_with('.')),
        };
        let dot = file + dot?;
        (!reserved && dot > file && dot + 1 < path.len()).then(|| (&path[..dot], &path[dot + 1..]))
    }
}

/// A record as found in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its key.
    pub key: String,
    /// Offset in the shard at which its first header starts.
    pub start: u64,
    /// Offset in the shard at which the padding of its last member ends.
    pub end: u64,
    /// Its fields, in the order in which they lie in the shard.
    pub fields: Vec<ScannedField>,
}

/// A field as found in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedField {
    /// Its name.
    pub name: String,
    /// Offset of its data in the shard.
    pub offset: u64,
    /// Size of its data in bytes.
    pub bytes: u32,
    /// CRC-32C of its data.
    pub crc32c: u32,
    /// Its data, if the caller asked to keep this field and it is not too long.
    pub content: Option<Vec<u8>>,
    /// The table of the packets of a long sound or video.
    pub(crate) packet_table: Option<Vec<u8>>,
}

/// What a reader returns at the end of a shard.
#[derive(Debug)]
pub struct TarEnd {
    /// The last record.
    pub record: Option<ScannedRecord>,
    /// Number of bytes that were read.
    pub bytes: u64,
    pub(crate) odd: OddTally,
    /// What went wrong with the table of the last field.
    pub(crate) temporary_error: Option<TemporaryError>,
}

/// Reads the records of a shard that arrives in chunks.
#[derive(Debug)]
pub struct RecordReader {
    tar: TarReader,
    shard: String,
    key_end: KeyEnd,
    keep: Option<(String, usize)>,
    packet_tables: Option<PassingTables>,
    record: Option<ScannedRecord>,
    /// The paths of its members.
    paths: Vec<String>,
    /// Whether data belongs to the record's last field; false inside a member that is not a field.
    in_field: bool,
}

impl RecordReader {
    /// Creates a reader at the start of the shard called `shard`; errors name the shard.
    #[must_use]
    pub fn new(shard: &str) -> Self {
        let (tar, shard) = (TarReader::new(shard), shard.to_owned());
        let (key_end, keep, packet_tables) = (KeyEnd::default(), None, None);
        Self { tar, shard, key_end, keep, packet_tables, record: None, paths: Vec::new(), in_field: false }
    }

    /// Sets where keys end. Default: at the first dot.
    #[must_use]
    pub const fn key_end(mut self, key_end: KeyEnd) -> Self {
        self.key_end = key_end;
        self
    }

    /// Also keeps the data of fields called `field` that have at most `max_bytes`.
    #[must_use]
    pub fn keep(mut self, field: &str, max_bytes: usize) -> Self {
        self.keep = Some((field.to_owned(), max_bytes));
        self
    }

    /// Also makes tables of the packets of long sounds and videos.
    pub(crate) fn packet_tables(mut self, tables: Option<PassingTables>) -> Self {
        self.packet_tables = tables;
        self
    }

    /// Returns what makes the tables of packets.
    pub(crate) const fn made_tables(&mut self) -> Option<&mut PassingTables> {
        self.packet_tables.as_mut()
    }

    /// Reads the next chunk and passes each complete record to `found`.
    ///
    /// # Errors
    /// If the bytes are not a tar, or a record has a field twice or a field of 4 GiB or more.
    pub fn read(&mut self, mut chunk: &[u8], mut found: impl FnMut(ScannedRecord)) -> Result<(), TarError> {
        while let Some(event) = self.tar.next(&mut chunk)? {
            match event {
                TarEvent::Member(member) => {
                    if let Some(record) = self.member(member)? {
                        found(record);
                    }
                }
                TarEvent::Data(data) => self.data(data),
            }
        }
        Ok(())
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// If the tar has not ended.
    pub fn finish(mut self) -> Result<TarEnd, TarError> {
        let bytes = self.tar.finish()?;
        self.end_field();
        let temporary_error = self.packet_tables.as_mut().and_then(PassingTables::error);
        Ok(TarEnd { record: self.record, bytes, odd: std::mem::take(self.tar.odd()), temporary_error })
    }

    /// Starts a member; returns the record before it if the member belongs to another record.
    fn member(&mut self, member: Member) -> Result<Option<ScannedRecord>, TarError> {
        self.end_field();
        let Some((key, name)) = self.key_end.split(&member.path) else {
            self.tar.odd().add(TarAnomaly::NoField, &self.shard, &member.path);
            self.in_field = false;
            return Ok(None);
        };
        let name = name.to_lowercase();
        let fail = |fault| Err(TarError { shard: self.shard.clone(), offset: member.header_offset, fault });
        let Ok(bytes) = u32::try_from(member.bytes) else {
            return fail(TarFault::TooLarge { path: member.path.clone(), bytes: member.bytes });
        };
        let complete = self.record.take_if(|record| record.key != key);
        if self.record.is_none() {
            self.paths.clear();
        }
        let start = || ScannedRecord { key: key.to_owned(), start: member.header_offset, ..Default::default() };
        let record = self.record.get_or_insert_with(start);
        if record.fields.iter().any(|field| field.name == name) {
            return fail(match self.paths.contains(&member.path) {
                true => TarFault::MemberTwice(member.path.clone()),
                false => TarFault::FieldTwice { key: key.to_owned(), field: name },
            });
        }
        let kept = self.keep.as_ref().is_some_and(|(field, max_bytes)| *field == name && bytes as usize <= *max_bytes);
        let content = kept.then(Vec::new);
        record.end = member.offset + member.bytes + padding(member.bytes);
        if let Some(tables) = &mut self.packet_tables {
            tables.begin(&name, bytes.into());
        }
        record.fields.push(ScannedField { name, offset: member.offset, bytes, crc32c: 0, content, packet_table: None });
        self.paths.push(member.path);
        self.in_field = true;
        Ok(complete)
    }

    fn data(&mut self, data: &[u8]) {
        let field = self.record.as_mut().filter(|_| self.in_field).and_then(|record| record.fields.last_mut());
        if let Some(field) = field {
            field.crc32c = crc32c::crc32c_append(field.crc32c, data);
            if let Some(content) = &mut field.content {
                content.extend_from_slice(data);
            }
            if let Some(tables) = &mut self.packet_tables {
                tables.data(data);
            }
        }
    }

    /// Ends the field that began last, if it has not ended.
    fn end_field(&mut self) {
        if let Some(table) = self.packet_tables.as_mut().and_then(PassingTables::end)
            && let Some(field) = self.record.as_mut().and_then(|record| record.fields.last_mut())
        {
            field.packet_table = Some(table);
        }
    }
}
