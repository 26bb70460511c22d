//! Finds WebDataset tars, and reads each from end to end. A table can say more of their members.

use std::sync::Arc;

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::format::{
    Compression, Format,
    tar::{Tar, is_compressed},
};

use super::{
    FormatScan,
    members::MemberTable,
    read_shards::{ShardCatalog, read_shards},
};
use crate::{Catalog, DatasetError, FileTable, Scan, ScannedShard, ShardResult, tar::TAR_SUFFIX};

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

    fn takes_table(&self) -> bool {
        true
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        None
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["tar", "tgz"], "`spdl-ctl index` makes a dataset of WebDataset tars, as they are")
    }

    fn scan<'s>(&self, mut scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let (boxes, temporary) = (scan.options.boxes.clone(), scan.temporary.clone());
        let table = match scan.options.table.clone().map(|table| with_members(&mut scan, table)).transpose() {
            Ok(table) => table,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let key_end = scan.options.key_ends_at.or(scan.options.table.as_ref().and_then(|table| table.key_end()));
        let catalog = {
            let table = table.clone();
            move |name: &str, block_bytes| {
                let catalog = Catalog::new(name, boxes.as_deref(), block_bytes, &temporary).key_end(key_end);
                let catalog = catalog.table(table.clone());
                // Of a compressed tar, a worker reads all.
                if is_compressed(name) { catalog } else { catalog.packet_tables(&temporary) }
            }
        };
        let shards = read_shards(scan, compression, catalog);
        let check = move || table.and_then(|table| table.check().err()).map(Err);
        shards.chain(stream::once(async { stream::iter(check()) }).flatten()).boxed()
    }
}

/// Returns what a table says of the members of the tars in a scan, which keeps those that the table is about.
fn with_members(scan: &mut Scan<'_>, table: Arc<FileTable>) -> Result<Arc<MemberTable>, DatasetError> {
    if let Some(start) = table.names_of_tars() {
        scan.folder.retain(|object| object.name.rsplit('/').next().is_some_and(|name| name.starts_with(start)));
        if scan.folder.is_empty() {
            let problem = format!("tars called `{start}*.tar` are expected, with the sounds of the cuts");
            return Err(DatasetError::Nothing { origin: scan.from.url().to_owned(), problem });
        }
    }
    MemberTable::new(scan, table).map(Arc::new)
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
