//! From text and chats to tokens.

pub mod chat;
mod documents;
mod parts;
mod source;
mod tokenizer;

pub use documents::{DocumentText, TokenizedSource};
pub use parts::{TextPart, text_parts};
pub use source::{EachText, PlainText, RecordText, TextOptions, TextSource};
pub use tokenizer::{MAX_TOKENIZER_BYTES, SpecialTokens, Tokenizer, TokenizerError};
