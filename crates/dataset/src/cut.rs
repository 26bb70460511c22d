//! Cuts the fields out of the parts of shards, which arrive in order: their checksums, and the content of the wanted ones.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use spdl_shard::format::{Checksum, ChecksumHasher, Field, FieldValue, OpenError};
use spdl_store::StoreError;

use super::{
    parts::{FieldPlace, IndexedField, ReadShard, WantedContent, WantedOf},
    stages::Memory,
};

/// Upper limits of a batch of fields, unless a single field is longer.
const BATCH_FIELDS: usize = 32;
const BATCH_BYTES: usize = 1 << 20;

/// A field as read from the store, or a piece of a long one.
pub(super) struct FoundField {
    pub(super) place: FieldPlace,
    /// What is wrong with its bytes, if they are not those that were indexed. Known with the last piece.
    pub(super) problem: Option<String>,
    /// The bytes that were read, if they are wanted and are not a list, and as long as no fault in them is known.
    pub(super) content: Option<Bytes>,
    /// The files of a list that was wanted; `None` for one that is null.
    pub(super) list: Option<Vec<Option<Bytes>>>,
    /// Where in the field the content begins.
    pub(super) at: u32,
    /// Whether nothing of the field follows.
    pub(super) is_last: bool,
}

impl FoundField {
    /// Returns a field that was read as a whole: its value, if that is wanted, or what is wrong with it.
    pub(super) fn whole(place: FieldPlace, value: Result<Option<FieldValue>, String>) -> Self {
        let (problem, content, list) = match value {
            Err(problem) => (Some(problem), None, None),
            Ok(None) => (None, None, None),
            Ok(Some(FieldValue::One(content))) => (None, Some(content.into_file()), None),
            Ok(Some(FieldValue::List(files))) => (None, None, Some(files)),
        };
        Self { place, problem, content, list, at: 0, is_last: true }
    }

    /// Returns whether this is all of a field.
    pub(super) const fn is_whole(&self) -> bool {
        self.at == 0 && self.is_last
    }
}

/// Some fields of one shard, in the order of its bytes. A shard has at least one batch.
pub(super) struct FieldBatch {
    pub(super) shard: Arc<ReadShard>,
    pub(super) is_first: bool,
    pub(super) fields: Vec<FoundField>,
    /// Number of other fields that were read: they are not wanted and have no fault.
    pub(super) others: u64,
    /// What was found at the end of the shard, if this is its last batch.
    pub(super) end: Option<ShardEnd>,
    /// Memory that is held until the content is no longer needed.
    pub(super) memory: Arc<Memory>,
}

/// The end of a shard.
pub(super) struct ShardEnd {
    /// Number of bytes that were read.
    pub(super) bytes: u64,
    /// The fields that are incomplete or missing because the shard ends too early, or why not all was read.
    pub(super) rest: Result<Vec<FieldPlace>, StoreError>,
    /// What is wrong with the checksum of the whole shard.
    pub(super) other_checksum: Option<String>,
}

/// A part of a shard that was read.
pub(super) struct ReadPart {
    pub(super) shard: Arc<ReadShard>,
    pub(super) is_last: bool,
    /// The error is one of the shard, not of the connection to the store.
    pub(super) content: Result<ReadContent, StoreError>,
    pub(super) memory: Memory,
}

pub(super) enum ReadContent {
    Chunk(Bytes),
    /// Fields, the number of others that are not wanted and have no fault, and the number of bytes that were read.
    Fields {
        fields: Vec<FoundField>,
        others: u64,
        bytes: u64,
    },
    /// A piece of a file that begins at this place in the field, or what is wrong with the file.
    Piece(FieldPlace, u32, Result<Bytes, String>),
    Nothing,
}

impl ReadPart {
    /// Returns the number of bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        match &self.content {
            Ok(ReadContent::Chunk(chunk) | ReadContent::Piece(_, _, Ok(chunk))) => chunk.len() as u64,
            Ok(ReadContent::Fields { bytes, .. }) => *bytes,
            Ok(ReadContent::Piece(_, _, Err(_)) | ReadContent::Nothing) | Err(_) => 0,
        }
    }
}

/// Cuts parts into fields, one part after the other.
#[derive(Default)]
pub(super) struct FieldCutter {
    /// The shard that is being read, between its first part and its last one.
    open: Option<ShardReader>,
}

#[derive(Default)]
struct ShardReader {
    /// The next field of an object; `None` after the last one.
    next: Option<FieldPlace>,
    /// The file that is not read any further, because a piece of it is wrong.
    wrong_file: Option<FieldPlace>,
    bytes: u64,
    /// Computes the checksum of the whole shard, if one is known.
    hasher: Option<ChecksumHasher>,
    /// Checksum of the pieces of the next field so far.
    crc32c: u32,
    has_failed: bool,
}

impl FieldCutter {
    pub(super) fn cut(&mut self, part: ReadPart, wanted: &WantedOf) -> Vec<FieldBatch> {
        let ReadPart { shard, is_last, content, memory } = part;
        let is_first = self.open.is_none();
        let mut reader = self.open.take().unwrap_or_else(|| ShardReader {
            next: shard.index.as_ref().and_then(|index| FieldPlace::of_record(&**index, 0)),
            hasher: shard.index.as_ref().and_then(|index| index.checksum()).map(Checksum::hasher),
            ..ShardReader::default()
        });
        let was_failed = reader.has_failed;
        let others = match &content {
            Ok(ReadContent::Fields { others, .. }) => *others,
            _ => 0,
        };
        let (fields, error) = match content {
            _ if was_failed => (Vec::new(), None),
            Ok(content) => (reader.read(&shard, content, wanted), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        reader.has_failed |= error.is_some();
        let bytes = reader.bytes;
        let end = match error {
            Some(error) => Some(ShardEnd { bytes, rest: Err(error), other_checksum: None }),
            None => (is_last && !was_failed).then(|| reader.end(&shard)),
        };
        self.open = (!is_last).then_some(reader);
        if was_failed {
            return Vec::new();
        }
        let mut batches = batches(&shard, is_first || others > 0, fields, end, memory);
        if let Some(first) = batches.first_mut() {
            (first.is_first, first.others) = (is_first, others);
        }
        batches
    }
}

impl ShardReader {
    fn read(&mut self, shard: &ReadShard, content: ReadContent, wanted: &WantedOf) -> Vec<FoundField> {
        match content {
            ReadContent::Chunk(chunk) => self.chunk(shard, &chunk, wanted),
            ReadContent::Fields { fields, bytes, .. } => {
                self.bytes += bytes;
                self.next = None;
                fields
            }
            ReadContent::Piece(place, at, piece) => {
                self.next = None;
                self.piece(shard, (place, at), piece, wanted).into_iter().collect()
            }
            // A shard without a byte can have fields without one.
            ReadContent::Nothing => self.chunk(shard, &Bytes::new(), wanted),
        }
    }

    /// Reads the next chunk and returns the fields that end in it, and the pieces of fields that do not.
    fn chunk(&mut self, shard: &ReadShard, chunk: &Bytes, wanted: &WantedOf) -> Vec<FoundField> {
        let (start, end) = (self.bytes, self.bytes + chunk.len() as u64);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(chunk);
        }
        let mut found = Vec::new();
        while let Some(place) = self.next {
            let indexed = shard.field(place);
            if indexed.field.value.is_some() {
                found.push(self.whole((shard, place), &indexed, &Bytes::new(), wanted));
                self.next = place.next(shard.index());
                continue;
            }
            let field_start = indexed.field.offset;
            let field_end = field_start + u64::from(indexed.field.bytes);
            let range = field_start.clamp(start, end)..field_end.clamp(start, end);
            if range.is_empty() && field_end > end {
                break;
            }
            let piece = chunk.slice((range.start - start) as usize..(range.end - start) as usize);
            found.extend(self.found((shard, place), &indexed, (range.start - field_start) as u32, piece, wanted));
            if field_end > end {
                break;
            }
            self.next = place.next(shard.index());
        }
        self.bytes = end;
        found
    }

    /// Reads a piece of a file.
    fn piece(
        &mut self,
        shard: &ReadShard,
        (place, at): (FieldPlace, u32),
        piece: Result<Bytes, String>,
        wanted: &WantedOf,
    ) -> Option<FoundField> {
        if self.wrong_file == Some(place) {
            return None;
        }
        match piece {
            Ok(piece) => {
                self.bytes += piece.len() as u64;
                self.found((shard, place), &shard.field(place), at, piece, wanted)
            }
            Err(problem) => {
                (self.wrong_file, self.crc32c) = (Some(place), 0);
                Some(FoundField { at, ..FoundField::whole(place, Err(problem)) })
            }
        }
    }

    /// Returns a field that is all there: its bytes, or its value in the index.
    fn whole(
        &mut self,
        (shard, place): (&ReadShard, FieldPlace),
        IndexedField { key, field, segments }: &IndexedField<'_>,
        bytes: &Bytes,
        wanted: &WantedOf,
    ) -> FoundField {
        self.crc32c = 0;
        let is_wanted = wanted(*key, field, *segments) != WantedContent::Nothing;
        let opened = shard.index().open(field, &|range| part_of(field, bytes, range));
        let content = opened.map(|value| is_wanted.then_some(value));
        FoundField::whole(place, content.map_err(|error| problem_of(error, field)))
    }

    /// Returns a piece of a field, or all of it; `None` if nothing is wanted of it before its last piece.
    fn found(
        &mut self,
        (shard, place): (&ReadShard, FieldPlace),
        indexed: &IndexedField<'_>,
        at: u32,
        piece: Bytes,
        wanted: &WantedOf,
    ) -> Option<FoundField> {
        let IndexedField { key, field, segments } = indexed;
        let is_last = at + piece.len() as u32 == field.bytes;
        if at == 0 && is_last {
            return Some(self.whole((shard, place), indexed, &piece, wanted));
        }
        let is_wanted = wanted(*key, field, *segments) != WantedContent::Nothing;
        if field.crc32c.is_some() {
            self.crc32c = crc32c::crc32c_append(self.crc32c, &piece);
        }
        let crc32c = if is_last { std::mem::take(&mut self.crc32c) } else { self.crc32c };
        let is_wrong = is_last && field.crc32c.is_some_and(|expected| expected != crc32c);
        let problem = is_wrong.then(|| other_bytes(field));
        let content = (is_wanted && !is_wrong).then_some(piece);
        (is_last || is_wanted).then_some(FoundField { place, problem, content, list: None, at, is_last })
    }

    /// Returns what is known at the end of the shard.
    fn end(&mut self, shard: &ReadShard) -> ShardEnd {
        let other_checksum = self.hasher.take().and_then(|hasher| hasher.finish().err());
        ShardEnd { bytes: self.bytes, rest: Ok(self.rest(shard)), other_checksum }
    }

    /// Returns the fields that were not read.
    fn rest(&self, shard: &ReadShard) -> Vec<FieldPlace> {
        std::iter::successors(self.next, |place| place.next(shard.index())).collect()
    }
}

/// Returns the part of a field's bytes that a list has as one of its files; all of them where they are asked for, or become something.
pub(super) fn part_of(field: &Field<'_>, bytes: &Bytes, range: Range<u64>) -> Option<Bytes> {
    let is_part = |whole: &Range<u64>| range != *whole && whole.start <= range.start && range.end <= whole.end;
    match field.range().filter(is_part) {
        Some(whole) => slice(&[(whole.start, bytes.clone())], range),
        None => Some(bytes.clone()),
    }
}

/// Describes why a field's bytes do not become its content.
pub(super) fn problem_of(error: OpenError, field: &Field<'_>) -> String {
    match error {
        OpenError::Checksum { .. } => other_bytes(field),
        OpenError::Missing => not_there(field),
        OpenError::Malformed(problem) => format!("field `{}` {problem}", field.name),
        OpenError::Damaged { problem, .. } => format!("field `{}` {problem}", field.name),
    }
}

/// Describes a field whose bytes are elsewhere.
pub(super) fn not_there(field: &Field<'_>) -> String {
    format!("field `{}` is not where its index has it", field.name)
}

/// Describes a field with another checksum.
fn other_bytes(field: &Field<'_>) -> String {
    format!("field `{}` at byte {} has other bytes than were indexed", field.name, field.offset)
}

/// Divides the fields of a part into batches: at least one if one is needed.
fn batches(
    shard: &Arc<ReadShard>,
    is_needed: bool,
    fields: Vec<FoundField>,
    end: Option<ShardEnd>,
    memory: Memory,
) -> Vec<FieldBatch> {
    let memory = Arc::new(memory);
    let batch = || FieldBatch {
        shard: Arc::clone(shard),
        is_first: false,
        fields: Vec::new(),
        others: 0,
        end: None,
        memory: Arc::clone(&memory),
    };
    let (mut batches, mut bytes) = (Vec::new(), 0);
    for field in fields {
        let files = field.content.iter().chain(field.list.iter().flatten().flatten());
        let field_bytes: usize = files.map(Bytes::len).sum();
        let is_full =
            |last: &FieldBatch| last.fields.len() == BATCH_FIELDS || bytes > 0 && bytes + field_bytes > BATCH_BYTES;
        if batches.last().is_none_or(is_full) {
            batches.push(batch());
            bytes = 0;
        }
        bytes += field_bytes;
        batches.last_mut().expect("there is a batch").fields.push(field);
    }
    if batches.is_empty() && (is_needed || end.is_some()) {
        batches.push(batch());
    }
    if let Some(last) = batches.last_mut() {
        last.end = end;
    }
    batches
}

/// Returns the bytes of `range` of the shard, from pieces that lie one after the other.
pub(crate) fn slice(pieces: &[(u64, Bytes)], range: Range<u64>) -> Option<Bytes> {
    let mut found = BytesMut::new();
    for (start, bytes) in pieces {
        let end = start + bytes.len() as u64;
        let part = range.start.max(*start)..range.end.min(end);
        if part.start < part.end {
            found.extend_from_slice(&bytes[(part.start - start) as usize..(part.end - start) as usize]);
        }
    }
    (found.len() as u64 == range.end - range.start).then(|| found.freeze())
}
