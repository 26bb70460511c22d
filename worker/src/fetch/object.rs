//! Reads byte ranges of shards in parallel parts, and refuses an object that has changed since it was indexed.

use std::{ops::Range, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use object_store::{GetOptions, GetRange, ObjectStore, path::Path};
use spdl_shard::format::StoredObject;
use spdl_store::WantsFile;

use super::{
    client::StoreClient,
    error::FetchError,
    joined::{PartBytes, PartCollector, PartPlace, PartPlaces},
    pieces::{MERGE_GAP_BYTES, Pieces},
    place::ShardSource,
    request::{RequestError, StoreRequest},
};

/// A range longer than this is read in parts of about this size, in bytes. When raised, one slow connection delays more
/// bytes.
const PART_BYTES: u64 = 4 << 20;
/// Parts of one block are read at once up to this many bytes, but at least one and at most [`MAX_PARTS_AT_ONCE`].
const BYTES_AT_ONCE: u64 = 4 * PART_BYTES;
/// Maximum number of parts of one block that are read at once.
const MAX_PARTS_AT_ONCE: usize = 64;

/// An object that holds bytes of a shard, and where to read it.
#[derive(Clone, Debug)]
pub struct ShardObject {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// URL of the dataset, by which outages are reported.
    pub dataset: Arc<str>,
    /// Path in the store.
    pub path: Path,
    /// The object as it was indexed.
    pub object: StoredObject,
    /// The folder of the shards and the URL of their manifest, for errors; `None` if the shards lie beside the
    /// manifest.
    pub base: Option<Arc<ShardsBase>>,
}

/// The folder of shards that do not lie beside their manifest.
#[derive(Debug)]
pub struct ShardsBase {
    /// URL of the folder.
    pub url: String,
    /// URL of the manifest.
    pub manifest: String,
}

/// A range of an object to read, and the place of its bytes in the shard.
pub(crate) struct ObjectRead {
    pub(crate) object: Arc<ShardObject>,
    pub(crate) range: Range<u64>,
    pub(crate) at: u64,
}

impl ShardSource for ShardObject {
    fn url(&self) -> &str {
        &self.object.url
    }

    fn merge_gap_bytes(&self) -> u64 {
        MERGE_GAP_BYTES
    }

    fn read<'r>(
        &'r self,
        ranges: &'r [Range<u64>],
        requests: &'r StoreClient,
    ) -> BoxFuture<'r, Result<Pieces, FetchError>> {
        let object = Arc::new(self.clone());
        let read = |range: &Range<u64>| ObjectRead { object: object.clone(), range: range.clone(), at: range.start };
        read_all(ranges.iter().map(read).collect(), requests).boxed()
    }
}

/// Makes `reads`, each in parts, in the order of the shard's bytes.
pub(crate) async fn read_all(reads: Vec<ObjectRead>, requests: &StoreClient) -> Result<Pieces, FetchError> {
    let part_bytes = reads.iter().map(|read| (read.range.end - read.range.start).min(PART_BYTES)).max();
    let at_once = usize::try_from(BYTES_AT_ONCE / part_bytes.unwrap_or(1).max(1)).unwrap_or(MAX_PARTS_AT_ONCE);
    let parts = reads.into_iter().flat_map(|ObjectRead { object, range, at }| {
        let (start, whole) = (range.start, at..at + (range.end - range.start));
        parts(range, PART_BYTES).map(move |part| (object.clone(), whole.clone(), at + (part.start - start), part))
    });
    let mut places = PartPlaces::new(requests.memory.clone());
    let reads = parts.map(move |(object, whole, at, part)| {
        let place = places.next(&whole, at..at + (part.end - part.start));
        async move {
            let bytes = object.read_part(part, place.as_ref(), requests).await?;
            Ok((at, bytes, place))
        }
    });
    let mut reads = stream::iter(reads).buffered(at_once.clamp(1, MAX_PARTS_AT_ONCE));
    let mut collected = PartCollector::default();
    while let Some((at, part, place)) = reads.try_next().await? {
        collected.add(at, part, place);
    }
    Ok(collected.finish())
}

impl ShardObject {
    /// Returns the etag in the manifest and the etag in the store if they differ, as texts.
    pub(crate) fn difference(&self, requests: &StoreClient) -> Option<[String; 2]> {
        let etags = requests.other_etag(&self.dataset, &self.path)?;
        Some(etags.map(|etag| format!("etag {etag}")))
    }

    /// Returns the object's name for errors: its path in the dataset's folder, or its URL and its manifest's.
    pub(crate) fn name(&self) -> String {
        let path = &self.object.url;
        match self.base.as_deref() {
            Some(ShardsBase { url, manifest }) => format!("`{url}/{path}`, where `{manifest}` has it,"),
            None => format!("`{path}`"),
        }
    }

    async fn read_part(
        &self,
        part: Range<u64>,
        place: Option<&PartPlace>,
        requests: &StoreClient,
    ) -> Result<PartBytes, FetchError> {
        let mut options = GetOptions { range: Some(GetRange::Bounded(part)), ..GetOptions::default() };
        if place.is_some() {
            options.extensions.insert(WantsFile);
        }
        let request = StoreRequest {
            store: &*self.store,
            dataset: &self.dataset,
            path: &self.path,
            expected: Some(&self.object),
            options: &options,
            place,
            given_up: 0,
        };
        let (shard, role) = (|| self.name(), self.object.role);
        match requests.get(request).await {
            Ok(got) => Ok(got.bytes.expect("a range is taken whole")),
            Err(RequestError::Changed { expected, actual }) => {
                Err(FetchError::Changed { shard: shard(), role, expected, actual })
            }
            Err(RequestError::Refused(source)) => {
                Err(FetchError::Refused { shard: shard(), role, source: Arc::new(source) })
            }
            Err(RequestError::Later { .. }) => unreachable!("what may do better is tried again"),
        }
    }
}

/// Divides `range` into parts of nearly equal size, of at most `part_bytes` each.
fn parts(range: Range<u64>, part_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let bytes = range.end - range.start;
    let count = bytes.div_ceil(part_bytes);
    (0..count).map(move |part| range.start + bytes * part / count..range.start + bytes * (part + 1) / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_without_gap_or_overlap() {
        for bytes in [0, 1, 9, 10, 11, 99, 100, 101] {
            let parts: Vec<_> = parts(7..7 + bytes, 10).collect();
            assert!(parts.iter().all(|part| (1..=10).contains(&(part.end - part.start))), "{parts:?}");
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            assert_eq!(parts.iter().map(|part| part.end - part.start).sum::<u64>(), bytes);
        }
    }
}
