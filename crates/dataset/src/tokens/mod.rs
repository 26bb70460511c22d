//! Writes documents of tokens as Megatron's pairs of `.bin` and `.idx`: those of a dataset of any format, or those that a program
//! makes.

mod documents;
mod idx;
mod pack;
mod writer;

pub use documents::ReadTokens;
pub use pack::{TokenPackOptions, pack_tokens, pack_tokens_until};
pub use writer::{TokenDocuments, TokenEncoding, TokenShard, TokenShardWriter};
