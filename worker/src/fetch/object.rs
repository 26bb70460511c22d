//! Reads byte ranges of one shard in parallel parts, and refuses an object that is not the one in the manifest.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, ObjectStore, path::Path};

use super::{
    FetchError,
    attempt::{Expected, RequestError, RequestTarget},
    client::StoreClient,
    pieces::Pieces,
};

/// A range longer than this is read in parts of about this size, in bytes. When raised, one slow connection delays more
/// bytes.
const PART_BYTES: u64 = 4 << 20;
/// Maximum number of parts that are read at once.
const PARTS_AT_ONCE: usize = 4;

/// A shard as the manifest describes it, and where to read it.
#[derive(Clone, Debug)]
pub struct ShardObject {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// URL of the dataset, by which outages are reported.
    pub dataset: Arc<str>,
    /// Path in the store.
    pub path: Path,
    /// URL of the shard as written in the manifest, for errors.
    pub url: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The etag in the manifest, if it has one; a copy may have another.
    pub etag: Option<String>,
}

impl ShardObject {
    /// Returns how the object differs from the manifest apart from its bytes: what the manifest says, and what the
    /// store says.
    pub(crate) fn difference(&self, requests: &StoreClient) -> Option<[String; 2]> {
        let etags = requests.other_etag(&self.dataset, &self.path)?;
        Some(etags.map(|etag| format!("etag {etag}")))
    }

    /// Reads `ranges`, each in parts.
    pub(crate) async fn read(&self, ranges: &[Range<u64>], requests: &StoreClient) -> Result<Pieces, FetchError> {
        let parts: Vec<Range<u64>> = ranges.iter().flat_map(|range| parts(range.clone(), PART_BYTES)).collect();
        let reads = parts
            .into_iter()
            .map(|part| async { Ok::<_, FetchError>((part.start, self.read_part(part, requests).await?)) });
        let pieces: Vec<(u64, Bytes)> = stream::iter(reads).buffered(PARTS_AT_ONCE).try_collect().await?;
        Ok(Pieces::new(pieces))
    }

    async fn read_part(&self, part: Range<u64>, requests: &StoreClient) -> Result<Bytes, FetchError> {
        let expected = Expected { bytes: self.bytes, etag: self.etag.as_deref() };
        let (store, dataset, path) = (&*self.store, &self.dataset, &self.path);
        let target = RequestTarget { store, dataset, path, expected: Some(expected) };
        let options = GetOptions { range: Some(GetRange::Bounded(part)), ..GetOptions::default() };
        let shard = || self.url.clone();
        match requests.get(&target, &options).await {
            Ok(got) => {
                if let Some(etags) = target.other_etag(&got.meta) {
                    requests.note_other_etag(&target, etags);
                }
                Ok(got.bytes.expect("a range is taken whole"))
            }
            Err(RequestError::Changed { expected, actual }) => {
                Err(FetchError::Changed { shard: shard(), expected, actual })
            }
            Err(RequestError::Refused(source)) => Err(FetchError::Refused { shard: shard(), source: Arc::new(source) }),
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
