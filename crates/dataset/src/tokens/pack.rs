//! Packs the documents of a dataset into Megatron's files, in their order or shuffled, and makes a dataset of these.

use std::sync::Arc;

use futures::{Stream, TryStreamExt};
use spdl_shard::{
    manifest::{DEFAULT_BLOCK_BYTES, Manifest, TokenizerFacts},
    store::DatasetStore,
};
use spdl_store::{TemporaryError, blocking};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    ReadTokens, TokenBuildOptions, TokenDocuments, TokenEncoding, TokenShardWriter,
    begin::begin_tokens,
    documents::{DocumentReader, ReadDocuments, read_documents},
    writer::remove_shard,
};
use crate::{
    DEFAULT_SHARD_BYTES, DatasetError, DatasetProgress, DatasetReport, IndexOptions, Overwrite, PackOrder, ShardList,
    index::index_as,
    replace::{NotCommitted, remove_unfinished},
    sorter::{SortedItem, SortedItems, Sorter},
};

/// Memory in which documents are sorted, in bytes; the others are in a temporary file.
const SORT_BYTES: usize = 32 << 20;
/// Bytes of documents that are read back at once.
const READ_BACK_BYTES: usize = 4 << 20;

/// How the documents of a dataset are packed.
#[derive(Clone)]
pub struct TokenPackOptions {
    /// Fields that can have a document's tokens; of each record, the first that it has.
    pub from: Vec<String>,
    /// Reads the ids of formats of all kinds.
    pub read: ReadTokens,
    /// How ids are stored.
    pub encoding: TokenEncoding,
    /// The id that is put after each document that has tokens. Default: nothing is added.
    pub eos: Option<u32>,
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// Order of the documents. Default: shuffled with seed 0.
    pub order: PackOrder,
    /// Size at which a `.bin` is closed, in bytes. Default: 256 MiB.
    pub shard_bytes: u64,
    /// Number of documents at which a pair is closed. Default: no limit but the size.
    pub shard_records: Option<u32>,
    /// Size at which blocks are cut, in bytes; as in [`PackOptions`](crate::PackOptions). Default: 8 MiB.
    pub block_bytes: u64,
    /// What happens if something exists where the files should go. [`Overwrite::Replace`] removes what a killed run left, and replaces no
    /// dataset. Default: refuse.
    pub overwrite: Overwrite,
}

impl TokenPackOptions {
    /// Returns the defaults for documents in the first of these fields that a record has.
    #[must_use]
    pub fn new(from: Vec<String>, read: ReadTokens, encoding: TokenEncoding) -> Self {
        Self {
            from,
            read,
            encoding,
            eos: None,
            name: None,
            order: PackOrder::Shuffled { seed: 0 },
            shard_bytes: DEFAULT_SHARD_BYTES,
            shard_records: None,
            block_bytes: DEFAULT_BLOCK_BYTES,
            overwrite: Overwrite::Refuse,
        }
    }

    /// Returns how a part of the same dataset is made by so many threads.
    #[must_use]
    pub fn building(&self, threads: usize) -> TokenBuildOptions {
        let Self { encoding, name, order, shard_bytes, block_bytes, overwrite, .. } = self;
        let (name, order, encoding) = (name.clone(), *order, *encoding);
        let (shard_bytes, block_bytes, overwrite) = (*shard_bytes, *block_bytes, *overwrite);
        let of_encoding = TokenBuildOptions::new(encoding);
        TokenBuildOptions { name, order, shard_bytes, block_bytes, overwrite, threads, ..of_encoding }
    }

    /// Returns how documents are read.
    ///
    /// # Errors
    /// If they are to end with an id that is not in the vocabulary.
    pub(super) fn reader(&self) -> Result<DocumentReader, DatasetError> {
        let Self { from, read, encoding, eos, .. } = self;
        if let Some(eos) = eos.filter(|eos| *eos >= encoding.vocab()) {
            let problem = format!("is {eos}, and `vocab` is {}: ids are below that", encoding.vocab());
            return Err(DatasetError::Option { option: "eos", problem });
        }
        Ok(DocumentReader { from: from.clone(), read: Arc::clone(read), encoding: *encoding, eos: *eos })
    }
}

/// Writes the documents of the dataset in the folder `from` to pairs of Megatron's files in the folder `to`, and the indexes and the
/// manifest that make a dataset of them. Shuffled documents are sorted in a temporary file of their size, in the folder `to` if that is
/// on disk.
///
/// # Errors
/// If a document cannot be read or has an id that is not in the vocabulary, there is none, or the store cannot be written.
pub async fn pack_tokens(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &TokenPackOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<DatasetReport, DatasetError> {
    pack_tokens_until(from, to, options, progress, std::future::pending()).await
}

/// Packs like [`pack_tokens`], but stops when `stop` is ready. A packing that fails removes what it wrote. What a killed one has left,
/// the next one with [`Overwrite::Replace`] removes.
///
/// # Errors
/// As for [`pack_tokens`], and [`DatasetError::Stopped`].
pub async fn pack_tokens_until(
    from: &DatasetStore,
    to: &DatasetStore,
    options: &TokenPackOptions,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<DatasetReport, DatasetError> {
    let writer = TokenShardWriter::new(to, options.encoding, 0, options.shard_bytes, options.shard_records)?;
    let reader = options.reader()?;
    let manifest = Arc::new(from.manifest().await?);
    let shards = from.shards(&manifest)?;
    begin_tokens(to, options.overwrite).await?;
    let source = TokenSource { from, shards: &shards, manifest: &manifest, reader: &reader };
    let done = DatasetProgress { total_records: Some(manifest.records()), ..DatasetProgress::default() };
    let mut packing = TokenPacking { source, to, options, progress, done, writer };
    match packing.whole(std::pin::pin!(stop)).await {
        Ok(report) => Ok(report),
        Err(NotCommitted { error, can_be_removed }) => {
            if can_be_removed {
                packing.abort().await;
            }
            Err(error)
        }
    }
}

/// The dataset whose documents are packed.
#[derive(Clone, Copy)]
struct TokenSource<'a> {
    from: &'a DatasetStore,
    shards: &'a DatasetStore,
    manifest: &'a Arc<Manifest>,
    reader: &'a DocumentReader,
}

/// The state of a packing run.
struct TokenPacking<'a> {
    source: TokenSource<'a>,
    to: &'a DatasetStore,
    options: &'a TokenPackOptions,
    progress: &'a (dyn Fn(DatasetProgress) + Send + Sync),
    done: DatasetProgress,
    writer: TokenShardWriter<'a>,
}

impl TokenPacking<'_> {
    async fn whole(&mut self, mut stop: impl Future<Output = ()> + Unpin) -> Result<DatasetReport, NotCommitted> {
        let packed = match self.options.order {
            PackOrder::AsListed => self.in_order(&mut stop).await,
            PackOrder::Shuffled { seed } => self.shuffled(seed, &mut stop).await,
        };
        packed.map_err(NotCommitted::before)?;
        self.writer.finish().await.map_err(NotCommitted::before)?;
        let shards = self.writer.shards();
        if shards.is_empty() {
            let (origin, problem) = (self.source.from.url().to_owned(), "it has no document".to_owned());
            return Err(NotCommitted::before(DatasetError::Nothing { origin, problem }));
        }
        let options = IndexOptions {
            format: Some(self.options.encoding.format()),
            shards: ShardList::Named(shards.iter().map(|shard| shard.name.clone()).collect()),
            name: self.options.name.clone(),
            block_bytes: Some(self.options.block_bytes),
            tokenizer: tokenizer_of(self.source.manifest, self.options.eos),
            ..IndexOptions::default()
        };
        let report = index_as(self.to, self.to, &options, None, &|_| {}, &mut stop).await?;
        remove_unfinished(self.to).await.map_err(NotCommitted::after)?;
        Ok(report)
    }

    /// Returns the next documents that are read. A packing stops only here and where it reads documents back: a write to the store that
    /// is cancelled may still create the object.
    async fn next_block(
        &self,
        blocks: &mut (impl Stream<Item = Result<ReadDocuments, DatasetError>> + Unpin),
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<Option<ReadDocuments>, DatasetError> {
        tokio::select! {
            biased;
            () = stop => Err(self.stopped()),
            block = blocks.try_next() => block,
        }
    }

    /// Writes all documents as they are read.
    async fn in_order(&mut self, stop: &mut (impl Future<Output = ()> + Unpin)) -> Result<(), DatasetError> {
        let TokenSource { from, shards, manifest, reader } = self.source;
        let mut blocks = std::pin::pin!(read_documents(from, shards, manifest, reader.clone()));
        loop {
            let Some(block) = self.next_block(&mut blocks, stop).await? else { return Ok(()) };
            self.done.bytes += block.bytes;
            for document in block.documents.iter() {
                self.write(document).await?;
            }
            (self.progress)(self.done);
        }
    }

    /// Writes all documents in the order of a hash of their numbers.
    async fn shuffled(&mut self, seed: u64, stop: &mut (impl Future<Output = ()> + Unpin)) -> Result<(), DatasetError> {
        // A document is read, and then written.
        self.done.total_records = self.done.total_records.map(|records| 2 * records);
        let TokenSource { from, shards, manifest, reader } = self.source;
        let mut sorter = Sorter::new(&self.to.temporary_folder(), SORT_BYTES);
        let mut blocks = std::pin::pin!(read_documents(from, shards, manifest, reader.clone()));
        loop {
            let Some(block) = self.next_block(&mut blocks, stop).await? else { break };
            let first = self.done.records;
            self.done.bytes += block.bytes;
            self.done.records += block.documents.len() as u64;
            sorter = blocking(move || {
                for (number, document) in (first..).zip(block.documents.iter()) {
                    let hash = xxh3_64_with_seed(&number.to_le_bytes(), seed);
                    sorter.push(&[hash, number].map(u64::to_be_bytes).concat(), document)?;
                }
                Ok::<_, TemporaryError>(sorter)
            })
            .await?;
            (self.progress)(self.done);
        }
        let encoding = self.options.encoding;
        let mut sorted = blocking(move || sorter.finish()?.iter()).await?;
        loop {
            let (documents, rest) = tokio::select! {
                biased;
                () = &mut *stop => return Err(self.stopped()),
                read = blocking(move || read_back(sorted, encoding.documents())) => read?,
            };
            sorted = rest;
            if documents.is_empty() {
                return Ok(());
            }
            for document in documents.iter() {
                self.write(document).await?;
            }
            (self.progress)(self.done);
        }
    }

    async fn write(&mut self, document: &[u8]) -> Result<(), DatasetError> {
        self.writer.add(document).await?;
        self.done.shards = self.writer.shards().len() as u64;
        self.done.records += 1;
        Ok(())
    }

    fn stopped(&self) -> DatasetError {
        DatasetError::Stopped { url: self.to.url().to_owned() }
    }

    /// Removes everything that was written. The first error is the one to report.
    async fn abort(self) {
        let mut is_clean = true;
        for shard in self.writer.shards() {
            let encoding = self.options.encoding;
            let stem = shard.name.strip_suffix(encoding.suffix()).expect("the name of a file of tokens");
            is_clean &= remove_shard(self.to, encoding, stem).await.is_ok();
        }
        is_clean &= self.writer.abort().await.is_ok();
        if is_clean {
            let _ = remove_unfinished(self.to).await;
        }
    }
}

/// Returns the tokenizer that the tokens of a dataset are of, if its manifest has it, for the same documents that end with `eos`.
pub(super) fn tokenizer_of(manifest: &Manifest, eos: Option<u32>) -> Option<TokenizerFacts> {
    let facts = manifest.tokenizer()?;
    Some(TokenizerFacts { eos: eos.or(facts.eos), ends_with_eos: eos.is_some() || facts.ends_with_eos, ..facts })
}

/// Adds the next documents of those that are sorted; none at the end.
fn read_back(
    mut sorted: SortedItems,
    mut documents: TokenDocuments,
) -> Result<(TokenDocuments, SortedItems), TemporaryError> {
    while documents.size() < READ_BACK_BYTES {
        let Some(item) = sorted.next() else { break };
        let SortedItem { payload, .. } = item?;
        documents.push_stored(&payload);
    }
    Ok((documents, sorted))
}
