//! The format of WebDataset tars: each shard is one object, with a record index beside it.

use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "store")]
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
#[cfg(feature = "store")]
use object_store::ObjectMeta;
use spdl_core::Fingerprint;

#[cfg(feature = "store")]
use crate::dataset::{Catalog, DatasetError, Listing, Scan, ScannedShard};
use crate::{
    FormatError,
    format::{Format, ShardIndex},
    index::RecordIndex,
};

/// Ending of the names of shards.
#[cfg(feature = "store")]
pub(crate) const TAR_SUFFIX: &str = ".tar";

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
        let shards_at_once = scan.options.shards_at_once.max(1);
        let scan = Arc::new(scan);
        stream::iter(0..folder.len())
            .map(move |number| {
                let object = folder.get(number);
                catalogue(scan.clone(), object.name.to_owned(), object.meta(scan.from))
            })
            .buffered(shards_at_once)
            .boxed()
    }
}

/// Reads a shard and notes where the fields of its records are.
#[cfg(feature = "store")]
async fn catalogue(scan: Arc<Scan<'_>>, name: String, meta: ObjectMeta) -> Result<ScannedShard, DatasetError> {
    let Scan { from, options, meter, .. } = &*scan;
    let etag = from.lasting_etag(meta.e_tag.clone());
    let mut catalog = Catalog::new(&name, options.boxes.as_deref(), scan.block_bytes);
    let mut chunks = std::pin::pin!(from.stream(&name, meta));
    while let Some(chunk) = chunks.try_next().await? {
        let before = catalog.record_count();
        catalog.read(&chunk)?;
        meter.add(0, u64::from(catalog.record_count() - before), chunk.len() as u64);
    }
    let before = catalog.record_count();
    let shard = catalog.finish(etag)?;
    meter.add(1, u64::from(shard.facts.records - before), 0);
    Ok(shard)
}
