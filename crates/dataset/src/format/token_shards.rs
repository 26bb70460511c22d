//! Makes the shards of files of tokens, as their documents are found: the index and the blocks of each run of documents.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use object_store::ObjectStoreExt as _;
use spdl_shard::{
    FormatError,
    format::{
        ObjectRange, ObjectRole, StoredObject,
        token_index::{LOSS, MODES, TOKENS, TokenRun, TokenShardFacts, shard_path},
    },
    index::IndexFile,
    manifest::{BlockFacts, ShardFacts},
    store::DatasetStore,
};
use spdl_store::{ListedObject, StoreError, blocking};
use spdl_types::DType;

use crate::{
    BadShards, BlockCutter, DatasetError, DatasetOddities, Outline, Scan, ScanCounts, ScannedShard, ShardResult,
};

/// A file of at most so many bytes that states where documents are is read with one request.
const WHOLE_BYTES: u64 = 4 << 20;
/// The shards of a file whose documents take at most so many bytes to find are made while those of the files before it are taken.
const AHEAD_BYTES: u64 = 32 << 20;
/// Number of elements of an array that are read at once.
const READ_AT_ONCE: u64 = 1 << 18;
/// Number of such pieces that are read before they are needed.
pub(super) const PIECES_AHEAD: usize = 3;

/// Finds the documents of a file of tokens.
pub(super) trait TokenRunReader: Send + 'static {
    /// Returns the next runs of documents that are shards, maybe none; `None` after the last ones.
    fn next(&mut self) -> impl Future<Output = Result<Option<Vec<TokenRun>>, DatasetError>> + Send;

    /// Returns what is odd about the file, once all of it is read.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A file of tokens whose shards are made.
#[derive(Clone, Debug)]
pub(super) struct TokenFile {
    pub(super) object: StoredObject,
    pub(super) dtype: DType,
    /// The prefix of the keys of its documents.
    pub(super) prefix: String,
    pub(super) loss: TokenLoss,
    /// Bytes that are read to find its documents.
    pub(super) read_bytes: u64,
}

/// Whether a file with a mask of the loss lies beside a file of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenLoss {
    None,
    Beside,
}

/// What files of tokens are scanned with.
#[derive(Clone)]
pub(super) struct TokenScan {
    pub(super) from: DatasetStore,
    pub(super) is_chosen: bool,
    block_bytes: u64,
    bad_shards: BadShards,
    counts: Arc<ScanCounts>,
}

impl TokenScan {
    pub(super) fn of(scan: &Scan<'_>) -> Self {
        Self {
            from: scan.from.clone(),
            is_chosen: scan.is_chosen,
            block_bytes: scan.block_bytes,
            bad_shards: scan.bad_shards(),
            counts: scan.meter.counts(),
        }
    }

    /// Returns what was scanned so far.
    pub(super) fn counts(&self) -> Arc<ScanCounts> {
        Arc::clone(&self.counts)
    }

    /// Returns the shards of the file at `path`, in order; those of a short one are made at once. A shard whose documents are not
    /// found is the last one: what follows in the file is not found either.
    pub(super) async fn shards<R: TokenRunReader>(
        self,
        path: String,
        open: impl Future<Output = Result<(TokenFile, R), DatasetError>> + Send,
    ) -> BoxStream<'static, Result<ShardResult, DatasetError>> {
        let bad_shards = self.bad_shards;
        let (file, reader) = match open.await {
            Ok(open) => open,
            Err(error) => return stream::iter([bad_shards.result(&path, Err(error))]).boxed(),
        };
        let is_short = file.read_bytes <= AHEAD_BYTES;
        let open =
            OpenTokenFile { file, reader, scan: self, count: 0, ready: VecDeque::new(), is_read: false, error: None };
        let shards = stream::unfold(Some(open), move |open| async move {
            let mut open = open?;
            match open.next().await {
                Ok(shard) => Some((bad_shards.result(&path_of(&open), Ok(shard?)), Some(open))),
                Err(error) => Some((bad_shards.result(&path_of(&open), Err(error)), None)),
            }
        });
        if is_short { stream::iter(shards.collect::<Vec<_>>().await).boxed() } else { shards.boxed() }
    }

    /// Finds the file `name`, which belongs to `other`, if it was not listed. `or` is what else the user can do without it.
    ///
    /// # Errors
    /// If it is not there.
    pub(super) async fn beside(
        &self,
        listed: Option<StoredObject>,
        other: &StoredObject,
        name: &str,
        or: &str,
    ) -> Result<StoredObject, DatasetError> {
        if let Some(listed) = listed {
            return Ok(listed);
        }
        let nothing = || {
            let problem =
                format!("has no `{name}` beside it: copy it there, or choose other files with `--shards`{or}");
            DatasetError::Source { path: self.from.url_of(&other.url), problem }
        };
        self.unlisted(name).await?.ok_or_else(nothing)
    }

    /// Asks for a file that was not listed, as the caller chose others; `None` if it is not there.
    pub(super) async fn unlisted(&self, name: &str) -> Result<Option<StoredObject>, DatasetError> {
        if !self.is_chosen {
            return Ok(None);
        }
        let found = self.from.object().head(&self.from.path_of(name)).await;
        match found.map_err(|source| StoreError::of(&self.from.url_of(name), source)) {
            Ok(meta) => {
                let (url, etag) = (name.to_owned(), meta.e_tag);
                Ok(Some(StoredObject { url, bytes: meta.size, etag, role: ObjectRole::File }))
            }
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the object that was listed, which has no checksum.
pub(super) fn object(listed: &ListedObject<'_>) -> StoredObject {
    let (url, etag) = (listed.name.to_owned(), listed.etag.map(str::to_owned));
    StoredObject { url, bytes: listed.bytes, etag, role: ObjectRole::File }
}

fn path_of<R>(open: &OpenTokenFile<R>) -> String {
    shard_path(&open.file.object.url, open.count)
}

/// A file of tokens whose documents are being found.
struct OpenTokenFile<R> {
    file: TokenFile,
    reader: R,
    scan: TokenScan,
    /// Number of shards so far.
    count: u32,
    ready: VecDeque<ScannedShard>,
    is_read: bool,
    /// What is wrong after the shards that are ready.
    error: Option<DatasetError>,
}

impl<R: TokenRunReader> OpenTokenFile<R> {
    /// Returns the next shard; `None` after the last one.
    async fn next(&mut self) -> Result<Option<ScannedShard>, DatasetError> {
        // The last shard is not known before the end, and has the note.
        while self.ready.len() < 2 && !self.is_read {
            match self.read().await {
                Ok(()) => {}
                // The shards before the fault are there.
                Err(error) if self.ready.is_empty() => return Err(error),
                Err(error) => (self.is_read, self.error) = (true, Some(error)),
            }
        }
        match self.ready.pop_front() {
            None => self.error.take().map_or(Ok(None), Err),
            shard => Ok(shard),
        }
    }

    /// Reads further documents.
    async fn read(&mut self) -> Result<(), DatasetError> {
        match self.reader.next().await? {
            Some(runs) => {
                for run in runs {
                    self.add(run).await?;
                }
                Ok(())
            }
            None => self.end().await,
        }
    }

    /// Adds the shard of a run.
    async fn add(&mut self, run: TokenRun) -> Result<(), DatasetError> {
        let (path, file) = (path_of(self), self.file.clone());
        let (etag, block_bytes) = (self.scan.from.lasting_etag(file.object.etag.clone()), self.scan.block_bytes);
        let make = move || file.shard(&run, path, etag, block_bytes);
        let shard = blocking(make).await;
        let shard = shard.map_err(|source| DatasetError::Unwritable { url: path_of(self), source })?;
        self.scan.counts.add(1, shard.facts.records.into(), 0);
        self.count += 1;
        self.ready.push_back(shard);
        Ok(())
    }

    /// Ends the file. One without documents is a shard without records.
    async fn end(&mut self) -> Result<(), DatasetError> {
        self.is_read = true;
        if self.count == 0 {
            self.add(TokenRun::default()).await?;
        }
        if let (Some(shard), Some(note)) = (self.ready.back_mut(), self.reader.note()) {
            shard.odd.note(|| note);
        }
        Ok(())
    }
}

impl TokenFile {
    /// Makes a shard of a run of documents. It takes a while.
    fn shard(
        &self,
        run: &TokenRun,
        url: String,
        etag: Option<String>,
        block_bytes: u64,
    ) -> Result<ScannedShard, FormatError> {
        let facts = run.facts(self.dtype, self.object.bytes, &self.prefix);
        let has_loss = self.loss == TokenLoss::Beside;
        let token_bytes = self.dtype.bytes() as u64 + u64::from(has_loss);
        let blocks = blocks(facts.ends, token_bytes, block_bytes)?;
        let first_documents: Vec<u32> = blocks.iter().map(|block| block.first_record).collect();
        let facts = TokenShardFacts { loss_blocks: has_loss.then_some(&first_documents), ..facts };
        let (index, index_hash) = facts.index()?;
        let index = IndexFile::of(index, index_hash);
        let records = run.documents();
        let mut odd = DatasetOddities::default();
        let fields = [(TOKENS, true), (LOSS, has_loss), (MODES, facts.modes.is_some())];
        for (name, _) in fields.into_iter().filter(|(_, is_there)| *is_there) {
            odd.shared_field(name, records, Some(records.into()));
        }
        let starts = std::iter::once(&0).chain(facts.ends);
        odd.empty_fields = starts.zip(facts.ends).filter(|(start, end)| start == end).count() as u64;
        for number in [0, records.saturating_sub(1)].into_iter().filter(|_| records > 0) {
            let key = format!("{}{:06}", facts.prefix, facts.first_document + u64::from(number));
            odd.end(Outline { key, fields: Vec::new() });
        }
        let bytes = u64::from(facts.ends.last().copied().unwrap_or(0)) * token_bytes;
        let facts = ShardFacts { url, bytes, etag, records, index_bytes: index.bytes(), index_hash };
        Ok(ScannedShard { facts, blocks, index, odd })
    }
}

/// Cuts documents that end at these tokens into blocks; each token takes so many bytes.
fn blocks(ends: &[u32], token_bytes: u64, block_bytes: u64) -> Result<Vec<BlockFacts>, FormatError> {
    let (mut blocks, mut start) = (BlockCutter::new(block_bytes), 0);
    for (document, end) in (0..).zip(ends) {
        let end = u64::from(*end) * token_bytes;
        blocks.record(document, start, end, 1);
        start = end;
    }
    let too_long = || FormatError::Unwritable("one of its documents has 4 GiB or more".to_owned());
    blocks.finish().ok_or_else(too_long)
}

/// A file that states where documents are, which is read in pieces.
pub(super) struct PlacesFile {
    from: DatasetStore,
    pub(super) object: StoredObject,
    /// Its bytes, if it is short.
    whole: Option<Bytes>,
    counts: Arc<ScanCounts>,
}

impl PlacesFile {
    pub(super) async fn open(scan: &TokenScan, object: StoredObject) -> Result<Self, StoreError> {
        let mut file = Self { from: scan.from.clone(), object, whole: None, counts: Arc::clone(&scan.counts) };
        if file.object.bytes <= WHOLE_BYTES {
            file.whole = Some(file.read(0..file.object.bytes).await?);
        }
        Ok(file)
    }

    pub(super) async fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        match &self.whole {
            Some(whole) => Ok(whole.slice(range.start as usize..range.end as usize)),
            None if range.is_empty() => Ok(Bytes::new()),
            None => {
                self.counts.add(0, 0, range.end - range.start);
                self.from.read_range(&ObjectRange { object: self.object.clone(), at: range.start, range }).await
            }
        }
    }

    /// Returns the error for a file that has this problem.
    pub(super) fn wrong(&self, problem: String) -> DatasetError {
        DatasetError::Source { path: self.from.url_of(&self.object.url), problem }
    }
}

/// Divides the numbers of `count` elements of an array into those of the pieces in which it is read.
pub(super) fn pieces(count: u64) -> impl Iterator<Item = Range<u64>> {
    (0..count.div_ceil(READ_AT_ONCE)).map(move |piece| {
        let start = piece * READ_AT_ONCE;
        start..(start + READ_AT_ONCE).min(count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_in_pieces() {
        let found: Vec<_> = pieces(READ_AT_ONCE + 1).collect();
        assert_eq!(found, [0..READ_AT_ONCE, READ_AT_ONCE..READ_AT_ONCE + 1]);
        assert_eq!(pieces(0).count(), 0);
    }
}
