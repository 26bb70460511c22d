//! Reads whole objects: small ones with one request, long ones in parallel ranges that arrive in order.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStoreExt};

use crate::{
    ContentError, StoreError, StoreFolder, TemporaryError, TemporaryFolder, blocking,
    mapped::{MappedObject, MappedWriter},
};

/// Size of the ranges in which objects are read, in bytes.
pub const RANGE_BYTES: u64 = 8 << 20;
/// Number of ranges of one object that are fetched at once. Each takes the memory of one range.
const RANGES_AT_ONCE: usize = 4;
/// Size in bytes from which an object that is kept is mapped from a file, so that only the parts that are read take
/// memory.
const MAPPED_BYTES: u64 = 32 << 20;

/// A whole object that was read.
#[derive(Debug)]
pub enum WholeObject {
    /// It is in memory.
    Memory(Bytes),
    /// It is mapped from a file.
    Mapped(MappedObject),
}

/// Takes the ranges of an object as they arrive.
enum Collector {
    Memory(BytesMut),
    Mapped(MappedWriter),
}

impl WholeObject {
    /// Returns its bytes, without copying them.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Memory(bytes) => bytes.clone(),
            Self::Mapped(object) => object.bytes(),
        }
    }

    /// Takes what was read of the object out of memory, if it can be read again.
    pub fn give_back(&self) {
        if let Self::Mapped(object) = self {
            object.give_back();
        }
    }
}

impl Collector {
    /// Creates a collector for `bytes` bytes: a file from `mapped_from` bytes on, otherwise memory. Falls back to
    /// memory if no file can be made.
    async fn new(bytes: u64, mapped_from: u64) -> Self {
        if bytes >= mapped_from
            && let Ok(writer) = blocking(move || MappedWriter::create(&TemporaryFolder::of_system(), bytes)).await
        {
            return Self::Mapped(writer);
        }
        Self::Memory(BytesMut::with_capacity(usize::try_from(bytes).expect("the limit fits into memory")))
    }

    async fn append(self, range: Bytes) -> Result<Self, TemporaryError> {
        match self {
            Self::Memory(mut memory) => {
                memory.extend_from_slice(&range);
                Ok(Self::Memory(memory))
            }
            Self::Mapped(mut writer) => blocking(move || writer.append(&range).map(|()| Self::Mapped(writer))).await,
        }
    }

    fn finish(self) -> Result<WholeObject, TemporaryError> {
        match self {
            Self::Memory(memory) => Ok(WholeObject::Memory(memory.freeze())),
            Self::Mapped(writer) => writer.finish().map(WholeObject::Mapped),
        }
    }
}

/// Divides a range of an object into the ranges in which it is read, in order.
pub fn split(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let Range { start, end } = range;
    let count = end.saturating_sub(start).div_ceil(RANGE_BYTES);
    (0..count).map(move |part| start + part * RANGE_BYTES).map(move |at| at..(at + RANGE_BYTES).min(end))
}

impl StoreFolder {
    /// Reads all of `relative`, which may have at most `limit_bytes`, into memory.
    ///
    /// # Errors
    /// If it cannot be read, is not as long as it should be, or changed.
    pub async fn read(&self, relative: &str, limit_bytes: u64) -> Result<Bytes, StoreError> {
        self.read_whole(relative, limit_bytes, u64::MAX, |_, _| Ok(())).await.map(|object| object.bytes())
    }

    /// Reads all of `relative`, which may have at most `limit_bytes`, to keep it. If the object is longer than one range,
    /// `begins_well` checks its first bytes, and gets its total size, before the rest is read.
    ///
    /// # Errors
    /// If it cannot be read, is not as long as it should be, or changed.
    pub async fn read_kept(
        &self,
        relative: &str,
        limit_bytes: u64,
        begins_well: impl FnOnce(&[u8], u64) -> Result<(), ContentError>,
    ) -> Result<WholeObject, StoreError> {
        self.read_whole(relative, limit_bytes, MAPPED_BYTES, begins_well).await
    }

    async fn read_whole(
        &self,
        relative: &str,
        limit_bytes: u64,
        mapped_from: u64,
        begins_well: impl FnOnce(&[u8], u64) -> Result<(), ContentError>,
    ) -> Result<WholeObject, StoreError> {
        let path = self.path_of(relative);
        let answer = self.object.get(&path).await.map_err(|source| StoreError::of(&self.url_of(relative), source))?;
        let bytes = answer.meta.size;
        if bytes > limit_bytes {
            return Err(StoreError::TooLarge { url: self.url_of(relative), bytes, limit_bytes });
        }
        if bytes <= RANGE_BYTES {
            return self.body(relative, answer, bytes).await.map(WholeObject::Memory);
        }
        let meta = answer.meta;
        let mut ranges = std::pin::pin!(self.stream(relative, meta));
        let first = ranges.try_next().await?.unwrap_or_default();
        begins_well(&first, bytes).map_err(|source| StoreError::Format { url: self.url_of(relative), source })?;
        let unusable = |error: TemporaryError| StoreError::Format { url: self.url_of(relative), source: error.into() };
        let mut collector = Collector::new(bytes, mapped_from).await.append(first).await.map_err(unusable)?;
        while let Some(range) = ranges.try_next().await? {
            collector = collector.append(range).await.map_err(unusable)?;
        }
        collector.finish().map_err(unusable)
    }

    /// Streams all of `relative`, which `meta` describes, as chunks in order. Memory is bounded by a few ranges.
    pub fn stream<'a>(
        &'a self,
        relative: &'a str,
        meta: ObjectMeta,
    ) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + use<'a> {
        let meta = Arc::new(meta);
        stream::iter(split(0..meta.size))
            .map(move |range| {
                let meta = Arc::clone(&meta);
                async move { self.read_part(relative, &meta, range).await }
            })
            .buffered(RANGES_AT_ONCE)
    }

    /// Reads a range of `relative`, which `meta` describes. Of an object that is no longer than one range, mostly all is read.
    ///
    /// # Errors
    /// If it cannot be read, is not as long as it should be, or changed.
    pub async fn read_part(&self, relative: &str, meta: &ObjectMeta, part: Range<u64>) -> Result<Bytes, StoreError> {
        // A web server may support neither ranges nor preconditions; a short object needs no range, unless a part is wanted.
        let needs_range = meta.size > RANGE_BYTES || part != (0..meta.size);
        let range = needs_range.then_some(GetRange::Bounded(part.clone()));
        let if_match = meta.e_tag.clone().filter(|etag| !etag.starts_with("W/"));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let answer = self.object.get_opts(&meta.location, options).await;
        let answer = answer.map_err(|source| StoreError::of(&self.url_of(relative), source))?;
        self.body(relative, answer, part.end - part.start).await
    }

    /// Asks for a range of `relative`, or for all of it: a web server may support no ranges. [`body`](Self::body) reads the answer.
    ///
    /// # Errors
    /// If the store does not answer, or refuses.
    pub async fn get_range(&self, relative: &str, range: Option<Range<u64>>) -> Result<GetResult, StoreError> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let answer = self.object.get_opts(&self.path_of(relative), options).await;
        answer.map_err(|source| StoreError::of(&self.url_of(relative), source))
    }

    /// Returns what the store has of `relative`, without its bytes.
    ///
    /// # Errors
    /// If it is not there, or the store does not answer.
    pub async fn meta(&self, relative: &str) -> Result<ObjectMeta, StoreError> {
        let found = self.object.head(&self.path_of(relative)).await;
        found.map_err(|source| StoreError::of(&self.url_of(relative), source))
    }

    /// Reads the body of an answer about `relative`.
    ///
    /// # Errors
    /// If it has not the expected size, or the connection fails.
    pub async fn body(&self, relative: &str, answer: GetResult, expected_bytes: u64) -> Result<Bytes, StoreError> {
        let url = || self.url_of(relative);
        let found_bytes = answer.range.end - answer.range.start;
        if found_bytes == expected_bytes {
            let bytes = answer.bytes().await.map_err(|source| StoreError::of(&url(), source))?;
            if bytes.len() as u64 == expected_bytes {
                return Ok(bytes);
            }
        }
        Err(StoreError::Changed {
            url: url(),
            problem: format!("{expected_bytes} bytes were expected, {found_bytes} arrived"),
        })
    }
}
