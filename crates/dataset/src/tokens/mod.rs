//! Writes documents of tokens as Megatron's pairs of `.bin` and `.idx`, or, with masks, as datatrove's `.ds`: those of a dataset of any format, or those that a program
//! makes.

mod begin;
mod build;
mod dataset_source;
mod documents;
mod encoding;
mod index_files;
mod pack;
mod writer;

pub(crate) use build::remove_plan_and_runs;
pub use build::{
    DocumentSource, EachDocument, SourceDocument, TokenBuildOptions, TokenBuildProgress, TokenBuildReport,
    TokenPartReport, build_token_part, build_tokens, merge_tokens,
};
pub use dataset_source::DatasetDocuments;
pub use documents::ReadTokens;
pub use encoding::{TokenDocuments, TokenEncoding};
pub use pack::{TokenPackOptions, pack_tokens, pack_tokens_until};
pub use writer::{TokenShard, TokenShardWriter};
