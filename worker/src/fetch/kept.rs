//! A store whose long objects are kept in the cache on disk, in the ranges in which they are read: a manifest of a million
//! shards is not read from the store again when a worker starts.
//!
//! The store is still asked for the object first. Only ranges of an object with the size and etag in its answer come
//! from the disk.

use std::{collections::HashSet, fmt, mem, ops::Range, sync::Arc};

use futures::{FutureExt, StreamExt};
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result, path::Path,
};
use parking_lot::Mutex;
use spdl_feed::cache::BlockKey;
use spdl_store::{StoreLayer, blocking};
use spdl_types::Fingerprint;

use super::{disk::DiskCache, pieces::Pieces};

/// Ranges are numbered by where they begin, in units of this many bytes.
const KEPT_UNIT: u64 = 1 << 20;

/// Keeps ranges of objects of `inner` on disk. One object is read at a time.
#[derive(Debug)]
pub(crate) struct KeptRanges {
    inner: Arc<dyn ObjectStore>,
    /// URL of the dataset that is read.
    dataset: Arc<str>,
    disk: Arc<DiskCache>,
    object: Mutex<Option<KeptStoreObject>>,
}

/// The object that was asked for last. Its ranges are in use in the cache, as a dataset of their own.
#[derive(Debug)]
struct KeptStoreObject {
    /// As the store describes it.
    meta: ObjectMeta,
    key: Fingerprint,
    disk: Arc<DiskCache>,
    /// The ranges that were read or written.
    ranges: HashSet<BlockKey>,
}

impl KeptStoreObject {
    fn new(dataset: &str, meta: &ObjectMeta, disk: &Arc<DiskCache>) -> Self {
        let ObjectMeta { location, size, e_tag, .. } = meta;
        let name = format!("{dataset}\n{location}\n{size}\n{}", e_tag.as_deref().unwrap_or_default());
        let key = Fingerprint::of(name.as_bytes());
        disk.enter(key);
        Self { meta: meta.clone(), key, disk: disk.clone(), ranges: HashSet::new() }
    }
}

impl Drop for KeptStoreObject {
    fn drop(&mut self) {
        self.disk.leave(self.key);
    }
}

impl fmt::Display for KeptRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptRanges({})", self.inner)
    }
}

impl KeptRanges {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, dataset: &Arc<str>, disk: &Arc<DiskCache>) -> Self {
        Self { inner, dataset: dataset.clone(), disk: disk.clone(), object: Mutex::default() }
    }

    /// Removes what was read, because the object that it makes is damaged.
    pub(crate) async fn discard(&self) {
        let ranges = self.object.lock().as_mut().map(|object| mem::take(&mut object.ranges));
        let disk = self.disk.clone();
        blocking(move || ranges.iter().flatten().for_each(|key| disk.discard(key))).await;
    }

    /// Returns the object that is asked for, and the range of it and its key in the cache; `None` if the cache cannot know
    /// which bytes these are.
    fn known(&self, location: &Path, options: &GetOptions) -> Option<(ObjectMeta, Range<u64>, BlockKey)> {
        let (Some(GetRange::Bounded(range)), Some(etag)) = (&options.range, &options.if_match) else { return None };
        let mut object = self.object.lock();
        let object = object.as_mut().filter(|object| object.meta.location == *location)?;
        // A weak etag is not asked for.
        if object.meta.e_tag.as_ref() != Some(etag) {
            return None;
        }
        let key = BlockKey { dataset: object.key, block: u32::try_from(range.start / KEPT_UNIT).ok()? };
        object.ranges.insert(key);
        Some((object.meta.clone(), range.clone(), key))
    }
}

#[async_trait::async_trait]
impl StoreLayer for KeptRanges {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some((meta, range, key)) = self.known(location, &options) else {
            let answer = self.inner.get_opts(location, options).await?;
            *self.object.lock() = Some(KeptStoreObject::new(&self.dataset, &answer.meta, &self.disk));
            return Ok(answer);
        };
        let (disk, parts) = (self.disk.clone(), [range.clone()]);
        let discards = disk.discards(&key);
        if let Some(bytes) = blocking(move || disk.read(&key, &parts)).await.and_then(|kept| kept.slice(range.clone()))
        {
            let payload = GetResultPayload::Stream(async { Ok(bytes) }.into_stream().boxed());
            let (attributes, extensions) = Default::default();
            return Ok(GetResult { payload, meta, range, attributes, extensions });
        }
        let answer = self.inner.get_opts(location, options).await?;
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let (attributes, extensions) = (answer.attributes.clone(), answer.extensions.clone());
        let bytes = answer.bytes().await?;
        if bytes.len() as u64 != range.end - range.start {
            let problem = format!("{} bytes of {location} arrived of {range:?}", bytes.len());
            return Err(Error::Generic { store: "kept", source: problem.into() });
        }
        let (disk, parts) = (self.disk.clone(), [range.clone()]);
        let pieces = Pieces::new(vec![(range.start, bytes.clone())]);
        blocking(move || disk.write(&key, &parts, &pieces, discards)).await;
        let payload = GetResultPayload::Stream(async { Ok(bytes) }.into_stream().boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}
