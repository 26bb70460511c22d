//! Finds the shards of an MDS dataset, and reads their tables of samples.

use std::{collections::BTreeMap, io::Read as _, sync::Arc};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::{
    FormatError,
    format::{
        Compressed, Decompressor, MAX_COMPRESSED_SHARD_BYTES, ObjectRange, ObjectRole, StoredObject, mds::MdsFacts,
        seal_index,
    },
    index::IndexFile,
    manifest::{BlockFacts, ShardFacts},
    store::DatasetStore,
};

use super::index_json::{FileJson, INDEX_JSON, IndexJson, ShardJson, is_index};
use crate::{BlockCutter, DatasetError, DatasetOddities, Outline, Scan, ScannedShard, ShardResult};

/// Most bytes of an `index.json`.
const MAX_INDEX_JSON_BYTES: u64 = 1 << 30;
/// Number of shards whose tables are read at once.
const TABLES_AT_ONCE: usize = 16;
/// Bytes of a compressed shard that are read for its table of samples, at first; if they are too few, four times as many.
const FIRST_PART_BYTES: u64 = 64 << 10;

pub(super) fn scan(scan: Scan<'_>) -> BoxStream<'_, Result<ShardResult, DatasetError>> {
    shards(scan).into_stream().try_flatten().boxed()
}

/// Reads `index.json`, then the tables of its shards, in order.
async fn shards(mut scan: Scan<'_>) -> Result<BoxStream<'_, Result<ShardResult, DatasetError>>, DatasetError> {
    let folder = std::mem::take(&mut scan.folder);
    let listed: BTreeMap<&str, (u64, Option<&str>)> =
        folder.iter().map(|object| (object.name, (object.bytes, object.etag))).collect();
    find_index(scan.from, listed.keys().copied().filter(|name| is_index(name)).collect())?;
    let bytes = scan.from.read(INDEX_JSON, MAX_INDEX_JSON_BYTES).await?;
    let wrong = |problem| DatasetError::Source { path: scan.from.url_of(INDEX_JSON), problem };
    let index = IndexJson::read(&bytes).map_err(wrong)?;
    let listed = (!scan.is_chosen).then_some(listed);
    let mut sources = Vec::new();
    let mut bytes = 0;
    for shard in index.shards.into_iter().filter(|shard| shard.samples > 0) {
        let name = shard.raw_data.basename.clone();
        bytes += shard.raw_data.bytes;
        sources.push((name, MdsShardFile::of(shard, listed.as_ref(), scan.from).map_err(wrong)));
    }
    if sources.is_empty() {
        let problem = format!("`{INDEX_JSON}` lists no shard with samples");
        return Err(DatasetError::Nothing { origin: scan.from.url().to_owned(), problem });
    }
    scan.meter.expect_bytes(bytes);
    let (bad_shards, scan) = (scan.bad_shards(), Arc::new(scan));
    let tables = stream::iter(sources).map(move |(name, source)| {
        let scan = Arc::clone(&scan);
        async move {
            let scanned = match source {
                Ok(source) => source.scanned(&scan).await,
                Err(error) => Err(error),
            };
            if let Ok(shard) = &scanned {
                scan.meter.counts().add(1, shard.facts.records.into(), shard.facts.bytes);
                scan.meter.report();
            }
            bad_shards.result(&name, scanned)
        }
    });
    Ok(tables.buffered(TABLES_AT_ONCE).boxed())
}

/// Checks that the dataset has one list of shards, in its folder.
fn find_index(from: &DatasetStore, found: Vec<&str>) -> Result<(), DatasetError> {
    if found.contains(&INDEX_JSON) {
        return Ok(());
    }
    let problem = match &found[..] {
        [] => format!("`{INDEX_JSON}` is expected, as MosaicML Streaming writes it"),
        some => {
            let folders = some.iter().take(8).map(|path| format!("`{}`", path.trim_end_matches("/index.json")));
            let folders = folders.collect::<Vec<_>>().join(", ");
            format!(
                "it has no `{INDEX_JSON}` of its own; index one of these folders in it: {folders}, or join them with \
                 `streaming.base.util.merge_index`"
            )
        }
    };
    Err(DatasetError::Nothing { origin: from.url().to_owned(), problem })
}

/// A shard and the file that it is read from.
struct MdsShardFile {
    shard: ShardJson,
    is_compressed: bool,
    etag: Option<String>,
}

impl MdsShardFile {
    /// Chooses the file of a shard: the plain one if it is there.
    fn of(
        shard: ShardJson,
        listed: Option<&BTreeMap<&str, (u64, Option<&str>)>>,
        from: &DatasetStore,
    ) -> Result<Self, String> {
        let Some(listed) = listed else {
            let is_compressed = shard.zip_data.is_some();
            return Ok(Self { shard, is_compressed, etag: None });
        };
        let find = |file: &FileJson| listed.get(file.basename.as_str()).map(|found| (file.bytes, *found));
        let (plain, zip) = (find(&shard.raw_data), shard.zip_data.as_ref().and_then(find));
        let is_compressed = plain.is_none();
        if let Some((indexed, (bytes, etag))) = plain.or(zip) {
            if bytes != indexed {
                let name = &shard.file(is_compressed).basename;
                return Err(format!("has {indexed} bytes for `{name}`, which has {bytes}: copy it again"));
            }
            let etag = from.lasting_etag(etag.map(str::to_owned));
            return Ok(Self { shard, is_compressed, etag });
        }
        let file = shard.file(true);
        Err(format!("lists `{}`, which is not there: copy it from where the dataset was made", file.basename))
    }

    /// Returns the file that is read.
    fn object(&self) -> StoredObject {
        let file = self.shard.file(self.is_compressed);
        let (url, etag) = (file.basename.clone(), self.etag.clone());
        StoredObject { url, bytes: file.bytes, etag, role: ObjectRole::File }
    }

    async fn scanned(&self, scan: &Scan<'_>) -> Result<ScannedShard, DatasetError> {
        let (shard, object) = (&self.shard, self.object());
        let shard_bytes = shard.raw_data.bytes;
        let wrong = |problem: String| DatasetError::Source { path: scan.from.url_of(&object.url), problem };
        let table_bytes = 4 * (u64::from(shard.samples) + 2);
        let compressed = self.compressed();
        let table = match &compressed {
            _ if table_bytes > shard_bytes => return Err(wrong("is shorter than its table of samples".to_owned())),
            None => part(scan.from, &object, table_bytes).await?,
            Some(compressed) if object.bytes.max(shard_bytes) > MAX_COMPRESSED_SHARD_BYTES => {
                let name = compressed.compression.name();
                return Err(wrong(format!(
                    "is a shard of more than 1 GiB, compressed with {name}: it would have to be in memory as a whole"
                )));
            }
            Some(compressed) => first_bytes(scan.from, &object, compressed, table_bytes).await?.map_err(wrong)?,
        };
        let numbers: Vec<u32> =
            table.chunks_exact(4).map(|number| u32::from_le_bytes(*number.first_chunk().expect("4 bytes"))).collect();
        if numbers[0] != shard.samples {
            return Err(wrong(format!("has {} samples, and `{INDEX_JSON}` lists {}", numbers[0], shard.samples)));
        }
        let offsets = &numbers[1..];
        if u64::from(offsets[0]) < table_bytes || u64::from(*offsets.last().expect("two at least")) != shard_bytes {
            return Err(wrong("has a table of samples that does not fit it".to_owned()));
        }
        self.facts(scan, compressed.as_ref(), offsets)
            .map_err(|source| DatasetError::Unwritable { url: object.url, source })
    }

    /// Makes the index of a shard whose samples begin at `offsets`, and its entries in the manifest.
    fn facts(
        &self,
        scan: &Scan<'_>,
        compressed: Option<&Compressed>,
        offsets: &[u32],
    ) -> Result<ScannedShard, FormatError> {
        let (shard, object) = (&self.shard, self.object());
        let shard_bytes = shard.raw_data.bytes;
        let columns = shard.columns();
        let raw = &shard.raw_data.basename;
        let prefix = format!("{}/", raw.strip_suffix(".mds").unwrap_or(raw));
        let checksum = shard.raw_data.checksum();
        let facts = MdsFacts { shard_bytes, offsets, columns: &columns, prefix: &prefix, checksum };
        let (index, index_hash) = facts.index()?;
        let mut index = IndexFile::of(index, index_hash);
        if let Some(compressed) = compressed {
            index = seal_index(compressed, index)?;
        }
        let samples = shard.samples;
        let blocks = match compressed {
            Some(_) => vec![whole_shard(shard_bytes, offsets[0], samples)?],
            None => {
                let mut blocks = BlockCutter::new(scan.block_bytes);
                for (sample, range) in (0..).zip(offsets.windows(2)) {
                    blocks.record(sample, range[0].into(), range[1].into(), 1);
                }
                blocks.finish().expect("the shard has less than 4 GiB")
            }
        };
        let mut odd = DatasetOddities::default();
        for (name, ..) in &columns {
            odd.shared_field(name, samples, Some(samples.into()));
        }
        for column in shard.pickles() {
            odd.note(|| format!("column `{column}` holds pickled Python objects, which are never read"));
        }
        let outline = |number: u32| Outline { key: format!("{prefix}{number:06}"), fields: Vec::new() };
        odd.end(outline(0));
        odd.end(outline(samples - 1));
        let StoredObject { url, etag, .. } = object;
        let (index_bytes, index_hash) = (index.bytes(), index.hash());
        let facts = ShardFacts { url, bytes: shard_bytes, etag, records: samples, index_bytes, index_hash };
        Ok(ScannedShard { facts, blocks, index, odd })
    }

    fn compressed(&self) -> Option<Compressed> {
        let file = self.shard.zip_data.as_ref().filter(|_| self.is_compressed)?;
        Some(Compressed {
            compression: self.shard.compression().expect("checked when the list was read"),
            object_bytes: file.bytes,
            shard_bytes: self.shard.raw_data.bytes,
            checksum: file.checksum(),
        })
    }
}

/// Returns the block that is all samples of a shard.
fn whole_shard(shard_bytes: u64, start: u32, samples: u32) -> Result<BlockFacts, FormatError> {
    let bytes = u32::try_from(shard_bytes - u64::from(start));
    let bytes = bytes.map_err(|_| FormatError::Unwritable("it has 4 GiB or more".to_owned()))?;
    Ok(BlockFacts { offset: start.into(), bytes, first_record: 0, records: samples, samples })
}

/// Reads the first `bytes` of an object.
async fn part(from: &DatasetStore, object: &StoredObject, bytes: u64) -> Result<Bytes, DatasetError> {
    Ok(from.read_range(&ObjectRange { object: object.clone(), range: 0..bytes.min(object.bytes), at: 0 }).await?)
}

/// Reads the first `wanted` bytes of a compressed object, decompressed. The inner error is what is wrong with the
/// object.
async fn first_bytes(
    from: &DatasetStore,
    object: &StoredObject,
    compressed: &Compressed,
    wanted: u64,
) -> Result<Result<Bytes, String>, DatasetError> {
    let mut bytes = FIRST_PART_BYTES;
    loop {
        let piece = part(from, object, bytes).await?;
        let is_all = bytes >= object.bytes;
        if is_all {
            let shard = compressed.decompress(&[piece]);
            return Ok(shard
                .map(|shard| shard.slice(..wanted as usize))
                .map_err(|error| format!("is damaged: {error}")));
        }
        let mut table = Vec::new();
        if let Ok(decompressor) = Decompressor::new(compressed.compression, &*piece) {
            // A stream that is cut off ends with an error, behind the bytes that could be read.
            let _ = decompressor.take(wanted).read_to_end(&mut table);
        }
        if table.len() as u64 == wanted {
            return Ok(Ok(table.into()));
        }
        bytes *= 4;
    }
}
