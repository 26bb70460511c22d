//! Finds WebDataset tars, and reads each from end to end.

use futures::stream::BoxStream;
use spdl_shard::format::{
    Compression, Format,
    tar::{Tar, is_compressed},
};

use super::{
    FormatScan,
    read_shards::{ShardCatalog, read_shards},
};
use crate::{Catalog, DatasetError, Scan, ScannedShard, ShardResult, tar::TAR_SUFFIX};

/// Finds tars.
#[derive(Debug)]
pub(super) struct TarScan;

impl FormatScan for TarScan {
    fn format(&self) -> &'static dyn Format {
        &Tar
    }

    fn is_shard(&self, name: &str) -> bool {
        name.ends_with(TAR_SUFFIX) || is_compressed(name)
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        None
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["tar", "tgz"], "`spdl-ctl index` makes a dataset of WebDataset tars, as they are")
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
