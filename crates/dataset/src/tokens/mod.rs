//! Writes documents of tokens as Megatron's pairs of `.bin` and `.idx`: those of a dataset of any format, or those that a program
//! makes.

mod begin;
mod build;
mod documents;
mod idx;
mod pack;
mod writer;

pub(crate) use build::remove_runs;
pub use build::{
    DocumentSource, TokenBuildOptions, TokenBuildProgress, TokenBuildReport, TokenPartReport, build_token_part,
    build_tokens, merge_tokens,
};
pub use documents::ReadTokens;
pub use pack::{TokenPackOptions, pack_tokens, pack_tokens_until};
pub use writer::{TokenDocuments, TokenEncoding, TokenShard, TokenShardWriter};
