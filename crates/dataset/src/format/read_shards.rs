//! Reads shards from end to end, several at once, and catalogues their records. Compressed shards are decompressed on
//! the way.

use std::{
    io::{self, BufRead, Read},
    sync::Arc,
};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::ObjectMeta;
use spdl_pipeline::{Op, Pipeline};
use spdl_shard::{
    format::{Compressed, Compression, Decompressor, MAX_COMPRESSED_SHARD_BYTES, seal_index},
    store::DatasetStore,
};
use spdl_store::StoreError;
use tokio::runtime::Handle;

use crate::{DatasetError, Memory, MemoryBound, RunningStages, Scan, ScanCounts, ScannedShard, ShardResult};

/// Number of parts of one shard that are read at once.
const PARTS_AT_ONCE: usize = 2;
/// Bytes that are decompressed at once.
const DECOMPRESSED_BYTES: usize = 256 << 10;

/// Catalogues the records of a shard while its bytes pass.
pub(super) trait ShardCatalog: Sized {
    /// Adds the records in the shard's next bytes.
    fn read(&mut self, chunk: &[u8]) -> Result<(), DatasetError>;

    /// Returns the number of records that are complete so far.
    fn record_count(&self) -> u32;

    /// Finishes the shard, whose object has `etag`.
    fn finish(self, etag: Option<String>) -> Result<ScannedShard, DatasetError>;
}

/// A function that returns how an object is compressed, from its name and its first bytes, or what is wrong with it.
pub(super) type CompressionOf = fn(&str, &[u8]) -> Result<Option<Compression>, String>;

/// Reads the shards of a folder. `catalog` makes the catalogue of a shard, from the shard's name and the size at which
/// it cuts blocks.
pub(super) fn read_shards<'s, C: ShardCatalog + 'static>(
    mut scan: Scan<'s>,
    compression: CompressionOf,
    catalog: impl Fn(&str, u64) -> C + Send + Sync + 'static,
) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
    let folder = std::mem::take(&mut scan.folder);
    scan.meter.expect_bytes(folder.iter().map(|object| object.bytes).sum());
    let reader = ShardScanner {
        from: DatasetStore::clone(scan.from),
        runtime: Handle::current(),
        block_bytes: scan.block_bytes,
        memory: MemoryBound::new(),
        counts: scan.meter.counts(),
        compression,
        catalog,
    };
    let shards = (0..folder.len()).map({
        let from = scan.from.clone();
        move |number| {
            let object = folder.get(number);
            (object.name.to_owned(), object.meta(&from))
        }
    });
    let bad_shards = scan.bad_shards();
    let catalogue = move |(name, meta): (String, ObjectMeta)| bad_shards.result(&name, reader.shard(&name, &meta));
    let plan = Pipeline::builder()
        .source(shards)
        .pipe("catalogue", Op::blocking(catalogue), scan.options.shards_at_once.max(1))
        .sink(1);
    let meter = scan.meter;
    let shards = RunningStages::start(plan).map(|stages| stages.into_stream(|_| meter.report()));
    stream::iter([shards]).try_flatten().boxed()
}

/// Reads shards and notes where the fields of their records are.
struct ShardScanner<F> {
    from: DatasetStore,
    runtime: Handle,
    block_bytes: u64,
    /// Bounds the parts of all shards.
    memory: MemoryBound,
    counts: Arc<ScanCounts>,
    compression: CompressionOf,
    catalog: F,
}

impl<C: ShardCatalog, F: Fn(&str, u64) -> C> ShardScanner<F> {
    fn shard(&self, name: &str, meta: &ObjectMeta) -> Result<ScannedShard, DatasetError> {
        let etag = self.from.lasting_etag(meta.e_tag.clone());
        let mut object = ObjectReader::new(self, name, meta);
        let compression = (self.compression)(name, object.first()?);
        let wrong = |problem| DatasetError::Source { path: self.from.url_of(name), problem };
        let Some(compression) = compression.map_err(wrong)? else {
            let mut catalog = (self.catalog)(name, self.block_bytes);
            while let Some(chunk) = object.next()? {
                self.read(&mut catalog, &chunk, chunk.len() as u64)?;
            }
            return self.finish(catalog, etag);
        };
        // The whole shard is one block.
        let mut catalog = (self.catalog)(name, u64::MAX);
        let shard_bytes = self.decompress(&mut object, compression, &mut catalog, &wrong)?;
        let mut shard = self.finish(catalog, etag)?;
        let object = Compressed { compression, object_bytes: meta.size, shard_bytes, checksum: None };
        shard.index = seal_index(&object, shard.index)?;
        (shard.facts.index_bytes, shard.facts.index_hash) = (shard.index.bytes(), shard.index.hash());
        Ok(shard)
    }

    /// Decompresses an object into its catalogue; returns the decompressed size.
    fn decompress(
        &self,
        object: &mut ObjectReader<'_>,
        compression: Compression,
        catalog: &mut C,
        wrong: &dyn Fn(String) -> DatasetError,
    ) -> Result<u64, DatasetError> {
        let (mut buffer, mut bytes, mut counted) = (vec![0; DECOMPRESSED_BYTES], 0, 0);
        let size = object.bytes;
        let mut decompressor =
            Decompressor::new(compression, &mut *object).map_err(|error| wrong(error.to_string()))?;
        loop {
            let read = match decompressor.read(&mut buffer) {
                Ok(read) => read,
                Err(error) => {
                    drop(decompressor);
                    let problem = format!("does not decompress with {}: {error}", compression.name());
                    return Err(object.error.take().map_or_else(|| wrong(problem), DatasetError::from));
                }
            };
            bytes += read as u64;
            if bytes.max(size) > MAX_COMPRESSED_SHARD_BYTES {
                let name = compression.name();
                let problem = format!(
                    "is compressed with {name} and has more than 1 GiB: it would have to be in memory as a whole; divide it, or \
                     decompress it"
                );
                return Err(wrong(problem));
            }
            if read == 0 {
                return Ok(bytes);
            }
            // Progress counts the bytes of objects, not the decompressed ones.
            let done = size.min(bytes);
            self.read(catalog, &buffer[..read], done - counted)?;
            counted = done;
        }
    }

    /// Adds a chunk to the catalogue and counts the `bytes` of the object that were read for it.
    fn read(&self, catalog: &mut C, chunk: &[u8], bytes: u64) -> Result<(), DatasetError> {
        let before = catalog.record_count();
        catalog.read(chunk)?;
        self.counts.add(0, u64::from(catalog.record_count() - before), bytes);
        Ok(())
    }

    fn finish(&self, catalog: C, etag: Option<String>) -> Result<ScannedShard, DatasetError> {
        let before = catalog.record_count();
        let shard = catalog.finish(etag)?;
        self.counts.add(1, u64::from(shard.facts.records - before), 0);
        Ok(shard)
    }
}

/// The bytes of an object, in order.
struct ObjectReader<'r> {
    runtime: &'r Handle,
    chunks: BoxStream<'r, Result<(Bytes, Memory), StoreError>>,
    /// The chunk that is being read, and its memory.
    chunk: Option<(Bytes, Memory)>,
    /// The error of the store that ended the reading.
    error: Option<StoreError>,
    bytes: u64,
}

impl<'r> ObjectReader<'r> {
    fn new<F>(reader: &'r ShardScanner<F>, name: &'r str, meta: &'r ObjectMeta) -> Self {
        let (from, memory) = (&reader.from, &reader.memory);
        let parts = stream::iter(spdl_store::split(0..meta.size)).map(move |part| async move {
            let memory = memory.take(part.end - part.start).await;
            Ok::<_, StoreError>((from.read_part(name, meta, part).await?, memory))
        });
        let chunks = parts.buffered(PARTS_AT_ONCE).boxed();
        Self { runtime: &reader.runtime, chunks, chunk: None, error: None, bytes: meta.size }
    }

    /// Returns the first bytes of the object.
    fn first(&mut self) -> Result<&[u8], StoreError> {
        if self.chunk.is_none() {
            self.chunk = self.runtime.block_on(self.chunks.try_next())?;
        }
        Ok(self.chunk.as_ref().map_or(&[], |(chunk, _)| chunk))
    }

    /// Returns the next bytes of the object; `None` at its end.
    fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.first()?;
        Ok(self.chunk.take().map(|(chunk, _memory)| chunk))
    }
}

impl Read for ObjectReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for ObjectReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.as_ref().is_some_and(|(chunk, _)| chunk.is_empty()) {
            self.chunk = None;
        }
        if let Err(error) = self.first() {
            self.error = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(self.chunk.as_ref().map_or(&[], |(chunk, _)| chunk))
    }

    fn consume(&mut self, bytes: usize) {
        if let Some((chunk, _)) = &mut self.chunk {
            let _ = chunk.split_to(bytes);
        }
    }
}
