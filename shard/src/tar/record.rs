//! Members to records: consecutive members with one key, their checksums, and the place of every field.

use super::{Member, OddTally, TarError, TarEvent, TarFault, TarOddity, TarReader, read::padding};

/// A record as it was found in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its key.
    pub key: String,
    /// Where its first header starts in the shard.
    pub start: u64,
    /// Where the padding of its last member ends in the shard.
    pub end: u64,
    /// Its fields, in the order in which they lie in the shard.
    pub fields: Vec<ScannedField>,
}

/// A field as it was found in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedField {
    /// Its name.
    pub name: String,
    /// Where its data starts in the shard.
    pub offset: u64,
    /// Size of its data in bytes.
    pub bytes: u32,
    /// CRC-32C of its data.
    pub crc32c: u32,
    /// Its data, for the field that was asked for and where it is not too long.
    pub content: Option<Vec<u8>>,
}

/// What is left when a shard has come to its end.
#[derive(Debug)]
pub struct TarEnd {
    /// The last record.
    pub record: Option<ScannedRecord>,
    /// Bytes that were read.
    pub bytes: u64,
    pub(crate) odd: OddTally,
}

/// Reads the records of a shard that comes in chunks.
#[derive(Debug)]
pub struct RecordReader {
    tar: TarReader,
    shard: String,
    keep: Option<(String, usize)>,
    record: Option<ScannedRecord>,
    /// Whether data belongs to the record's last field; false inside a member that is no field.
    in_field: bool,
}

impl RecordReader {
    /// A reader at the start of the shard called `shard`, which errors name.
    #[must_use]
    pub fn new(shard: &str) -> Self {
        Self { tar: TarReader::new(shard), shard: shard.to_owned(), keep: None, record: None, in_field: false }
    }

    /// Also keeps the data of fields called `field` that have at most `max_bytes`.
    #[must_use]
    pub fn keep(mut self, field: &str, max_bytes: usize) -> Self {
        self.keep = Some((field.to_owned(), max_bytes));
        self
    }

    /// Reads the next chunk and gives each record that is complete to `found`.
    ///
    /// # Errors
    /// If the bytes are not a tar, or a record has a field twice or one of 4 GiB or more.
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

    /// Ends reading.
    ///
    /// # Errors
    /// If the tar is not over.
    pub fn finish(mut self) -> Result<TarEnd, TarError> {
        let bytes = self.tar.finish()?;
        Ok(TarEnd { record: self.record, bytes, odd: std::mem::take(self.tar.odd()) })
    }

    /// Starts a member; gives the record before it where it starts another one.
    fn member(&mut self, member: Member) -> Result<Option<ScannedRecord>, TarError> {
        let Some((key, name)) = split_path(&member.path) else {
            self.tar.odd().add(TarOddity::NoField, &self.shard, &member.path);
            self.in_field = false;
            return Ok(None);
        };
        let name = name.to_lowercase();
        let fail = |fault| Err(TarError { shard: self.shard.clone(), offset: member.header_offset, fault });
        let Ok(bytes) = u32::try_from(member.bytes) else {
            return fail(TarFault::TooLarge { path: member.path.clone(), bytes: member.bytes });
        };
        let complete = self.record.take_if(|record| record.key != key);
        let start = || ScannedRecord { key: key.to_owned(), start: member.header_offset, ..Default::default() };
        let record = self.record.get_or_insert_with(start);
        if record.fields.iter().any(|field| field.name == name) {
            return fail(TarFault::FieldTwice { key: key.to_owned(), field: name });
        }
        let kept = self.keep.as_ref().is_some_and(|(field, max_bytes)| *field == name && bytes as usize <= *max_bytes);
        let content = kept.then(Vec::new);
        record.end = member.offset + member.bytes + padding(member.bytes);
        record.fields.push(ScannedField { name, offset: member.offset, bytes, crc32c: 0, content });
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
        }
    }
}

/// The key and the field's name that a member's path stands for, as WebDataset splits it: at the first dot of
/// the file's name. `None` for what is passed over: files without a dot or with nothing after it, hidden files,
/// and everything under a first part that starts and ends with `__`.
#[must_use]
pub fn split_path(path: &str) -> Option<(&str, &str)> {
    let first = path.split('/').next().unwrap_or_default();
    let reserved = first.strip_prefix("__").is_some_and(|rest| rest.ends_with("__"));
    let file = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = file + path[file..].find('.')?;
    (!reserved && dot > file && dot + 1 < path.len()).then(|| (&path[..dot], &path[dot + 1..]))
}
