//! Measures the documents of a dataset and packs them into sequences of tokens, with bounded memory.
//!
//! The result is kept with the manifest as `sequences-FINGERPRINT.spdl`, where workers read it as they read views.

use std::{ops::Range, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream::FuturesOrdered};
use spdl_order::view::SampleSet;
use spdl_sequence::{PoolCutter, SequenceError, SequenceFill, SequenceParams, TokenPool};
use spdl_shard::{
    format::{FieldValue, Record, ShardIndex, token_index::TOKENS},
    manifest::Manifest,
    sequences::{CountedPool, LearnedTokens, LengthsAt, MadeSequences, SequenceTable, SequenceTableBuilder},
    store::DatasetStore,
};
use spdl_store::{StoreError, blocking};

use crate::{
    DatasetError, DatasetProgress, MemoryBound, Undecided,
    open_block::{BlockFields, OpenBlock, ReadBlock, names_of, open_blocks},
    slice,
    view::add_limit,
};

/// Number of blocks that are read and measured at once, if the bound on memory allows it.
const BLOCKS_AT_ONCE: usize = 8;
/// Bytes of memory for each byte that is read: what it becomes when it is decoded.
const MEMORY_FACTOR: u64 = 4;

/// Returns the number of tokens in the value of a field, or what is wrong with it, to follow the field's name.
pub type CountTokens = Arc<dyn Fn(&FieldValue) -> Result<u64, String> + Send + Sync>;

/// Returns how many labels of each piece of a document are learned, by its mask and its number of tokens, or what is wrong with the mask,
/// to follow the name of its field.
pub type CountLearned = Arc<dyn Fn(&FieldValue, u32) -> Result<Vec<u32>, String> + Send + Sync>;

/// The masks of documents, which say which tokens are learned.
#[derive(Clone)]
pub struct LossRequest {
    /// The field that has them.
    pub from: String,
    /// Counts the tokens that are learned.
    pub count: CountLearned,
}

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
    /// The masks of documents, if they have some.
    pub loss: Option<LossRequest>,
}

/// The result of packing a dataset.
#[derive(Clone, Debug)]
pub struct EvaluatedSequences {
    /// The table of pools, with its file.
    pub made: MadeSequences,
    /// The same, opened.
    pub table: SequenceTable,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Documents that are left out because they cannot be read.
    pub unread: Undecided,
    /// The first document with tokens of which none is learned: its shard and its record.
    pub first_unlearned: Option<String>,
    /// Documents that are longer than a sequence.
    pub long: LongDocuments,
}

/// Documents that are longer than a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongDocuments {
    /// Their number.
    pub documents: u64,
    /// Tokens of the longest, with those that it gets.
    pub longest: u64,
    /// The first: its shard and its record.
    pub first: Option<String>,
}

/// The documents of a block.
#[derive(Default)]
struct BlockDocuments {
    /// Tokens of each, in the order of samples.
    lengths: Vec<u32>,
    /// Tokens of each piece that are learned, if documents have masks.
    learned: Vec<u32>,
    all_learned: LearnedTokens,
    first_unlearned: Option<String>,
    long: LongDocuments,
    unread: u64,
    first_unread: Option<DatasetError>,
    bytes: u64,
    records: u32,
}

/// Counts the tokens of all documents, and packs them. `at` is the folder of the manifest. Of formats whose indexes know how long
/// a document is, no token is read; of the others, the fields of `from`. Masks are read.
///
/// # Errors
/// If the dataset cannot be read, more documents than allowed cannot be read, or the documents make no sequence.
pub async fn evaluate_sequences(
    at: &DatasetStore,
    manifest: &Manifest,
    request: SequenceRequest,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<EvaluatedSequences, DatasetError> {
    evaluate(at, manifest, (request, LengthsAt::Table), progress).await
}

/// As [`evaluate_sequences`], for those who read the indexes of shards as fast as a table: lengths that the indexes know are not in it.
///
/// # Errors
/// Those of [`evaluate_sequences`].
pub async fn evaluate_pools(
    at: &DatasetStore,
    manifest: &Manifest,
    request: SequenceRequest,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<EvaluatedSequences, DatasetError> {
    let lengths = request.lengths_at(at, manifest).await?;
    evaluate(at, manifest, (request, lengths), progress).await
}

async fn evaluate(
    at: &DatasetStore,
    manifest: &Manifest,
    (request, lengths): (SequenceRequest, LengthsAt),
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
            if let Some(name) = request.known_field(&block) {
                let name = name.to_owned();
                return Ok(blocking(move || request.of_lengths(&block, &name)).await);
            }
            let ranges = block.ranges_of(|index, record| request.fields_to_read(&block, index, record));
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let _memory = memory.take(bytes * MEMORY_FACTOR).await;
            let read = block.read(shards, ranges).await?;
            blocking(move || request.measure(&block, read)).await
        }
    });
    let mut measured = std::pin::pin!(measured.try_buffered(BLOCKS_AT_ONCE));
    let mut packing = FuturesOrdered::new();
    let has_masks = request.loss.is_some();
    let pack = |(pool, learned): (TokenPool, Vec<u32>)| {
        blocking(move || {
            let fill = pool.count(&params)?;
            Ok(CountedPool::new(pool, fill, has_masks.then_some(learned)))
        })
    };
    let mut tally = SequenceTally { table: SequenceTableBuilder::new(lengths), has_masks, ..SequenceTally::default() };
    if lengths == LengthsAt::Table {
        tally.table.reserve(request.documents_of(manifest), manifest.block_count());
    }
    let mut learned = Vec::new();
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) * 2;
    while let Some(block) = measured.try_next().await? {
        tally.unread.records += block.unread;
        if let Some(error) = block.first_unread {
            if tally.unread.records > request.unread_allowed {
                return Err(beyond(error, request.unread_allowed));
            }
            tally.unread.first.get_or_insert_with(|| error.to_string());
        }
        tally.long.add(block.long);
        tally.bytes += block.bytes;
        tally.records += u64::from(block.records);
        if tally.has_masks {
            tally.table.add_learned(block.all_learned);
            tally.first_unlearned = tally.first_unlearned.or(block.first_unlearned);
            learned.extend(block.learned);
        }
        if let Some(pool) = cutter.push(&block.lengths).map_err(sequence)? {
            packing.push_back(pack((pool, std::mem::take(&mut learned))));
        }
        while packing.len() >= at_once {
            let packed = packing.next().await.expect("some are packed");
            tally.table.push(packed.map_err(sequence)?);
        }
        let (records, bytes, total_records) = (tally.records, tally.bytes, Some(manifest.records()));
        progress(DatasetProgress { records, bytes, total_records, ..DatasetProgress::default() });
    }
    packing.extend(cutter.finish().map(|pool| pack((pool, learned))));
    while let Some(packed) = packing.next().await {
        tally.table.push(packed.map_err(sequence)?);
    }
    let SequenceTally { table, unread, bytes, first_unlearned, long, .. } = tally;
    let wrong =
        |source| StoreError::Format { url: at.manifest_url(manifest), source: spdl_store::ContentError::from(source) };
    let made = table.finish().map_err(wrong)?;
    let table = SequenceTable::of_memory(&made, manifest, request.view.clone()).map_err(wrong)?;
    if table.fill().sequences == 0 {
        return Err(DatasetError::Sequence { problem: no_sequence(table.fill(), &params) });
    }
    Ok(EvaluatedSequences { made, table, bytes, unread, first_unlearned, long })
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
    has_masks: bool,
    first_unlearned: Option<String>,
    long: LongDocuments,
}

impl LongDocuments {
    /// Adds those of the next block.
    fn add(&mut self, others: Self) {
        self.documents += others.documents;
        self.longest = self.longest.max(others.longest);
        self.first = self.first.take().or(others.first);
    }
}

impl SequenceRequest {
    /// Returns the number of documents.
    #[must_use]
    pub fn documents_of(&self, manifest: &Manifest) -> u64 {
        self.view.as_ref().map_or_else(|| manifest.samples(), |view| view.len())
    }

    /// Returns where the lengths of documents can be read. All shards have one format, whose indexes know them or not.
    async fn lengths_at(&self, at: &DatasetStore, manifest: &Manifest) -> Result<LengthsAt, DatasetError> {
        if self.view.is_some() || self.loss.is_some() || self.from != [TOKENS] || manifest.samples() == 0 {
            return Ok(LengthsAt::Table);
        }
        let first = manifest.block(0);
        let index = at.index(&manifest.shard(first.shard)).await?;
        let lengths = index.array_lengths(first.first_record..first.first_record + first.records.min(1), TOKENS);
        Ok(if lengths.is_some() { LengthsAt::Indexes } else { LengthsAt::Table })
    }

    /// Returns how many of a record's samples are documents.
    fn documents(&self, block: &OpenBlock, record: &Record<'_>) -> u64 {
        block.kept(record, self.view.as_deref())
    }

    /// Returns the number of the field with a record's tokens.
    fn field(&self, index: &dyn ShardIndex, record: &Record<'_>) -> Option<u32> {
        self.from.iter().find_map(|name| index.field_number(record, name))
    }

    /// Returns the fields of a record that have to be read to know how many tokens it has, and how many are learned.
    fn fields_to_read(
        &self,
        block: &OpenBlock,
        index: &dyn ShardIndex,
        record: &Record<'_>,
    ) -> impl Iterator<Item = u32> + use<> {
        let is_columnar = block.manifest.format().is_columnar();
        let is_document = is_columnar || self.documents(block, record) > 0;
        let tokens = self.field(index, record).filter(|field| index.array_length(record, *field).is_none());
        let mask = self.loss.as_ref().and_then(|loss| index.field_number(record, &loss.from));
        [tokens, mask].into_iter().flatten().filter(move |_| is_document)
    }

    /// Returns the field with the tokens of all records of a block, if the index knows how many there are, and nothing else is asked for.
    fn known_field(&self, block: &OpenBlock) -> Option<&str> {
        let (index, first) = (&*block.index, block.block.first_record);
        let has_other_samples = index.sample_count() != index.record_count();
        if self.view.is_some() || self.loss.is_some() || has_other_samples || block.records().is_empty() {
            return None;
        }
        let record = index.record(first);
        let name = self.from.iter().find(|name| index.field_number(&record, name).is_some())?;
        index.array_lengths(first..first + 1, name).map(|_| name.as_str())
    }

    /// Measures the documents of a block whose index knows the lengths of this field.
    fn of_lengths(&self, block: &OpenBlock, name: &str) -> BlockDocuments {
        let lengths = block.index.array_lengths(block.records(), name).expect("it knows that of the first record");
        let mut found = BlockDocuments { records: block.block.records, ..BlockDocuments::default() };
        let is_long = |length: u32| self.params.all_tokens(length) > u64::from(self.params.seq_len);
        // In most blocks none is.
        if lengths.iter().copied().max().is_some_and(is_long) {
            for (number, length) in block.records().zip(lengths.iter().copied()).filter(|(_, length)| is_long(*length))
            {
                found.long.add(LongDocuments { documents: 1, longest: self.params.all_tokens(length), first: None });
                found.long.first.get_or_insert_with(|| block.place_of(&block.index.record(number)));
            }
        }
        BlockDocuments { lengths, ..found }
    }

    fn measure(&self, block: &OpenBlock, read: ReadBlock) -> Result<BlockDocuments, DatasetError> {
        let read = block.decompressed(read)?;
        let slice = |range: Range<u64>| slice(&read.pieces, range);
        let decoded = block.decode(&read, &slice);
        let fields = BlockFields { index: &*block.index, slice: &slice, decoded: decoded.as_deref() };
        let (records, bytes) = (block.block.records, read.bytes);
        let mut found = BlockDocuments { bytes, records, ..BlockDocuments::default() };
        for number in block.records() {
            let record = block.index.record(number);
            let documents = self.documents(block, &record);
            if documents == 0 {
                continue;
            }
            let place = || (block.manifest.shard(block.block.shard).url.to_owned(), record.key.text().into_owned());
            let named = || block.place_of(&record);
            let measured = self.length(&fields, &record).and_then(|length| {
                let learned = self.loss.as_ref().map_or(Ok(Vec::new()), |loss| loss.learned(&fields, &record, length));
                Ok((length, learned?))
            });
            let (length, learned) = measured.unwrap_or_else(|problem| {
                found.unread += documents;
                found.first_unread.get_or_insert_with(|| {
                    let (shard, record) = place();
                    DatasetError::Undecided { shard, record, problem }
                });
                (0, Vec::new())
            });
            let of_document = learned.iter().copied().map(u64::from).sum::<u64>();
            found.all_learned.tokens += of_document * documents;
            if of_document == 0 && !learned.is_empty() {
                found.all_learned.unlearned_documents += documents;
                found.first_unlearned.get_or_insert_with(named);
            }
            let tokens = self.params.all_tokens(length);
            if tokens > u64::from(self.params.seq_len) {
                found.long.add(LongDocuments { documents, longest: tokens, first: None });
                found.long.first.get_or_insert_with(named);
            }
            for _ in 0..documents {
                found.lengths.push(length);
                found.learned.extend_from_slice(&learned);
            }
        }
        Ok(found)
    }

    /// Returns the number of a record's tokens.
    fn length(&self, fields: &BlockFields<'_>, record: &Record<'_>) -> Result<u32, String> {
        let Some(field) = self.field(fields.index, record) else {
            return Err(format!("it has no field `{}`; it has {}", self.from.join("` or `"), names_of(record)));
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

impl LossRequest {
    /// Returns how many labels of each piece of a document are learned. `length` is the number of its tokens.
    fn learned(&self, fields: &BlockFields<'_>, record: &Record<'_>, length: u32) -> Result<Vec<u32>, String> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let name = &self.from;
        let missing = || format!("it has no field `{name}`, which `loss_from` names; it has {}", names_of(record));
        let field = fields.index.field_number(record, name).ok_or_else(missing)?;
        let value = fields.open(record, field).map_err(|problem| format!("field `{name}` {problem}"))?;
        let value = value.ok_or_else(|| format!("field `{name}` has no value"))?;
        (self.count)(&value, length).map_err(|problem| format!("field `{name}`: {problem}"))
    }
}
