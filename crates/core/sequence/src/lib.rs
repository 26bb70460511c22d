//! Sequences of tokens: how documents become sequences of one length, and which pieces of documents a sequence has.
//!
//! Consecutive blocks of a dataset form a pool. The documents of a pool fill a number of sequences that is the same in
//! every epoch, so sequences are countable samples of the order, as pictures are. Which documents share a sequence changes
//! from epoch to epoch. All of it is a pure function of the lengths, the seed and the [`SequenceParams`];
//! `docs/spec/sequences.md` has the mathematics. Beside that, the loops that write tokens and what follows them into the places of sequences.
//!
//! ```
//! use std::sync::Arc;
//! use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, SequenceParams};
//!
//! let method = PackMethod::BestFit { align: 1, max_documents: None, long: LongDocument::Split };
//! let params = SequenceParams { version: 1, seq_len: 8, added_tokens: 0, method };
//! let layout = Arc::new(PoolLayout::new(&params, [3, 20, 5].as_slice())?);
//! assert_eq!(layout.sequences(), 4); // 8 tokens of the long document, 8 more, 3 + 5, and its other 4
//! let mut pieces = Vec::new();
//! PoolEpoch::new(layout, 17, 0, 0).pieces(2, &mut pieces);
//! assert_eq!(pieces.iter().map(|piece| (piece.document, piece.tokens)).collect::<Vec<_>>(), [(2, 5), (0, 3)]);
//! # Ok::<(), spdl_sequence::SequenceError>(())
//! ```

mod best_fit;
mod layout;
mod open_runs;
mod params;
mod places;
mod pool_epoch;
mod pools;
mod sequence_fill;
mod token_range;

pub use layout::PoolLayout;
pub use params::{LongDocument, PackMethod, SEQUENCE_VERSION, SequenceParams};
pub use places::{copy_places, count_places, fill_places};
pub use pool_epoch::{Piece, PoolEpoch};
pub use pools::{PoolCutter, Pools, TokenPool};
pub use sequence_fill::SequenceFill;
pub use token_range::{TokenRange, WrongToken, can_be_ids};

/// Why parameters and lengths make no sequences.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum SequenceError {
    /// The parameters were made by another version of the software.
    #[error("version `{version}` of sequences is not known; this build knows version {SEQUENCE_VERSION}")]
    Version { version: u32 },
    /// A parameter is 0.
    #[error("`{parameter}` is 0; it must be at least 1")]
    Zero { parameter: &'static str },
    /// Lengths would be rounded up to more than a sequence holds.
    #[error("`align` is {align}, more than the {seq_len} tokens of a sequence; lower it")]
    AlignTooLarge { align: u32, seq_len: u32 },
    /// The number of blocks does not fit into 32 bits.
    #[error("the dataset has more than 2^32 - 1 blocks; index it with larger blocks")]
    TooManyBlocks,
    /// The number of a pool's documents does not fit into 32 bits.
    #[error(
        "a pool has {documents} documents, more than 2^32 - 1; lower `pool_tokens`, or index the dataset with smaller blocks"
    )]
    TooManyDocuments { documents: u64 },
    /// The number of a pool's tokens does not fit into 64 bits.
    #[error("the first {documents} documents of a pool have more than 2^64 - 1 tokens; check their lengths")]
    TooManyTokens { documents: u64 },
    /// The number of a pool's sequences does not fit into 32 bits.
    #[error(
        "a pool has {sequences} sequences, more than 2^32 - 1; its longest document is number {longest} of the pool, with {tokens} \
         tokens: check its length, raise `seq_len`, or set `long` to \"truncate\" or \"drop\""
    )]
    TooManySequences { sequences: u64, longest: u32, tokens: u64 },
    /// A pool cannot be packed; the error is of the documents of these blocks.
    #[error("blocks {} to {}: {source}", blocks.start, blocks.end.saturating_sub(1))]
    InBlocks { blocks: std::ops::Range<u32>, source: Box<SequenceError> },
    /// The counts of all pools together do not fit into 64 bits, or the sequences of one of them into 32.
    #[error(
        "the pools up to number {pool} have more than 2^64 - 1 tokens, or it more than 2^32 - 1 sequences; check the lengths of their documents"
    )]
    SumTooLarge { pool: u64 },
    /// A pool ends with no block that is after the pool before it.
    #[error(
        "pool {pool} ends before block {end}, as does the pool before it, or that ends later; list pools in order, each of one block or more"
    )]
    PoolsOutOfOrder { pool: u64, end: u32 },
}
