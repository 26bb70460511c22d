//! Pools: how consecutive blocks of a dataset are gathered until their documents fill many sequences.

use std::ops::Range;

use crate::{PoolLayout, SequenceError, SequenceFill, SequenceParams};

/// Consecutive blocks whose documents are packed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPool {
    /// The numbers of the blocks.
    pub blocks: Range<u32>,
    /// The tokens of each of their documents, in order.
    pub lengths: Vec<u32>,
}

impl TokenPool {
    /// Returns how many sequences the documents fill, and what became of them.
    ///
    /// # Errors
    /// Those of [`PoolLayout::count`], with the blocks.
    pub fn count(&self, params: &SequenceParams) -> Result<SequenceFill, SequenceError> {
        let in_blocks = |error| SequenceError::InBlocks { blocks: self.blocks.clone(), source: Box::new(error) };
        PoolLayout::count(params, &self.lengths).map_err(in_blocks)
    }
}

/// Gathers blocks into pools. A pool is closed once its documents keep `pool_tokens` tokens. A document that keeps none
/// counts as one token, so that a pool has at most `pool_tokens` documents, and one block more.
///
/// Pools depend on each other in nothing but where they are cut, so each can be counted by a thread of its own.
#[derive(Clone, Debug)]
pub struct PoolCutter {
    params: SequenceParams,
    pool_tokens: u64,
    open: TokenPool,
    tokens: u64,
}

impl PoolCutter {
    /// Creates a cutter that has no block yet. `pool_tokens` is at least 1; [`SequenceParams::default_pool_tokens`] suits
    /// most datasets.
    ///
    /// # Errors
    /// [`SequenceError`] that names the parameter that is not valid.
    pub fn new(params: SequenceParams, pool_tokens: u64) -> Result<Self, SequenceError> {
        params.check()?;
        if pool_tokens == 0 {
            return Err(SequenceError::Zero { parameter: "pool_tokens" });
        }
        Ok(Self { params, pool_tokens, open: TokenPool { blocks: 0..0, lengths: Vec::new() }, tokens: 0 })
    }

    /// Adds the next block, whose documents have these numbers of tokens, and returns the pool that it closes, if it closes
    /// one.
    ///
    /// # Errors
    /// [`SequenceError`] if there are too many blocks, or too many documents in a pool.
    pub fn push(&mut self, lengths: &[u32]) -> Result<Option<TokenPool>, SequenceError> {
        let end = self.open.blocks.end.checked_add(1).ok_or(SequenceError::TooManyBlocks)?;
        let documents = self.open.lengths.len() as u64 + lengths.len() as u64;
        if documents > u64::from(u32::MAX) {
            return Err(SequenceError::TooManyDocuments { documents });
        }
        self.open.lengths.extend_from_slice(lengths);
        self.open.blocks.end = end;
        let counted = |length: &u32| self.params.kept_tokens(*length).max(1);
        // So few documents have fewer than 2^64 tokens.
        let counted = |lengths: &[u32]| lengths.iter().map(counted).fold(0, u64::wrapping_add);
        self.tokens = lengths.chunks(1 << 16).map(counted).fold(self.tokens, u64::saturating_add);
        if self.tokens < self.pool_tokens {
            return Ok(None);
        }
        self.tokens = 0;
        // The next pool has about as many documents.
        let next = Vec::with_capacity(self.open.lengths.len() + lengths.len() / 2);
        Ok(Some(std::mem::replace(&mut self.open, TokenPool { blocks: end..end, lengths: next })))
    }

    /// Returns the blocks after the last pool, which are a smaller one, if there are any.
    #[must_use]
    pub fn finish(self) -> Option<TokenPool> {
        Some(self.open).filter(|open| !open.blocks.is_empty())
    }
}

/// The pools of a dataset, and how many sequences each has; 8 bytes a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    /// The block after the last of each pool.
    ends: Box<[u32]>,
    sequences: Box<[u32]>,
    fill: SequenceFill,
}

impl Pools {
    /// Gathers pools in order, each as the block after its last one and what [`TokenPool::count`] has counted.
    ///
    /// # Errors
    /// [`SequenceError`] if pools are out of order, or if their counts together exceed 64 bits.
    pub fn new(counted: impl IntoIterator<Item = (u32, SequenceFill)>) -> Result<Self, SequenceError> {
        let (mut ends, mut sequences, mut all) = (Vec::new(), Vec::new(), SequenceFill::default());
        for (pool, (end, fill)) in (0..).zip(counted) {
            if end <= ends.last().copied().unwrap_or(0) {
                return Err(SequenceError::PoolsOutOfOrder { pool, end });
            }
            ends.push(end);
            let too_large = || SequenceError::SumTooLarge { pool };
            sequences.push(u32::try_from(fill.sequences).map_err(|_| too_large())?);
            all = all.checked_add(fill).ok_or_else(too_large)?;
        }
        Ok(Self { ends: ends.into(), sequences: sequences.into(), fill: all })
    }

    /// Cuts a dataset into pools and counts them one after another. `blocks` has the tokens of each block's documents. Only
    /// the lengths of one pool are in memory.
    ///
    /// # Errors
    /// [`SequenceError`] of the parameters, the blocks or a pool.
    pub fn of_blocks<B: AsRef<[u32]>>(
        params: &SequenceParams,
        pool_tokens: u64,
        blocks: impl IntoIterator<Item = B>,
    ) -> Result<Self, SequenceError> {
        let mut cutter = PoolCutter::new(*params, pool_tokens)?;
        let mut counted = Vec::new();
        let mut count = |pool: TokenPool| {
            counted.push((pool.blocks.end, pool.count(params)?));
            Ok(())
        };
        for block in blocks {
            cutter.push(block.as_ref())?.map_or(Ok(()), &mut count)?;
        }
        cutter.finish().map_or(Ok(()), count)?;
        Self::new(counted)
    }

    /// Returns the number of sequences in each pool: what the order takes for samples of blocks.
    #[must_use]
    pub fn sequences(&self) -> &[u32] {
        &self.sequences
    }

    /// Returns the numbers of a pool's blocks in the dataset; `None` if there is no such pool.
    #[must_use]
    pub fn blocks(&self, pool: u32) -> Option<Range<u32>> {
        let end = *self.ends.get(pool as usize)?;
        let start = pool.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        Some(start..end)
    }

    /// Returns the pool of a block; `None` if the dataset has no such block.
    #[must_use]
    pub fn of_block(&self, block: u32) -> Option<u32> {
        let pool = self.ends.partition_point(|end| *end <= block);
        (pool < self.ends.len()).then_some(pool as u32)
    }

    /// Returns what became of all documents.
    #[must_use]
    pub const fn fill(&self) -> SequenceFill {
        self.fill
    }
}
