//! The format of WebDataset tars: each shard is one object, and has a record index.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use spdl_types::Fingerprint;

use crate::{
    FormatError,
    dataset::{Catalog, DatasetError, Scan, ScannedShard, ShardResult},
    format::{
        Compression, Format, ShardIndex, StoredObject, compressed,
        read_shards::{ShardCatalog, read_shards},
    },
    index::RecordIndex,
    manifest::Shard,
};

/// Ending of the names of shards.
pub(crate) const TAR_SUFFIX: &str = ".tar";
/// Endings of the names of compressed shards.
const COMPRESSED_SUFFIXES: [&str; 4] = [".tar.gz", ".tgz", ".tar.zst", ".tar.zstd"];

/// WebDataset tars.
#[derive(Debug)]
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn object(&self, shard: &Shard<'_>) -> Option<StoredObject> {
        (!is_compressed(shard.url)).then(|| StoredObject::of_shard(shard))
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        compressed::open_index(bytes, expected, RecordIndex::open)
    }

    fn is_shard(&self, name: &str) -> bool {
        name.ends_with(TAR_SUFFIX) || is_compressed(name)
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        None
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let (boxes, temporary, key_end) =
            (scan.options.boxes.clone(), scan.temporary.clone(), scan.options.key_ends_at);
        let catalog = move |name: &str, block_bytes| {
            Catalog::new(name, boxes.as_deref(), block_bytes, &temporary).key_end(key_end)
        };
        read_shards(scan, compression, catalog)
    }
}

/// Returns whether a shard of this name is compressed.
fn is_compressed(name: &str) -> bool {
    COMPRESSED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns how a shard is compressed: its name states that it is, and its first bytes how.
fn compression(name: &str, first: &[u8]) -> Result<Option<Compression>, String> {
    if !is_compressed(name) {
        return Ok(None);
    }
    match first {
        [0x1f, 0x8b, ..] => Ok(Some(Compression::Gzip)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Some(Compression::Zstd)),
        _ => Err("is compressed neither with gzip nor with zstd, as its name says".to_owned()),
    }
}

impl ShardCatalog for Catalog {
    fn read(&mut self, chunk: &[u8]) -> Result<(), DatasetError> {
        Self::read(self, chunk)
    }

    fn record_count(&self) -> u32 {
        Self::record_count(self)
    }

    fn finish(self, etag: Option<String>) -> Result<ScannedShard, DatasetError> {
        Self::finish(self, etag)
    }
}
