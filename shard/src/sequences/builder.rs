//! Makes the file of evaluated sequences, pool by pool.

use bytes::Bytes;
use spdl_sequence::{Pools, SequenceFill, TokenPool};
use spdl_types::Fingerprint;

use super::{
    LearnedTokens, LengthsAt, MadeSequences, NUMBER_BYTES,
    form::{KIND, TableForm},
};
use crate::{
    FormatError,
    envelope::{self, HEAD_BYTES},
};

/// A pool whose documents are counted: what the table has of it. Pools can be counted side by side.
#[derive(Debug)]
pub struct CountedPool {
    pool: TokenPool,
    fill: SequenceFill,
    learned: Option<Vec<u32>>,
    checksum: u32,
}

/// Collects pools in order.
#[derive(Debug, Default)]
pub struct SequenceTableBuilder {
    rows: Vec<u8>,
    /// What is known of documents, behind room for the table.
    documents: Vec<u8>,
    lengths: LengthsAt,
    table_room: usize,
    pools: Vec<(u32, SequenceFill)>,
    learned: Option<LearnedTokens>,
}

impl CountedPool {
    /// Collects what is known of a pool; `learned` are the [learned tokens](super::PoolDocuments::learned) of the pieces of its documents, if they
    /// have masks.
    #[must_use]
    pub fn new(pool: TokenPool, fill: SequenceFill, learned: Option<Vec<u32>>) -> Self {
        let checksum = checksum_of([&pool.lengths[..], learned.as_deref().unwrap_or_default()]);
        Self { pool, fill, learned, checksum }
    }
}

/// Returns the CRC-32C of what is known of a pool's documents.
pub(super) fn checksum_of<'n>(known: impl IntoIterator<Item = &'n [u32]>) -> u32 {
    let mut checksum = 0;
    for numbers in known {
        each_bytes(numbers, |bytes| checksum = crc32c::crc32c_append(checksum, bytes));
    }
    checksum
}

/// Passes the bytes of numbers to `take`, some at a time.
fn each_bytes(numbers: &[u32], mut take: impl FnMut(&[u8])) {
    /// They stay in the fastest cache.
    const AT_ONCE: usize = 1024;
    let mut bytes = [[0; 4]; AT_ONCE];
    for numbers in numbers.chunks(AT_ONCE) {
        bytes.iter_mut().zip(numbers).for_each(|(bytes, number)| *bytes = number.to_le_bytes());
        take(bytes[..numbers.len()].as_flattened());
    }
}

impl SequenceTableBuilder {
    /// Creates a builder of a table whose documents have their lengths there. Documents with masks have them in the table.
    #[must_use]
    pub fn new(lengths: LengthsAt) -> Self {
        Self { lengths, ..Self::default() }
    }

    /// Makes room for so many documents and pools, so that what is known of them is not copied as it grows, nor for the table before it.
    ///
    /// # Panics
    /// If there are pools already.
    pub fn reserve(&mut self, documents: u64, pools: u32) {
        assert!(self.documents.is_empty(), "room is made before the first pool");
        let form = TableForm { has_learned: true };
        let table_room = form.table_at() + pools as usize * form.row_bytes();
        self.documents.reserve_exact(usize::try_from(documents * NUMBER_BYTES).unwrap_or(0).saturating_add(table_room));
        self.documents.resize(table_room, 0);
        self.table_room = table_room;
    }

    /// Adds to what the documents of all pools have together. Called before the first pool, it makes a table of documents with masks.
    pub fn add_learned(&mut self, more: LearnedTokens) {
        let learned = self.learned.get_or_insert_default();
        learned.tokens += more.tokens;
        learned.unlearned_documents += more.unlearned_documents;
    }

    /// Adds the next pool.
    ///
    /// # Panics
    /// If some pools have masks, and others have none, or their lengths are not in the table.
    pub fn push(&mut self, CountedPool { pool, fill, learned, checksum }: CountedPool) {
        assert_eq!(learned.is_some(), self.learned.is_some(), "all documents have masks, or none");
        assert!(learned.is_none() || self.lengths == LengthsAt::Table, "no index knows what is learned");
        if self.lengths == LengthsAt::Table {
            for numbers in [&pool.lengths[..], learned.as_deref().unwrap_or_default()] {
                each_bytes(numbers, |bytes| self.documents.extend_from_slice(bytes));
            }
        }
        let sequences = u32::try_from(fill.sequences).expect("a pool has fewer than 2^32 sequences");
        let documents = u32::try_from(pool.lengths.len()).expect("a pool has fewer than 2^32 documents");
        let row = [pool.blocks.end, documents, sequences, checksum];
        let pieces = learned.map(|pieces| u32::try_from(pieces.len()).expect("a pool has fewer than 2^32 pieces"));
        self.rows.extend(row.into_iter().chain(pieces).flat_map(u32::to_le_bytes));
        self.pools.push((pool.blocks.end, fill));
    }

    /// Returns the file.
    ///
    /// # Errors
    /// If the pools do not follow each other, or have too many tokens.
    pub fn finish(self) -> Result<MadeSequences, FormatError> {
        let unwritable = |error: spdl_sequence::SequenceError| FormatError::Unwritable(error.to_string());
        let count = u32::try_from(self.pools.len()).expect("no more pools than blocks");
        let fill = Pools::new(self.pools).map_err(unwritable)?.fill();
        let mut table = vec![0; HEAD_BYTES];
        table.extend(count.to_le_bytes());
        table.extend(0_u32.to_le_bytes());
        table.extend(fill.counts().into_iter().flat_map(u64::to_le_bytes));
        let form = TableForm { has_learned: self.learned.is_some() };
        let learned = self.learned.map(|LearnedTokens { tokens, unlearned_documents }| [tokens, unlearned_documents]);
        table.extend(learned.into_iter().flatten().flat_map(u64::to_le_bytes));
        table.extend(self.rows);
        envelope::seal(&KIND, form.version(), &mut table);
        let (fingerprint, mut whole) = (Fingerprint::of(&table), self.documents);
        let spare = self.table_room.saturating_sub(table.len());
        drop(whole.splice(spare..self.table_room, table));
        Ok(MadeSequences { file: Bytes::from(whole).slice(spare..), fingerprint, lengths: self.lengths })
    }
}
