//! Files of tokens of other programs: datatrove's `.ds` with its `.ds.index`, and tokens alone, where an end token ends each
//! document, as in Dolma and OLMo. Both become the same [index](super::token_index).

mod ends;
mod scan;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, token_index::TokenIndex};
use crate::FormatError;

pub use ends::{DsEnds, ds_dtype};
pub use scan::{EndToken, EndTokenReader, raw_dtype};

/// The suffix of datatrove's files of tokens.
pub const DS_SUFFIX: &str = ".ds";
/// The suffix of the file that states where the documents of a `.ds` end: `NAME.ds.index`.
pub const DS_INDEX_SUFFIX: &str = ".ds.index";
/// The suffix of the file that states which tokens of a `.ds` are learned: `NAME.ds.loss`.
pub const DS_LOSS_SUFFIX: &str = ".ds.loss";
/// Bytes of an end in a `.ds.index`.
pub const END_BYTES: u64 = 8;

/// datatrove.
#[derive(Debug)]
pub struct Datatrove;

impl Format for Datatrove {
    fn name(&self) -> &'static str {
        "datatrove"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(TokenIndex::open(bytes, expected)?))
    }
}

/// Tokens alone.
#[derive(Debug)]
pub struct RawTokens;

impl Format for RawTokens {
    fn name(&self) -> &'static str {
        "raw_tokens"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(TokenIndex::open(bytes, expected)?))
    }
}
