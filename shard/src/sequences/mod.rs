//! The files of evaluated sequences in a dataset's folder: which blocks are packed together, how many sequences they fill, and
//! the tokens of each document; of a job whose documents have masks, how many are learned, too.
//!
//! The table of pools is read whole. What is known of a pool's documents follows it, and is read when the pool is used; or their lengths
//! are read where the indexes of shards have them, and the file ends with the table.

mod builder;
mod form;
mod indexed;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_order::{DatasetFacts, view::SampleSet};
use spdl_sequence::{PoolLayout, Pools, SequenceFill, SequenceParams};
use spdl_store::{ContentError, StoreError, blocking};
use spdl_types::{Fingerprint, SampleId};

use crate::{
    FormatError,
    envelope::{self, HEAD_BYTES, u32_at, u64_at, wrong},
    manifest::{Manifest, MetadataPlace},
    store::DatasetStore,
};

pub use builder::{CountedPool, SequenceTableBuilder};
use form::{COUNTS_AT, KIND, TableForm};

const PREFIX: &str = "sequences-";
/// Of files that end with the table.
const POOLS_PREFIX: &str = "pools-";
const SUFFIX: &str = ".spdl";
/// Bytes of a document's length, and of the number of learned tokens in a piece of one.
const NUMBER_BYTES: u64 = 4;
/// Bytes that are read at first: the whole table of 16,000 pools.
const FIRST_BYTES: u64 = 256 << 10;
/// Bytes that are compared at once with a file that is there.
const COMPARED_BYTES: usize = 16 << 20;

/// The hint about a table that is damaged.
const SUBMIT_AGAIN: &str = "submit the job again, without `pools`: that writes the table anew";

/// Returns the error about a table that is not what it should be.
fn wrong_table(at: &DatasetStore, name: &str, source: FormatError) -> StoreError {
    // A table is cut off if the store says so of its size: reading it again does not help.
    let is_retryable = matches!(source, FormatError::Checksum);
    let source = ContentError { is_retryable, hint: SUBMIT_AGAIN, ..source.into() };
    StoreError::Format { url: at.url_of(name), source }
}

/// Returns the path of a file in the folder of the manifest.
fn name_of(sequences: Fingerprint, lengths: LengthsAt) -> String {
    let prefix = match lengths {
        LengthsAt::Table => PREFIX,
        LengthsAt::Indexes => POOLS_PREFIX,
    };
    MetadataPlace::Hidden.path(&format!("{prefix}{sequences}{SUFFIX}"))
}

/// Where the lengths of documents are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LengthsAt {
    /// Behind the table, in the same file.
    #[default]
    Table,
    /// In the indexes of the dataset's shards, which know how many `tokens` each document has: the file ends with the table.
    Indexes,
}

/// How many tokens of all documents are learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedTokens {
    /// Labels that are learned, of all pieces of documents; by chunk, all tokens that are learned, of which few can be in no sequence.
    pub tokens: u64,
    /// Documents with tokens, of which none is learned.
    pub unlearned_documents: u64,
}

/// What is known of the documents of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDocuments {
    /// Tokens of each, as they are stored.
    pub lengths: Box<[u32]>,
    /// For each piece of each document the labels that are learned, if documents have masks; by chunk, where pieces change, for each
    /// document the tokens that are learned.
    pub learned: Option<Box<[u32]>>,
}

/// A table of sequences that was made, and its fingerprint.
#[derive(Clone, Debug)]
pub struct MadeSequences {
    /// The file.
    pub file: Bytes,
    /// Identifies the table. It covers the lengths by their checksums, wherever they are.
    pub fingerprint: Fingerprint,
    /// Where the lengths of documents are.
    pub lengths: LengthsAt,
}

/// The pools of a dataset. It is 24 bytes a pool in memory; the lengths of documents are where the file is.
#[derive(Clone, Debug)]
pub struct SequenceTable {
    fingerprint: Fingerprint,
    pools: Arc<Pools>,
    fill: SequenceFill,
    /// Documents before each pool, and all of them.
    first_documents: Box<[u64]>,
    /// CRC-32C of what is known of each pool's documents.
    checksums: Box<[u32]>,
    learned: Option<LearnedTokens>,
    /// Pieces with numbers of learned tokens before each pool, and all of them; empty if there are no such numbers.
    first_pieces: Box<[u64]>,
    known: KnownDocuments,
    /// The samples that are documents; `None` for all.
    view: Option<Arc<SampleSet>>,
}

/// Where it is read what is known of documents.
#[derive(Clone, Debug)]
enum KnownDocuments {
    /// In the file, where it is stored.
    Stored,
    /// In the whole file, which is in memory.
    InMemory(Bytes),
    /// In the indexes of the shards of this dataset.
    InIndexes(Box<Manifest>),
}

/// Returns whether documents can have these counts: sequences of one length, no more tokens than places, and of all documents no
/// more that are empty, cut or lost.
fn is_possible(fill: SequenceFill) -> bool {
    let SequenceFill { sequences, places, tokens, documents, empty_documents, cut_documents, lost_documents, .. } =
        fill;
    let seq_len = places.checked_div(sequences).unwrap_or(0);
    let others = empty_documents.checked_add(cut_documents).and_then(|sum| sum.checked_add(lost_documents));
    let has_length = u32::try_from(seq_len).is_ok() && (seq_len > 0 || sequences == 0);
    has_length && seq_len * sequences == places && tokens <= places && others.is_some_and(|others| others <= documents)
}

impl SequenceTable {
    /// Opens a table that is in memory, with its lengths: of the whole dataset, or of this view of it.
    ///
    /// # Errors
    /// If it is not the table with this fingerprint, or of another dataset or view.
    pub fn of_memory(
        made: &MadeSequences,
        manifest: &Manifest,
        view: Option<Arc<SampleSet>>,
    ) -> Result<Self, FormatError> {
        let MadeSequences { file, fingerprint, lengths } = made;
        let end = table_end(file, manifest)?;
        if (file.len() as u64) < end {
            return Err(FormatError::Truncated { found_bytes: file.len() as u64, expected_bytes: end });
        }
        let table = (&file[..end as usize], file.len() as u64);
        let table = Self::open(table, (*fingerprint, *lengths), (manifest, view))?;
        Ok(match lengths {
            LengthsAt::Table => Self { known: KnownDocuments::InMemory(file.clone()), ..table },
            LengthsAt::Indexes => table,
        })
    }

    /// Opens a table, of a file with so many bytes.
    fn open(
        (table, file_bytes): (&[u8], u64),
        (expected, lengths): (Fingerprint, LengthsAt),
        (manifest, view): (&Manifest, Option<Arc<SampleSet>>),
    ) -> Result<Self, FormatError> {
        envelope::check(&KIND, table)?;
        match Fingerprint::of(table) {
            found if found == expected => {}
            found => {
                return Err(FormatError::Malformed(format!("its fingerprint is {found}, and not that of its name")));
            }
        }
        let form = TableForm::of(table);
        let fill = SequenceFill::of_counts(std::array::from_fn(|nth| u64_at(table, COUNTS_AT + nth * 8)));
        let learned = form.has_learned.then(|| {
            let [tokens, unlearned_documents] = [8, 9].map(|nth| u64_at(table, COUNTS_AT + nth * 8));
            LearnedTokens { tokens, unlearned_documents }
        });
        let (mut counted, mut first_documents, mut checksums) = (Vec::new(), vec![0], Vec::new());
        let mut first_pieces = vec![0; usize::from(form.has_learned)];
        for row in table[form.table_at()..].chunks_exact(form.row_bytes()) {
            let [end, documents, sequences, checksum] = [0, 4, 8, 12].map(|at| u32_at(row, at));
            if let Some(before) = first_pieces.last() {
                first_pieces.push(before + u64::from(u32_at(row, 16)));
            }
            counted.push((end, SequenceFill { sequences: sequences.into(), ..SequenceFill::default() }));
            first_documents.push(first_documents[first_documents.len() - 1] + u64::from(documents));
            checksums.push(checksum);
        }
        let ends: Vec<u32> = counted.iter().map(|(end, _)| *end).collect();
        let documents = first_documents[first_documents.len() - 1];
        let pools = Pools::new(counted).map(Arc::new).map_err(|error| FormatError::Malformed(error.to_string()))?;
        let documents_before =
            |block: u32| block.checked_sub(1).map_or(0, |last| manifest.kept_samples(last, view.as_deref()).end);
        let is_of_blocks = ends.last().copied().unwrap_or(0) == manifest.block_count()
            && ends.iter().zip(&first_documents[1..]).all(|(end, documents)| documents_before(*end) == *documents);
        if !is_of_blocks {
            let found = view.as_ref().map_or_else(|| manifest.samples(), |view| view.len());
            let of = if view.is_some() { "dataset or view" } else { "dataset" };
            return Err(FormatError::Malformed(format!(
                "it is of another {of}: it has {documents} documents, and this one {found}, or others in its blocks"
            )));
        }
        if pools.fill().sequences != fill.sequences || fill.documents != documents {
            return Err(wrong("its pools do not add up to its counts"));
        }
        let is_of_tokens = |learned: LearnedTokens| {
            fill.tokens.checked_add(fill.lost_tokens).is_some_and(|tokens| learned.tokens <= tokens)
                && learned.unlearned_documents <= documents
        };
        if !is_possible(fill) || !learned.is_none_or(is_of_tokens) {
            return Err(wrong("its counts contradict each other"));
        }
        let pieces = first_pieces.last().copied().unwrap_or(0);
        let (known, numbers) = match lengths {
            LengthsAt::Table => (KnownDocuments::Stored, documents + pieces),
            LengthsAt::Indexes if form.has_learned || view.is_some() => {
                return Err(wrong("it ends with its pools, though no index knows what is learned, or a view has"));
            }
            LengthsAt::Indexes => (KnownDocuments::InIndexes(Box::new(manifest.clone())), 0),
        };
        let expected_bytes = table.len() as u64 + numbers * NUMBER_BYTES;
        if file_bytes < expected_bytes {
            return Err(FormatError::Truncated { found_bytes: file_bytes, expected_bytes });
        }
        if file_bytes > expected_bytes {
            return Err(FormatError::Malformed(format!("{} bytes follow its end", file_bytes - expected_bytes)));
        }
        let (first_documents, checksums, first_pieces) =
            (first_documents.into(), checksums.into(), first_pieces.into());
        Ok(Self { fingerprint: expected, pools, fill, first_documents, checksums, learned, first_pieces, known, view })
    }

    /// Returns what identifies the table.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the pools, with the number of sequences in each.
    #[must_use]
    pub const fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// Returns what became of all documents.
    #[must_use]
    pub const fn fill(&self) -> SequenceFill {
        self.fill
    }

    /// Returns how many tokens are learned, if documents have masks.
    #[must_use]
    pub const fn learned(&self) -> Option<LearnedTokens> {
        self.learned
    }

    /// Returns the samples that are documents, if not all are.
    #[must_use]
    pub const fn view(&self) -> Option<&Arc<SampleSet>> {
        self.view.as_ref()
    }

    /// Returns the numbers of a pool's documents among those of the dataset, or of its view.
    ///
    /// # Panics
    /// If there is no such pool.
    #[must_use]
    pub fn documents(&self, pool: u32) -> Range<u64> {
        let pool = pool as usize;
        self.first_documents[pool]..self.first_documents[pool + 1]
    }

    /// Returns the sample of the dataset that is document number `document` of a pool.
    ///
    /// # Panics
    /// If there is no such pool.
    #[must_use]
    pub fn document(&self, pool: u32, document: u32) -> SampleId {
        let number = self.documents(pool).start + u64::from(document);
        self.view.as_ref().map_or(SampleId(number), |view| view.select(number))
    }

    /// Returns the numbers of the blocks that hold documents of a pool.
    pub fn blocks<'m>(&'m self, pool: u32, manifest: &'m Manifest) -> impl Iterator<Item = u32> + 'm {
        let view = self.view.as_deref();
        let is_kept = move |block: &u32| !manifest.kept_samples(*block, view).is_empty();
        self.pools.blocks(pool).into_iter().flatten().filter(is_kept)
    }

    /// Returns the facts that creating a job on the sequences needs: of a dataset, or of a view of it, with these facts.
    pub(crate) fn facts(&self, facts: DatasetFacts) -> DatasetFacts {
        let pools = self.pools.sequences().iter().filter(|sequences| **sequences > 0).count() as u64;
        let block_bytes = facts.block_bytes.saturating_mul(facts.blocks) / pools.max(1);
        DatasetFacts { samples: self.fill.sequences, tokens: self.fill.tokens, blocks: pools, block_bytes, ..facts }
    }

    /// Reads what is known of a pool's documents, and lays them out. Returns the layout with the learned tokens of each piece, if
    /// documents have masks.
    ///
    /// # Errors
    /// If the lengths cannot be read, or are not those that were packed.
    ///
    /// # Panics
    /// If there is no such pool.
    pub async fn layout(
        &self,
        at: &DatasetStore,
        params: SequenceParams,
        pool: u32,
    ) -> Result<(PoolLayout, Option<Box<[u32]>>), StoreError> {
        let PoolDocuments { lengths, learned } = self.read_pool(at, pool).await?;
        let sequences = self.pools.sequences()[pool as usize];
        let problem = match blocking(move || PoolLayout::new(&params, lengths)).await {
            Ok(layout) if layout.sequences() == sequences => return Ok((layout, learned)),
            Ok(layout) => format!("pool {pool} fills {} sequences, and its table has {sequences}", layout.sequences()),
            Err(error) => error.to_string(),
        };
        Err(StoreError::Changed { url: at.url().to_owned(), problem })
    }

    /// Reads what is known of a pool's documents.
    ///
    /// # Errors
    /// If they cannot be read, or are others.
    ///
    /// # Panics
    /// If there is no such pool.
    pub async fn read_pool(&self, at: &DatasetStore, pool: u32) -> Result<PoolDocuments, StoreError> {
        if let KnownDocuments::InIndexes(manifest) = &self.known {
            let lengths = self.indexed_lengths(at, manifest, pool).await?;
            return Ok(PoolDocuments { lengths, learned: None });
        }
        let (documents, form) = (self.documents(pool), TableForm { has_learned: self.learned.is_some() });
        let pieces_before = |pool: u32| self.first_pieces.get(pool as usize).copied().unwrap_or(0);
        let table_bytes = (form.table_at() + self.checksums.len() * form.row_bytes()) as u64;
        let place = |documents: u64, pool: u32| table_bytes + (documents + pieces_before(pool)) * NUMBER_BYTES;
        let range = place(documents.start, pool)..place(documents.end, pool + 1);
        let name = name_of(self.fingerprint, LengthsAt::Table);
        let bytes = match &self.known {
            KnownDocuments::InMemory(file) => file.slice(range.start as usize..range.end as usize),
            _ if range.is_empty() => Bytes::new(),
            _ => part_of(at, &name, range).await?,
        };
        if crc32c::crc32c(&bytes) != self.checksums[pool as usize] {
            return Err(wrong_table(at, &name, FormatError::Checksum));
        }
        let mut lengths: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let learned = lengths.split_off((documents.end - documents.start) as usize);
        Ok(PoolDocuments { lengths: lengths.into(), learned: form.has_learned.then(|| learned.into()) })
    }
}

/// Returns where the table ends in a file that begins with these bytes.
fn table_end(first: &[u8], manifest: &Manifest) -> Result<u64, FormatError> {
    let form = TableForm { has_learned: first.len() >= HEAD_BYTES && TableForm::of(first).has_learned };
    if first.len() < form.table_at() {
        // What is wrong with so short a file its head says.
        envelope::check(&KIND, first)?;
        return Err(wrong("it has no counts"));
    }
    let pools = u32_at(first, HEAD_BYTES);
    if pools > manifest.block_count() {
        return Err(wrong("it has more pools than the dataset has blocks"));
    }
    Ok(form.table_at() as u64 + u64::from(pools) * form.row_bytes() as u64)
}

/// Reads a part of an object. A web server may support no ranges, and then sends all of it.
async fn part_of(at: &DatasetStore, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
    let answer = at.get_range(name, Some(range.clone())).await?;
    let sent = answer.range.clone();
    let bytes = at.body(name, answer, sent.end - sent.start).await?;
    let wanted = [range.start, range.end.min(sent.end)].map(|end| end.checked_sub(sent.start));
    match wanted {
        [Some(start), Some(end)] if start <= end => Ok(bytes.slice(start as usize..end as usize)),
        _ => Err(StoreError::Changed {
            url: at.url_of(name),
            problem: format!(
                "bytes {} to {} were asked for, {} to {} arrived",
                range.start, range.end, sent.start, sent.end
            ),
        }),
    }
}

/// Writes the table of sequences into the folder of the dataset's manifest, unless it is there with all lengths that it is to have.
///
/// # Errors
/// If the folder cannot be written to.
pub async fn save_sequences(at: &DatasetStore, made: &MadeSequences) -> Result<(), StoreError> {
    let name = name_of(made.fingerprint, made.lengths);
    match is_same(at, &name, &made.file).await {
        Ok(true) => Ok(()),
        Ok(false) | Err(StoreError::Missing { .. }) => at.put(&name, made.file.clone()).await,
        Err(error) => Err(error),
    }
}

/// Returns whether an object has these bytes, and no more.
async fn is_same(at: &DatasetStore, name: &str, file: &[u8]) -> Result<bool, StoreError> {
    let meta = at.meta(name).await?;
    if meta.size != file.len() as u64 {
        return Ok(false);
    }
    let mut start = 0;
    for part in file.chunks(COMPARED_BYTES) {
        let end = start + part.len() as u64;
        if at.read_part(name, &meta, start..end).await? != part {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}

/// Reads the table of sequences that were evaluated of a dataset, or of this view of it, and checks it: that with all lengths, or else that
/// whose lengths are in the indexes of shards. They are read when they are used.
///
/// # Errors
/// If it cannot be read, or is another.
pub async fn open_sequences(
    at: &DatasetStore,
    manifest: &Manifest,
    view: Option<Arc<SampleSet>>,
    sequences: Fingerprint,
) -> Result<SequenceTable, StoreError> {
    let is_of_view = view.is_some();
    match open_table(at, manifest, view, (sequences, LengthsAt::Table)).await {
        Err(error @ StoreError::Missing { .. }) if !is_of_view => {
            match open_table(at, manifest, None, (sequences, LengthsAt::Indexes)).await {
                Err(StoreError::Missing { .. }) => Err(error),
                opened => opened,
            }
        }
        opened => opened,
    }
}

async fn open_table(
    at: &DatasetStore,
    manifest: &Manifest,
    view: Option<Arc<SampleSet>>,
    (sequences, lengths): (Fingerprint, LengthsAt),
) -> Result<SequenceTable, StoreError> {
    let name = name_of(sequences, lengths);
    let wrong = |source| wrong_table(at, &name, source);
    let answer = at.get_range(&name, Some(0..FIRST_BYTES)).await?;
    let (sent, file_bytes) = (answer.range.clone(), answer.meta.size);
    let first = at.body(&name, answer, sent.end - sent.start).await?;
    let end = table_end(&first, manifest).map_err(wrong)?;
    let table = match first.get(..end as usize) {
        Some(table) => first.slice_ref(table),
        None if file_bytes < end => {
            return Err(wrong(FormatError::Truncated { found_bytes: file_bytes, expected_bytes: end }));
        }
        None => part_of(at, &name, 0..end).await?,
    };
    SequenceTable::open((&table, file_bytes), (sequences, lengths), (manifest, view)).map_err(wrong)
}
