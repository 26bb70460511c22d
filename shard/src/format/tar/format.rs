//! The format of WebDataset tars: each shard is one object, with a record index beside it.

use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "store")]
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
#[cfg(feature = "store")]
use object_store::ObjectMeta;
use spdl_core::Fingerprint;
#[cfg(feature = "store")]
use spdl_pipeline::{Op, Pipeline};
#[cfg(feature = "store")]
use tokio::runtime::Handle;

use crate::{
    FormatError,
    format::{Format, ShardIndex},
    index::RecordIndex,
};
#[cfg(feature = "store")]
use crate::{
    dataset::{Catalog, DatasetError, Listing, MemoryBound, RunningStages, Scan, ScanCounts, ScannedShard},
    store::{self, DatasetStore, StoreError},
};

/// Ending of the names of shards.
#[cfg(feature = "store")]
pub(crate) const TAR_SUFFIX: &str = ".tar";

/// Number of parts of one shard that are read at once.
#[cfg(feature = "store")]
const PARTS_AT_ONCE: usize = 2;

/// WebDataset tars.
#[derive(Debug)]
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(RecordIndex::open(bytes, expected)?))
    }

    #[cfg(feature = "store")]
    fn recognises(&self, folder: &Listing) -> bool {
        folder.iter().any(|object| object.name.ends_with(TAR_SUFFIX))
    }

    #[cfg(feature = "store")]
    fn scan<'s>(&self, mut scan: Scan<'s>) -> BoxStream<'s, Result<ScannedShard, DatasetError>> {
        let mut folder = std::mem::take(&mut scan.folder);
        if !scan.is_chosen {
            folder.retain(|object| object.name.ends_with(TAR_SUFFIX));
        }
        scan.meter.expect_bytes(folder.iter().map(|object| object.bytes).sum());
        let (runtime, scanner) = (Handle::current(), Scanner::of(&scan));
        let shards = (0..folder.len()).map({
            let from = scan.from.clone();
            move |number| {
                let object = folder.get(number);
                (object.name.to_owned(), object.meta(&from))
            }
        });
        let catalogue = move |(name, meta): (String, ObjectMeta)| runtime.block_on(scanner.shard(&name, meta));
        let plan = Pipeline::builder()
            .source(shards)
            .pipe("catalogue", Op::blocking(catalogue), scan.options.shards_at_once.max(1))
            .sink(1);
        let meter = scan.meter;
        let shards = RunningStages::start(plan).map(|stages| stages.into_stream(|_| meter.report()));
        stream::iter([shards]).try_flatten().boxed()
    }
}

/// Reads shards and notes where the fields of their records are.
#[cfg(feature = "store")]
struct Scanner {
    from: DatasetStore,
    boxes: Option<String>,
    block_bytes: u64,
    /// Bounds the parts of all shards.
    memory: MemoryBound,
    counts: Arc<ScanCounts>,
}

#[cfg(feature = "store")]
impl Scanner {
    fn of(scan: &Scan<'_>) -> Self {
        let Scan { from, options, block_bytes, meter, .. } = scan;
        Self {
            from: DatasetStore::clone(from),
            boxes: options.boxes.clone(),
            block_bytes: *block_bytes,
            memory: MemoryBound::new(),
            counts: meter.counts(),
        }
    }

    async fn shard(&self, name: &str, meta: ObjectMeta) -> Result<ScannedShard, DatasetError> {
        let etag = self.from.lasting_etag(meta.e_tag.clone());
        let mut catalog = Catalog::new(name, self.boxes.as_deref(), self.block_bytes);
        let meta = &meta;
        let parts = stream::iter(store::split(0..meta.size)).map(|part| async move {
            let memory = self.memory.take(part.end - part.start).await;
            Ok::<_, StoreError>((self.from.read_part(name, meta, part).await?, memory))
        });
        let mut chunks = std::pin::pin!(parts.buffered(PARTS_AT_ONCE));
        while let Some((chunk, _memory)) = chunks.try_next().await? {
            let before = catalog.record_count();
            catalog.read(&chunk)?;
            self.counts.add(0, u64::from(catalog.record_count() - before), chunk.len() as u64);
        }
        let before = catalog.record_count();
        let shard = catalog.finish(etag)?;
        self.counts.add(1, u64::from(shard.facts.records - before), 0);
        Ok(shard)
    }
}
