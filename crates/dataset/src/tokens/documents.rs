//! Reads the documents of a dataset: the field of each record that has tokens, as ids of a vocabulary.

use std::{ops::Range, sync::Arc};

use futures::{Stream, TryStreamExt};
use spdl_shard::{
    format::{FieldValue, Record, ShardIndex},
    manifest::Manifest,
    store::DatasetStore,
};
use spdl_store::blocking;

use super::{TokenDocuments, TokenEncoding};
use crate::{
    DatasetError, Memory, MemoryBound,
    open_block::{BlockFields, OpenBlock, ReadBlock, open_blocks},
    slice,
};

/// Number of blocks that are read at once, if the bound on memory allows it.
const BLOCKS_AT_ONCE: usize = 8;
/// Bytes of memory for each byte that is read: what it becomes when it is decoded.
const MEMORY_FACTOR: u64 = 4;
/// Bytes of memory for each document besides, however short it is.
const DOCUMENT_BYTES: u64 = size_of::<usize>() as u64;

/// Returns the ids in the value of a field, or what is wrong with it, to follow the field's name.
pub type ReadTokens = Arc<dyn Fn(FieldValue) -> Result<Vec<u32>, String> + Send + Sync>;

/// How the documents of a dataset are read.
#[derive(Clone)]
pub(super) struct DocumentReader {
    /// Fields that can have a document's tokens; of each record, the first that it has.
    pub(super) from: Vec<String>,
    pub(super) read: ReadTokens,
    pub(super) encoding: TokenEncoding,
    /// The id that is put after each document that has tokens.
    pub(super) eos: Option<u32>,
}

/// Receives the ids of a document, or what is wrong with it, and what makes an error of what is wrong.
type EachOfBlock<'e> =
    dyn FnMut(Result<&[u32], String>, &dyn Fn(String) -> DatasetError) -> Result<(), DatasetError> + 'e;

/// The documents of a block.
pub(super) struct ReadDocuments {
    pub(super) documents: TokenDocuments,
    /// Number of bytes that were read.
    pub(super) bytes: u64,
    /// Memory that is held until they are written.
    _memory: Memory,
}

/// Reads all documents, in order, block by block. `at` is the folder of the manifest, and `shards` that of the shards.
pub(super) fn read_documents<'r>(
    at: &'r DatasetStore,
    shards: &'r DatasetStore,
    manifest: &'r Arc<Manifest>,
    reader: DocumentReader,
) -> impl Stream<Item = Result<ReadDocuments, DatasetError>> + 'r {
    let (reader, memory) = (Arc::new(reader), MemoryBound::new());
    let read = open_blocks(at, manifest).map_ok(move |block| {
        let (reader, memory) = (Arc::clone(&reader), memory.clone());
        async move {
            let ranges = block.ranges_of(|index, record| reader.field(index, record));
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let memory = memory.take(bytes * MEMORY_FACTOR + u64::from(block.block.records) * DOCUMENT_BYTES).await;
            let read = block.read(shards, ranges).await?;
            let bytes = read.bytes;
            let documents = blocking(move || reader.documents(&block, read)).await?;
            Ok(ReadDocuments { documents, bytes, _memory: memory })
        }
    });
    read.try_buffered(BLOCKS_AT_ONCE)
}

impl DocumentReader {
    /// Returns the number of the field with a record's tokens.
    pub(super) fn field(&self, index: &dyn ShardIndex, record: &Record<'_>) -> Option<u32> {
        self.from.iter().find_map(|name| index.field_number(record, name))
    }

    fn documents(&self, block: &OpenBlock, read: ReadBlock) -> Result<TokenDocuments, DatasetError> {
        let mut documents = self.encoding.documents();
        self.each(block, read, &mut |ids, named| {
            let pushed = ids.and_then(|ids| documents.push(ids));
            pushed.map_err(named)
        })?;
        Ok(documents)
    }

    /// Passes the ids of each document of a block to `each`, or what is wrong with it, and what makes an error of that.
    ///
    /// # Errors
    /// If the block cannot be decompressed; and the error of `each`.
    pub(super) fn each(
        &self,
        block: &OpenBlock,
        read: ReadBlock,
        each: &mut EachOfBlock<'_>,
    ) -> Result<(), DatasetError> {
        let read = block.decompressed(read)?;
        let slice = |range: Range<u64>| slice(&read.pieces, range);
        let decoded = block.decode(&read, &slice);
        let fields = BlockFields { index: &*block.index, slice: &slice, decoded: decoded.as_deref() };
        for number in block.records() {
            let record = block.index.record(number);
            let named = |problem: String| DatasetError::Document {
                shard: block.manifest.shard(block.block.shard).url.to_owned(),
                record: record.key.text().into_owned(),
                problem,
            };
            match self.ids(&fields, &record) {
                Ok((name, ids)) => each(Ok(&ids), &|problem| named(format!("field `{name}` {problem}")))?,
                Err(problem) => each(Err(problem), &named)?,
            }
        }
        Ok(())
    }

    /// Returns the ids of a record's document, and the name of their field; or what is wrong with it.
    fn ids<'f>(&self, fields: &BlockFields<'f>, record: &Record<'f>) -> Result<(&'f str, Vec<u32>), String> {
        let Some(field) = self.field(fields.index, record) else {
            let names: Vec<_> = record.fields().map(|field| field.name.to_owned()).collect();
            return Err(format!(
                "it has no field `{}`; it has {}: choose with --from",
                self.from.join("` or `"),
                names.join(", ")
            ));
        };
        let name = fields.index.field(record, field).name;
        let of_field = |problem: String| format!("field `{name}` {problem}");
        let value = fields.open(record, field).map_err(of_field)?;
        let value = value.ok_or_else(|| of_field("has no value".to_owned()))?;
        let mut ids = (self.read)(value).map_err(of_field)?;
        if !ids.is_empty() {
            ids.extend(self.eos);
        }
        Ok((name, ids))
    }
}
