//! Megatron: pairs of `NAME.bin`, which holds tokens and nothing else, and `NAME.idx`, which states where its documents are, as
//! Megatron-LM, Megatron-Core and NeMo write and read them.
//!
//! A document is a run of sequences, mostly one, and a record. Indexing reads the `.idx` alone, in pieces, and checks every number
//! in it: reading the `.bin` by its [index](super::token_index) takes neither the `.idx` nor its size in memory.

mod header;
mod reader;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, token_index::TokenIndex};
use crate::FormatError;

pub use header::IdxHeader;
pub use reader::{IdxDocuments, IdxReader, IdxSequences, IdxWants};

/// The suffix of a file of tokens.
pub const BIN_SUFFIX: &str = ".bin";
/// The suffix of the file that states where the documents of a `.bin` are.
pub const IDX_SUFFIX: &str = ".idx";

/// Megatron.
#[derive(Debug)]
pub struct Megatron;

impl Format for Megatron {
    fn name(&self) -> &'static str {
        "megatron"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(TokenIndex::open(bytes, expected)?))
    }
}
