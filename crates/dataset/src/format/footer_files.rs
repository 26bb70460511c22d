//! Makes the shards of a folder of files with a footer that states where their records lie. Only some parts of each
//! file are read.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::{
    format::{MadeIndex, ObjectRange, ObjectRole, StoredObject},
    index::IndexFile,
    manifest::ShardFacts,
    store::DatasetStore,
};
use spdl_store::{ListedObject, StoreError};

use crate::{DatasetError, DatasetOddities, Scan, ScannedShard, ShardResult};

/// Makes the indexes of files of one format.
pub(super) trait FileIndexer: Send + Sync {
    /// Makes the index of `file`, with blocks of about `block_bytes`, and notes what is odd about it.
    fn index(
        &self,
        file: &FooterFile,
        block_bytes: u64,
        odd: &mut DatasetOddities,
    ) -> impl Future<Output = Result<MadeIndex, DatasetError>> + Send;
}

/// A file that is being indexed.
pub(super) struct FooterFile {
    from: DatasetStore,
    object: StoredObject,
}

impl FooterFile {
    pub(super) fn new(from: &DatasetStore, listed: &ListedObject<'_>) -> Self {
        let (url, etag) = (listed.name.to_owned(), listed.etag.map(str::to_owned));
        let object = StoredObject { url, bytes: listed.bytes, etag, role: ObjectRole::File };
        Self { from: from.clone(), object }
    }

    /// Returns its path, relative to the dataset's folder.
    pub(super) fn path(&self) -> &str {
        &self.object.url
    }

    /// Returns its size in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.object.bytes
    }

    pub(super) async fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.from.read_range(&ObjectRange { object: self.object.clone(), at: range.start, range }).await
    }

    /// Returns the error for a file that has this problem.
    pub(super) fn wrong(&self, problem: String) -> DatasetError {
        DatasetError::Source { path: self.from.url_of(self.path()), problem }
    }
}

/// Indexes the files of a folder, some at once. Each is a shard.
pub(super) fn index_files<'s>(
    mut scan: Scan<'s>,
    indexer: impl FileIndexer + 's,
) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
    let folder = std::mem::take(&mut scan.folder);
    scan.meter.expect_bytes(folder.iter().map(|object| object.bytes).sum());
    let (from, meter, block_bytes, bad_shards) = (scan.from, scan.meter, scan.block_bytes, scan.bad_shards());
    let files = (0..folder.len()).map(move |number| FooterFile::new(from, &folder.get(number)));
    let (indexer, counts) = (Arc::new(indexer), meter.counts());
    let shards = stream::iter(files).map(move |file| {
        let (indexer, counts) = (Arc::clone(&indexer), Arc::clone(&counts));
        async move {
            let scanned = scanned(&*indexer, &file, block_bytes).await;
            if let Ok(shard) = &scanned {
                counts.add(1, shard.facts.records.into(), file.bytes());
            }
            bad_shards.result(file.path(), scanned)
        }
    });
    shards.buffered(scan.options.shards_at_once.max(1)).inspect_ok(move |_| meter.report()).boxed()
}

async fn scanned(
    indexer: &impl FileIndexer,
    file: &FooterFile,
    block_bytes: u64,
) -> Result<ScannedShard, DatasetError> {
    let mut odd = DatasetOddities::default();
    let made = indexer.index(file, block_bytes, &mut odd).await?;
    let MadeIndex { index, hash, records, bytes, blocks, fields } = made;
    for (name, having) in &fields {
        odd.shared_field(name, records, *having);
    }
    let (url, etag) = (file.path().to_owned(), file.from.lasting_etag(file.object.etag.clone()));
    let index = IndexFile::of(index, hash);
    let facts = ShardFacts { url, bytes, etag, records, index_bytes: index.bytes(), index_hash: hash };
    Ok(ScannedShard { facts, blocks, index, odd })
}
