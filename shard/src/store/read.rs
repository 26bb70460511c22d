//! Reads whole objects: small ones with one request, long ones in parallel ranges that arrive in order.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStoreExt};

use super::{DatasetStore, StoreError};
use crate::{FormatError, format::ObjectRange};

/// Size of the ranges in which objects are read, in bytes.
pub(crate) const RANGE_BYTES: u64 = 8 << 20;
/// Number of ranges of one object that are fetched at once. Each takes the memory of one range.
const RANGES_AT_ONCE: usize = 4;

/// Divides a range of an object into the ranges in which it is read, in order.
pub(crate) fn split(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let Range { start, end } = range;
    let count = end.saturating_sub(start).div_ceil(RANGE_BYTES);
    (0..count).map(move |part| start + part * RANGE_BYTES).map(move |at| at..(at + RANGE_BYTES).min(end))
}

impl DatasetStore {
    /// Reads all of `relative`, which may have at most `limit_bytes`.
    pub(crate) async fn read(&self, relative: &str, limit_bytes: u64) -> Result<Bytes, StoreError> {
        self.read_when(relative, limit_bytes, |_, _| Ok(())).await
    }

    /// Reads all of `relative`, which may have at most `limit_bytes`. If the object is longer than one range,
    /// `begins_well` checks its first bytes, and gets its total size, before the rest is read.
    pub(crate) async fn read_when(
        &self,
        relative: &str,
        limit_bytes: u64,
        begins_well: impl FnOnce(&[u8], u64) -> Result<(), FormatError>,
    ) -> Result<Bytes, StoreError> {
        let path = self.path_of(relative);
        let answer = self.object.get(&path).await.map_err(|source| StoreError::of(&self.url_of(relative), source))?;
        let bytes = answer.meta.size;
        if bytes > limit_bytes {
            return Err(StoreError::TooLarge { url: self.url_of(relative), bytes, limit_bytes });
        }
        if bytes <= RANGE_BYTES {
            return self.body(relative, answer, bytes).await;
        }
        let meta = answer.meta;
        let mut ranges = std::pin::pin!(self.stream(relative, meta));
        let first = ranges.try_next().await?.unwrap_or_default();
        begins_well(&first, bytes).map_err(|source| StoreError::Format { url: self.url_of(relative), source })?;
        let mut all = BytesMut::with_capacity(usize::try_from(bytes).expect("the limit fits into memory"));
        all.extend_from_slice(&first);
        drop(first);
        while let Some(range) = ranges.try_next().await? {
            all.extend_from_slice(&range);
        }
        Ok(all.freeze())
    }

    /// Streams all of `relative`, which `meta` describes, as chunks in order. Memory is bounded by a few ranges.
    pub(crate) fn stream<'a>(
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

    /// Reads a range of `relative`, which `meta` describes; all of it if it is no longer than one range.
    pub(crate) async fn read_part(
        &self,
        relative: &str,
        meta: &ObjectMeta,
        part: Range<u64>,
    ) -> Result<Bytes, StoreError> {
        // A web server may support neither ranges nor preconditions; a short object needs no range.
        let range = (meta.size > RANGE_BYTES).then_some(GetRange::Bounded(part.clone()));
        let if_match = meta.e_tag.clone().filter(|etag| !etag.starts_with("W/"));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let answer = self.object.get_opts(&meta.location, options).await;
        let answer = answer.map_err(|source| StoreError::of(&self.url_of(relative), source))?;
        self.body(relative, answer, part.end - part.start).await
    }

    /// Reads a range of an object, and checks that the object has not changed since it was indexed.
    pub(crate) async fn read_range(&self, part: &ObjectRange) -> Result<Bytes, StoreError> {
        let ObjectRange { object, range, .. } = part;
        let url = || self.url_of(&object.url);
        // A web server may support no ranges.
        let bounds = (*range != (0..object.bytes)).then_some(GetRange::Bounded(range.clone()));
        let options = GetOptions { range: bounds, ..GetOptions::default() };
        let answer = self.object.get_opts(&self.path_of(&object.url), options).await;
        let answer = answer.map_err(|source| StoreError::of(&url(), source))?;
        if let Some([indexed, found]) = object.change(answer.meta.size, answer.meta.e_tag.as_deref()) {
            let problem = format!("{indexed} when it was indexed, {found} in the store");
            return Err(StoreError::Changed { url: url(), problem });
        }
        self.body(&object.url, answer, range.end - range.start).await
    }

    async fn body(&self, relative: &str, answer: GetResult, expected_bytes: u64) -> Result<Bytes, StoreError> {
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
