//! A run: the documents of a unit as they are stored, sorted, with an index of slices, and checksums at the end.
//!
//! A document is its hash, the number of its bytes, and its tokens with their mask, if there are masks. The index has, for the start of each slice and the end, the offset
//! and the number of documents before it. All numbers are little-endian.

use object_store::ObjectStoreExt;
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, TemporaryError, split};
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::Xxh3;

use super::work::{BuildPlan, RunTotals, run_name};
use crate::{
    DatasetError,
    sorter::{SortedItem, SortedItems},
};

/// Bytes before the tokens of a document.
pub(super) const HEAD_BYTES: u64 = 12;
/// Bytes of an entry of the index.
const ENTRY_BYTES: u64 = 16;
/// Bytes of the end of a run.
const END_BYTES: u64 = 72;
const MAGIC: [u8; 8] = *b"SPDLRUN2";
/// Bytes of documents that are written at once, unless one has more.
const PIECE_BYTES: usize = 1 << 20;

/// What the end of a run states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunFacts {
    /// Bytes of its documents with their heads.
    data_bytes: u64,
    pub(super) totals: RunTotals,
    /// Stands for all that decides its bytes.
    identity: Fingerprint,
}

/// The start of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SliceStart {
    /// Its offset in the run.
    pub(super) offset: u64,
    /// Number of documents before it.
    pub(super) documents: u64,
}

impl RunFacts {
    /// Begins the facts of a unit's run without documents. `totals` has the documents that were left out.
    pub(super) fn begin(plan: &BuildPlan, unit: u32, totals: RunTotals) -> Self {
        Self { data_bytes: 0, totals: RunTotals { documents: 0, ..totals }, identity: plan.fingerprint(unit) }
    }

    /// Adds a document of so many bytes.
    pub(super) const fn add(&mut self, bytes: usize) {
        self.data_bytes += HEAD_BYTES + bytes as u64;
        self.totals.documents += 1;
    }

    /// Returns where the next document begins.
    pub(super) const fn here(&self) -> SliceStart {
        SliceStart { offset: self.data_bytes, documents: self.totals.documents }
    }

    fn to_bytes(self) -> Vec<u8> {
        let RunTotals { documents, tokens, empty, bad } = self.totals;
        let numbers = [self.data_bytes, documents, tokens, empty, bad].map(u64::to_le_bytes).concat();
        [&numbers[..], &self.identity.0.to_le_bytes()].concat()
    }

    /// Reads the end of a run of `bytes` bytes. `None` if it is another one's, or the run is not whole.
    fn read(end: &[u8], bytes: u64, identity: Fingerprint) -> Option<(Self, u64)> {
        let number = |at: usize| Some(u64::from_le_bytes(end.get(at..at + 8)?.try_into().ok()?));
        let facts = Self {
            data_bytes: number(0)?,
            totals: RunTotals { documents: number(8)?, tokens: number(16)?, empty: number(24)?, bad: number(32)? },
            identity: Fingerprint(u128::from_le_bytes(end.get(40..56)?.try_into().ok()?)),
        };
        let index_bytes = bytes.checked_sub(END_BYTES)?.checked_sub(facts.data_bytes)?;
        let is_whole = end[64..] == MAGIC
            && facts.identity == identity
            && index_bytes >= 2 * ENTRY_BYTES
            && index_bytes % ENTRY_BYTES == 0;
        is_whole.then_some((facts, number(56)?))
    }
}

/// Makes the index of a run of sorted documents, each of which it is told of.
pub(super) struct RunIndex {
    /// Number of slices of the range of hashes; `None` if slices are cut by size.
    slices: Option<u64>,
    slice_bytes: u64,
    starts: Vec<SliceStart>,
}

/// Makes the bytes of a run of sorted documents, piece by piece.
pub(super) struct RunPieces {
    sorted: SortedItems,
    /// The document that was read last.
    item: SortedItem,
    /// Whether it is still to be written.
    is_waiting: bool,
    facts: RunFacts,
    index: RunIndex,
    hasher: Xxh3,
    is_done: bool,
}

impl RunIndex {
    pub(super) fn new(plan: &BuildPlan) -> Self {
        let slices = plan.seed.map(|_| plan.slices.into());
        Self { slices, slice_bytes: plan.slice_bytes(), starts: vec![SliceStart::default()] }
    }

    /// Notes the document with this hash, which begins here.
    pub(super) fn add(&mut self, hash: u64, here: SliceStart) {
        match self.slices {
            Some(slices) => {
                let slice = ((u128::from(hash) * u128::from(slices)) >> 64) as usize;
                self.starts.resize(self.starts.len().max(slice + 1), here);
            }
            None if here.offset >= self.starts.last().map_or(0, |slice| slice.offset) + self.slice_bytes => {
                self.starts.push(here)
            }
            None => {}
        }
    }

    /// Takes the starts of all slices, and the end, which is here.
    pub(super) fn end(&mut self, here: SliceStart) -> Vec<SliceStart> {
        let entries = self.slices.map_or(self.starts.len() + 1, |slices| slices as usize + 1);
        self.starts.resize(entries, here);
        std::mem::take(&mut self.starts)
    }
}

/// Returns the hash of a document, which is the key that it is sorted by, most significant byte first.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a key is a hash"))
}

impl RunPieces {
    /// Makes a run of documents whose keys are their hashes, most significant byte first. Those of `totals` are counted as they are
    /// written.
    pub(super) fn new(plan: &BuildPlan, unit: u32, sorted: SortedItems, totals: RunTotals) -> Self {
        Self {
            sorted,
            item: SortedItem::default(),
            is_waiting: false,
            facts: RunFacts::begin(plan, unit, totals),
            index: RunIndex::new(plan),
            hasher: Xxh3::new(),
            is_done: false,
        }
    }

    fn documents(&mut self) -> Result<Vec<u8>, TemporaryError> {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while self.is_waiting || self.sorted.next_into(&mut self.item)? {
            // A piece that grew would be copied.
            let bytes = HEAD_BYTES as usize + self.item.payload.len();
            self.is_waiting = !piece.is_empty() && piece.len() + bytes > PIECE_BYTES;
            if self.is_waiting {
                break;
            }
            let hash = hash_of(&self.item.key);
            self.index.add(hash, self.facts.here());
            let SortedItem { payload, .. } = &self.item;
            piece.extend_from_slice(&hash.to_le_bytes());
            piece.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            piece.extend_from_slice(payload);
            self.facts.add(payload.len());
        }
        self.hasher.update(&piece);
        Ok(piece)
    }

    /// Returns the index and the end.
    fn end(&mut self) -> Vec<u8> {
        let index = self.index.end(self.facts.here());
        let entry = |slice: SliceStart| [slice.offset, slice.documents].map(u64::to_le_bytes).concat();
        let mut end: Vec<u8> = index.into_iter().flat_map(entry).collect();
        end.extend(self.facts.to_bytes());
        self.hasher.update(&end);
        end.extend(self.hasher.digest().to_le_bytes());
        end.extend(MAGIC);
        end
    }
}

impl Iterator for RunPieces {
    type Item = Result<Vec<u8>, TemporaryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let piece = match self.documents() {
            Ok(piece) if piece.is_empty() => {
                self.is_done = true;
                Ok(self.end())
            }
            piece => piece,
        };
        Some(piece)
    }
}

/// Reads the end of a unit's run, and its checksum; `None` if there is no run, or none that is whole.
async fn end_of(to: &DatasetStore, plan: &BuildPlan, unit: u32) -> Result<Option<(RunFacts, u64, u64)>, DatasetError> {
    let name = run_name(unit);
    let meta = match to.meta(&name).await {
        Ok(meta) => meta,
        Err(StoreError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = meta.size;
    if bytes < END_BYTES {
        return Ok(None);
    }
    let end = range(to, unit, bytes - END_BYTES..bytes).await?;
    Ok(RunFacts::read(&end, bytes, plan.fingerprint(unit)).map(|(facts, hash)| (facts, hash, bytes)))
}

/// Reads a range of the run of a unit.
pub(super) async fn range(
    to: &DatasetStore,
    unit: u32,
    range: std::ops::Range<u64>,
) -> Result<bytes::Bytes, DatasetError> {
    let name = run_name(unit);
    let read = to.object().get_range(&to.path_of(&name), range).await;
    Ok(read.map_err(|source| StoreError::of(&to.url_of(&name), source))?)
}

/// Returns the facts of a unit's run if it is there, whole and of this plan: all its bytes are read and compared with its checksum.
pub(super) async fn checked(to: &DatasetStore, plan: &BuildPlan, unit: u32) -> Result<Option<RunFacts>, DatasetError> {
    let Some((facts, hash, bytes)) = end_of(to, plan, unit).await? else { return Ok(None) };
    let mut hasher = Xxh3::new();
    for part in split(0..bytes - 16) {
        hasher.update(&range(to, unit, part).await?);
    }
    Ok((hasher.digest() == hash).then_some(facts))
}

/// Reads the index of a unit's run.
pub(super) async fn index(
    to: &DatasetStore,
    plan: &BuildPlan,
    unit: u32,
) -> Result<(RunFacts, Vec<SliceStart>), DatasetError> {
    let wrong = || {
        let problem = "is no whole run of this dataset: remove it, or run the part that makes it again".to_owned();
        DatasetError::Parts { url: to.url_of(&run_name(unit)), problem }
    };
    let (facts, _, bytes) = end_of(to, plan, unit).await?.ok_or_else(wrong)?;
    let read = range(to, unit, facts.data_bytes..bytes - END_BYTES).await?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let entries = read.as_chunks::<{ ENTRY_BYTES as usize }>().0.iter();
    let index: Vec<SliceStart> =
        entries.map(|entry| SliceStart { offset: number(&entry[..8]), documents: number(&entry[8..]) }).collect();
    let ascends =
        index.windows(2).all(|pair| pair[0].offset <= pair[1].offset && pair[0].documents <= pair[1].documents);
    let last = index.last().copied().unwrap_or_default();
    if !ascends || last != (SliceStart { offset: facts.data_bytes, documents: facts.totals.documents }) {
        return Err(wrong());
    }
    Ok((facts, index))
}
