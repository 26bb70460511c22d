//! The format of WebDataset tars: each shard is one object, and has a record index.

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use crate::{
    FormatError,
    format::{Format, ShardIndex, StoredObject, compressed},
    index::RecordIndex,
    manifest::Shard,
};

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
}

/// Returns whether a shard of this name is compressed.
#[must_use]
pub fn is_compressed(name: &str) -> bool {
    COMPRESSED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}
