//! Measures the documents of a dataset and packs them into sequences of tokens, with bounded memory.
//!
//! The result is kept with the manifest as `sequences-FINGERPRINT.spdl`, where workers read it as they read views.

use std::{ops::Range, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream::FuturesOrdered};
use spdl_order::{DatasetFacts, view::SampleSet};
use spdl_sequence::{PoolCutter, SequenceError, SequenceFill, SequenceParams, TokenPool};
use spdl_shard::{
    format::{FieldValue, Record, ShardIndex},
    manifest::Manifest,
    sequences::{MadeSequences, SequenceTable, SequenceTableBuilder},
    store::DatasetStore,
    view::view_facts,
};
use spdl_store::{StoreError, blocking};
use spdl_types::SampleId;

use crate::{
    DatasetError, DatasetProgress, MemoryBound, Undecided,
    open_block::{BlockFields, OpenBlock, ReadBlock, open_blocks},
    slice,
    view::add_limit,
};

/// Number of blocks that are read and measured at once, if the bound on memory allows it.
const BLOCKS_AT_ONCE: usize = 8;
/// Bytes of memory for each byte that is read: what it becomes when it is decoded.
const MEMORY_FACTOR: u64 = 4;

/// Returns the number of tokens in the value of a field, or what is wrong with it, to follow the field's name.
pub type CountTokens = Arc<dyn Fn(&FieldValue) -> Result<u64, String> + Send + Sync>;

/// What is packed, and how.
#[derive(Clone)]
pub struct SequenceRequest {
    /// Fields that can have a document's tokens; of each record, the first that it has.
    pub from: Vec<String>,
    /// How documents become sequences.
    pub params: SequenceParams,
    /// Tokens at which a pool is closed.
    pub pool_tokens: u64,
    /// The samples that are documents; `None` for all.
    pub view: Option<Arc<SampleSet>>,
    /// Number of documents that may be left out because they cannot be read.
    pub unread_allowed: u64,
    /// Counts the tokens of formats whose indexes do not know it.
    pub count: CountTokens,
}

/// The result of packing a dataset.
#[derive(Clone, Debug)]
pub struct EvaluatedSequences {
    /// The table of pools, with its file.
    pub made: MadeSequences,
    /// The same, opened.
    pub table: SequenceTable,
    /// The facts that creating a job needs: samples are sequences, and blocks are pools.
    pub facts: DatasetFacts,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Documents that are left out because they cannot be read.
    pub unread: Undecided,
}

/// The documents of a block.
struct BlockDocuments {
    /// Tokens of each, in the order of samples.
    lengths: Vec<u32>,
    unread: u64,
    first_unread: Option<DatasetError>,
    bytes: u64,
    records: u32,
}

/// Counts the tokens of all documents, and packs them. `at` is the folder of the manifest. Of formats whose indexes know how long
/// a document is, no token is read; of the others, the fields of `from`.
///
/// # Errors
/// If the dataset cannot be read, more documents than allowed cannot be read, or the documents make no sequence.
pub async fn evaluate_sequences(
    at: &DatasetStore,
    manifest: &Manifest,
    request: SequenceRequest,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<EvaluatedSequences, DatasetError> {
    let request = Arc::new(request);
    let SequenceRequest { params, pool_tokens, .. } = *request;
    let sequence = |error: SequenceError| DatasetError::Sequence { problem: error.to_string() };
    let mut cutter = PoolCutter::new(params, pool_tokens).map_err(sequence)?;
    let (shards, shared, memory) = (at.shards(manifest)?, Arc::new(manifest.clone()), MemoryBound::new());
    let (shards, memory) = (&shards, &memory);
    let measured = open_blocks(at, &shared).map_ok(|block| {
        let request = request.clone();
        async move {
            let ranges = block.ranges_of(|index, record| request.field_to_read(&block, index, record));
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let _memory = memory.take(bytes * MEMORY_FACTOR).await;
            let read = block.read(shards, ranges).await?;
            blocking(move || request.measure(&block, read)).await
        }
    });
    let mut measured = std::pin::pin!(measured.try_buffered(BLOCKS_AT_ONCE));
    let mut packing = FuturesOrdered::new();
    let pack = |pool: TokenPool| blocking(move || (pool.count(&params), pool));
    let mut tally = SequenceTally::default();
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) * 2;
    while let Some(block) = measured.try_next().await? {
        tally.unread.records += block.unread;
        if let Some(error) = block.first_unread {
            if tally.unread.records > request.unread_allowed {
                return Err(beyond(error, request.unread_allowed));
            }
            tally.unread.first.get_or_insert_with(|| error.to_string());
        }
        tally.bytes += block.bytes;
        tally.records += u64::from(block.records);
        if let Some(pool) = cutter.push(&block.lengths).map_err(sequence)? {
            packing.push_back(pack(pool));
        }
        while packing.len() >= at_once {
            let packed = packing.next().await.expect("some are packed");
            tally.add(packed).map_err(sequence)?;
        }
        let (records, bytes, total_records) = (tally.records, tally.bytes, Some(manifest.records()));
        progress(DatasetProgress { records, bytes, total_records, ..DatasetProgress::default() });
    }
    packing.extend(cutter.finish().map(pack));
    while let Some(packed) = packing.next().await {
        tally.add(packed).map_err(sequence)?;
    }
    let SequenceTally { table, unread, bytes, .. } = tally;
    let wrong =
        |source| StoreError::Format { url: at.manifest_url(manifest), source: spdl_store::ContentError::from(source) };
    let made = table.finish().map_err(wrong)?;
    let table = SequenceTable::of_memory(&made, manifest, request.view.as_deref()).map_err(wrong)?;
    if table.fill().sequences == 0 {
        return Err(DatasetError::Sequence { problem: no_sequence(table.fill(), &params) });
    }
    let facts = request.view.as_ref().map_or_else(|| manifest.facts(), |set| view_facts(manifest, set));
    let facts = table.facts(facts);
    Ok(EvaluatedSequences { made, table, facts, bytes, unread })
}

/// Returns the error for a document beyond the `allowed` ones that may be left out.
fn beyond(mut error: DatasetError, allowed: u64) -> DatasetError {
    if let DatasetError::Undecided { problem, .. } = &mut error {
        add_limit(problem, "the packing", allowed);
    }
    error
}

/// Says why documents make no sequence.
fn no_sequence(fill: SequenceFill, params: &SequenceParams) -> String {
    let SequenceFill { documents, empty_documents, lost_documents, lost_tokens, .. } = fill;
    format!(
        "makes no sequence of {} tokens: of {documents} documents {empty_documents} are empty, and {lost_documents} with \
         {lost_tokens} tokens are left out; see `seq_len` and `long`",
        params.seq_len
    )
}

/// Adds up pools, in order.
#[derive(Default)]
struct SequenceTally {
    table: SequenceTableBuilder,
    unread: Undecided,
    bytes: u64,
    records: u64,
}

impl SequenceTally {
    fn add(&mut self, (fill, pool): (Result<SequenceFill, SequenceError>, TokenPool)) -> Result<(), SequenceError> {
        self.table.push(&pool, fill?);
        Ok(())
    }
}

impl SequenceRequest {
    /// Returns the samples of a record that are documents, as global numbers.
    fn documents(&self, block: &OpenBlock, record: &Record<'_>) -> u64 {
        let first = block.manifest.shard(block.block.shard).first_sample + u64::from(record.first_sample);
        let Range { start, end } = first..first + u64::from(record.samples);
        self.view.as_ref().map_or(end - start, |set| set.below(SampleId(end)) - set.below(SampleId(start)))
    }

    /// Returns the number of the field with a record's tokens.
    fn field(&self, index: &dyn ShardIndex, record: &Record<'_>) -> Option<u32> {
        self.from.iter().find_map(|name| index.field_number(record, name))
    }

    /// Returns the field of a record that has to be read to know how many tokens it has.
    fn field_to_read(&self, block: &OpenBlock, index: &dyn ShardIndex, record: &Record<'_>) -> Option<u32> {
        let is_columnar = block.manifest.format().is_columnar();
        let is_document = is_columnar || self.documents(block, record) > 0;
        let field = self.field(index, record).filter(|_| is_document)?;
        index.array_length(record, field).is_none().then_some(field)
    }

    fn measure(&self, block: &OpenBlock, read: ReadBlock) -> Result<BlockDocuments, DatasetError> {
        let read = block.decompressed(read)?;
        let slice = |range: Range<u64>| slice(&read.pieces, range);
        let decoded = block.decode(&read, &slice);
        let fields = BlockFields { index: &*block.index, slice: &slice, decoded: decoded.as_deref() };
        let (records, bytes) = (block.block.records, read.bytes);
        let mut found = BlockDocuments { lengths: Vec::new(), unread: 0, first_unread: None, bytes, records };
        for number in block.records() {
            let record = block.index.record(number);
            let documents = self.documents(block, &record);
            if documents == 0 {
                continue;
            }
            let length = self.length(&fields, &record).unwrap_or_else(|problem| {
                found.unread += documents;
                found.first_unread.get_or_insert_with(|| {
                    let shard = block.manifest.shard(block.block.shard).url.to_owned();
                    DatasetError::Undecided { shard, record: record.key.text().into_owned(), problem }
                });
                0
            });
            found.lengths.extend((0..documents).map(|_| length));
        }
        Ok(found)
    }

    /// Returns the number of a record's tokens.
    fn length(&self, fields: &BlockFields<'_>, record: &Record<'_>) -> Result<u32, String> {
        let Some(field) = self.field(fields.index, record) else {
            let names: Vec<_> = record.fields().map(|field| field.name.to_owned()).collect();
            return Err(format!("it has no field `{}`; it has {}", self.from.join("` or `"), names.join(", ")));
        };
        let name = fields.index.field(record, field).name;
        let of_field = |problem: String| format!("field `{name}` {problem}");
        let length = match fields.index.array_length(record, field) {
            Some(length) => length,
            None => {
                let value = fields.open(record, field).map_err(of_field)?;
                let value = value.ok_or_else(|| of_field("has no value".to_owned()))?;
                (self.count)(&value).map_err(|problem| format!("field `{name}`: {problem}"))?
            }
        };
        u32::try_from(length).map_err(|_| of_field(format!("has {length} tokens; a document has fewer than 2^32")))
    }
}
