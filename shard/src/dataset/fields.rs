//! Reads the fields of a shard: their checksums, and the content of the wanted ones.
//!
//! The fields of a shard that is one object are cut out of its bytes as these pass. The files of a shard that consists
//! of several are read one by one, some at once, so that a file that is missing is the fault of its own record only.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::ObjectMeta;
use tokio::sync::Semaphore;

use crate::{
    format::{Field, OpenError, ShardIndex},
    index::Segments,
    manifest::Shard,
    store::{DatasetStore, StoreError},
};

/// Number of files that are read at once.
const FILES_AT_ONCE: usize = 32;
/// Upper limit of the KiB of files that are in memory at once, unless a single file is longer.
const FILES_KIB: u32 = 64 << 10;

/// A field as read from the store.
pub(super) struct FoundField<'i> {
    /// Its record's key.
    pub(super) key: &'i str,
    /// The field as the index describes it.
    pub(super) field: Field<'i>,
    /// The table of segments, if the field is a crop-ready picture.
    pub(super) segments: Option<Segments<'i>>,
    /// What is wrong with its bytes, if they are not those that were indexed.
    pub(super) problem: Option<String>,
    /// The bytes that were read, if they were wanted and are right.
    pub(super) content: Option<Bytes>,
}

/// A field to read.
type Waiting<'i> = (&'i str, Field<'i>, Option<Segments<'i>>);

/// Decides by key, field and segments whether a field's content is wanted.
type IsWanted<'i> = dyn Fn(&str, &Field<'i>, Option<Segments<'i>>) -> bool + Send + Sync + 'i;

/// The fields of one shard, in the order of its bytes.
pub(super) enum ShardFields<'i> {
    /// The shard is one object.
    Object { chunks: BoxStream<'i, Result<Bytes, StoreError>>, reader: FieldReader<'i>, is_wanted: Box<IsWanted<'i>> },
    /// The shard consists of files.
    Files { found: BoxStream<'i, Result<FoundField<'i>, StoreError>>, bytes: u64 },
}

impl<'i> ShardFields<'i> {
    /// Starts to read the fields of `shard`; `object` describes the object that it is, if it is one.
    pub(super) fn read(
        at: &'i DatasetStore,
        shard: Shard<'i>,
        index: &'i dyn ShardIndex,
        object: Option<ObjectMeta>,
        is_wanted: Box<IsWanted<'i>>,
    ) -> Self {
        if let Some(meta) = object {
            return Self::Object {
                chunks: at.stream(shard.url, meta).boxed(),
                reader: FieldReader::new(index),
                is_wanted,
            };
        }
        let memory = Semaphore::new(FILES_KIB as usize);
        let (memory, is_wanted) = (std::sync::Arc::new(memory), std::sync::Arc::new(is_wanted));
        let found = stream::iter(fields(index))
            .map(move |(key, field, segments)| {
                let (memory, is_wanted) = (memory.clone(), is_wanted.clone());
                async move {
                    let kib = (field.bytes >> 10).clamp(1, FILES_KIB);
                    let _room = memory.acquire_many(kib).await.expect("it is never closed");
                    let read = read_field(at, &shard, index, &field).await?;
                    let (problem, content) = match read {
                        Ok(content) => (None, is_wanted(key, &field, segments).then_some(content)),
                        Err(problem) => (Some(problem), None),
                    };
                    Ok(FoundField { key, field, segments, problem, content })
                }
            })
            .buffered(FILES_AT_ONCE);
        Self::Files { found: found.boxed(), bytes: 0 }
    }

    /// Returns the next fields, and the number of bytes that were read for them; `None` after the last ones.
    pub(super) async fn next(&mut self) -> Result<Option<(Vec<FoundField<'i>>, u64)>, StoreError> {
        Ok(match self {
            Self::Object { chunks, reader, is_wanted } => {
                chunks.try_next().await?.map(|chunk| (reader.read(&chunk, &**is_wanted), chunk.len() as u64))
            }
            Self::Files { found, bytes } => found.try_next().await?.map(|found| {
                let read = if found.field.value.is_none() { u64::from(found.field.bytes) } else { 0 };
                *bytes += read;
                (vec![found], read)
            }),
        })
    }

    /// Returns the number of bytes of the shard that were read.
    pub(super) const fn bytes(&self) -> u64 {
        match self {
            Self::Object { reader, .. } => reader.offset,
            Self::Files { bytes, .. } => *bytes,
        }
    }

    /// Returns the fields that are incomplete or missing because the shard ends too early.
    pub(super) fn rest(self) -> impl Iterator<Item = (&'i str, Field<'i>)> {
        let rest = match self {
            Self::Object { reader, .. } => Some(reader.open.into_iter().chain(reader.fields)),
            Self::Files { .. } => None,
        };
        rest.into_iter().flatten().map(|(key, field, _)| (key, field))
    }
}

/// Reads one field and checks it. The inner error is what is wrong with the field itself.
///
/// # Errors
/// If the store cannot be reached.
pub(super) async fn read_field(
    at: &DatasetStore,
    shard: &Shard<'_>,
    index: &dyn ShardIndex,
    field: &Field<'_>,
) -> Result<Result<Bytes, String>, StoreError> {
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    for part in index.plan(shard, field.range().as_slice()) {
        match at.read_range(&part).await {
            Ok(bytes) => pieces.push((part.at, bytes)),
            Err(error) if error.is_of_connection() => return Err(error),
            Err(error) => return Ok(Err(format!("field `{}` cannot be read: {error}", field.name))),
        }
    }
    let fetched = |range: Range<u64>| match &pieces[..] {
        [] => range.is_empty().then(Bytes::new),
        [(_, piece)] => (piece.len() as u64 == range.end - range.start).then(|| piece.clone()),
        pieces => Some(pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect()),
    };
    Ok(index.open(field, &fetched).map_err(|error| match error {
        OpenError::Checksum { .. } => other_bytes(field),
        OpenError::Missing => format!("field `{}` is not where its index has it", field.name),
    }))
}

fn other_bytes(field: &Field<'_>) -> String {
    format!("field `{}` at byte {} has other bytes than were indexed", field.name, field.offset)
}

fn fields<'i>(index: &'i dyn ShardIndex) -> impl Iterator<Item = Waiting<'i>> + Send + 'i {
    index
        .records()
        .flat_map(|record| record.fields().map(move |field| (record.key, field, record.segments(field.name))))
}

/// Cuts the fields out of a shard that arrives in chunks. The fields lie one after the other, so they complete in the
/// order of the bytes.
pub(super) struct FieldReader<'i> {
    fields: Box<dyn Iterator<Item = Waiting<'i>> + Send + 'i>,
    open: Option<Waiting<'i>>,
    offset: u64,
    crc32c: u32,
    content: BytesMut,
}

impl<'i> FieldReader<'i> {
    fn new(index: &'i dyn ShardIndex) -> Self {
        let mut fields = Box::new(fields(index));
        let open = fields.next();
        Self { fields, open, offset: 0, crc32c: 0, content: BytesMut::new() }
    }

    /// Reads the next chunk and returns the fields that end in it. Content that lies in one chunk is not copied.
    fn read(&mut self, chunk: &Bytes, is_wanted: &IsWanted<'i>) -> Vec<FoundField<'i>> {
        let end = self.offset + chunk.len() as u64;
        let mut found = Vec::new();
        while let Some((key, field, segments)) = self.open {
            let field_end = field.offset + u64::from(field.bytes);
            let part = field.offset.clamp(self.offset, end)..field_end.clamp(self.offset, end);
            let part = chunk.slice((part.start - self.offset) as usize..(part.end - self.offset) as usize);
            self.crc32c = crc32c::crc32c_append(self.crc32c, &part);
            let is_wanted = is_wanted(key, &field, segments);
            if field_end > end {
                if is_wanted {
                    self.content.extend_from_slice(&part);
                }
                break;
            }
            let content = is_wanted.then(|| {
                if self.content.is_empty() {
                    return part;
                }
                self.content.extend_from_slice(&part);
                self.content.split().freeze()
            });
            let is_right = field.crc32c.is_none_or(|expected| expected == self.crc32c);
            let problem = (!is_right).then(|| other_bytes(&field));
            let content = content.filter(|_| is_right);
            found.push(FoundField { key, field, segments, problem, content });
            self.crc32c = 0;
            self.open = self.fields.next();
        }
        self.offset = end;
        found
    }
}
