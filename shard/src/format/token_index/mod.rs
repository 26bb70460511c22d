//! The index of a run of documents in a file of tokens, for all formats that store tokens.
//!
//! A file of tokens can be long, so it is many shards: a shard is a run of its documents, and its bytes are a part of the file's.
//! The shard's path is that of the file, and a number below it: `web.bin/000003`. Reading a shard takes its index, which names
//! size and place in the file; no token has a checksum, so that only size and etag of the file show whether it changed.

mod build;
mod index;
mod runs;

pub use build::{DocumentModes, TokenShardFacts};
pub(super) use index::TokenIndex;
pub use runs::{TokenRun, TokenRuns};

use crate::manifest::Shard;

/// The field of a document's tokens: an array of one dimension.
pub const TOKENS: &str = "tokens";
/// The field of a document's modes, one for each of its sequences, where the file has modes.
pub const MODES: &str = "modes";
/// The field of a document's mask of the loss, a byte for each token, where the file has one beside it.
pub const LOSS: &str = "loss";

/// The suffix of the file that holds a mask of the loss for another file.
pub const LOSS_SUFFIX: &str = ".loss";

/// Upper limit of the bytes of a shard's tokens, unless a single document is longer. With it, the index of a shard stays small
/// however long its file is.
pub const MAX_SHARD_BYTES: u64 = 256 << 20;
/// Upper limit of the documents of a shard.
pub const MAX_SHARD_DOCUMENTS: usize = 1 << 20;
/// Upper limit of the modes of a shard.
pub const MAX_SHARD_MODES: usize = 1 << 22;

/// Returns the path of shard number `number` of the file at `file`.
#[must_use]
pub fn shard_path(file: &str, number: u32) -> String {
    format!("{file}/{number:06}")
}

/// Returns the path of the file that holds the tokens of `shard`.
fn file_of<'s>(shard: &Shard<'s>) -> &'s str {
    shard.url.rsplit_once('/').map_or(shard.url, |(file, _)| file)
}
