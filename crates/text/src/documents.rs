//! The documents of a source of texts, as ids of a tokenizer.

use std::{borrow::Cow, collections::BTreeMap, num::NonZeroUsize};

use spdl_dataset::{DatasetError, DocumentSource, EachDocument, SourceDocument};
use spdl_shard::manifest::TokenizerFacts;
use spdl_types::Fingerprint;

use crate::{
    SpecialTokens, TextPart, TextSource, Tokenizer,
    chat::{ChatError, Chats},
    tokenizer::TokenIds,
};

/// The documents of a source of texts, tokenized.
#[derive(Debug)]
pub struct TokenizedSource {
    /// The texts.
    pub texts: TextSource,
    /// What makes ids of them.
    pub tokenizer: Tokenizer,
    /// What the texts are.
    pub text: DocumentText,
}

/// A document of a text, as ids.
struct TokenizedText<'i> {
    ids: Cow<'i, [u32]>,
    /// Which of them are learned, if the documents have masks.
    learned: Option<Vec<bool>>,
}

/// What a text is, and what becomes of it.
#[derive(Debug)]
pub enum DocumentText {
    /// A document.
    Document {
        /// Whether the tokens that the tokenizer puts around a text are added.
        special: SpecialTokens,
        /// The id that ends a document, if it is known.
        eos: Option<u32>,
        /// An id that each document ends with.
        append: Option<u32>,
    },
    /// A record with a conversation, whose documents have masks.
    Chat(Box<Chats>),
}

impl TokenizedSource {
    /// Returns the first `count` chats of the source in parts of their text; none of other documents. Blocks the
    /// thread, which may not be one of the runtime's own.
    ///
    /// # Errors
    /// If they cannot be read, or one is refused.
    pub fn shown(&self, count: NonZeroUsize) -> Result<Vec<Vec<TextPart>>, DatasetError> {
        let (DocumentText::Chat(chats), mut shown) = (&self.text, Vec::new()) else { return Ok(Vec::new()) };
        self.texts.first(count, &mut |record, wrong| {
            let document = chats.document(record.map_err(wrong)?, &self.tokenizer);
            shown.push(document.map_err(|error| wrong(refused(&error)))?.parts(&self.tokenizer));
            Ok(())
        })?;
        Ok(shown)
    }
}

impl TokenizedSource {
    /// Returns the document of a text, whose ids may be in `memory`, or what is wrong with it, in words that follow its name.
    fn tokenized<'i>(&self, text: &str, memory: &'i mut TokenIds) -> Result<TokenizedText<'i>, String> {
        match &self.text {
            DocumentText::Document { special, append, .. } => {
                self.tokenizer.encode_into(text, *special, memory)?;
                if !memory.as_slice().is_empty() {
                    append.iter().for_each(|id| memory.push(*id));
                }
                Ok(TokenizedText { ids: memory.as_slice().into(), learned: None })
            }
            DocumentText::Chat(chats) => {
                let document = chats.document(text, &self.tokenizer).map_err(|error| refused(&error))?;
                Ok(TokenizedText { ids: document.ids.into(), learned: Some(document.learned) })
            }
        }
    }
}

/// Returns what is wrong with a record, to follow its name.
fn refused(error: &ChatError) -> String {
    format!("is refused: {error}")
}

impl DocumentSource for TokenizedSource {
    fn units(&self) -> usize {
        self.texts.units()
    }

    fn bytes(&self) -> u64 {
        self.texts.bytes()
    }

    fn unit_bytes(&self, unit: usize) -> u64 {
        self.texts.unit_bytes(unit)
    }

    fn read_bytes(&self) -> u64 {
        self.texts.read_bytes()
    }

    fn token_bytes(&self) -> u64 {
        self.texts.text_bytes()
    }

    fn tokenizer(&self) -> Option<TokenizerFacts> {
        let (eos, ends_with_eos) = match self.text {
            DocumentText::Document { eos, append, .. } => (append.or(eos), append.is_some()),
            // The template ends it.
            DocumentText::Chat(_) => (None, false),
        };
        let (fingerprint, vocab) = (self.tokenizer.fingerprint(), self.tokenizer.vocab());
        Some(TokenizerFacts { fingerprint, vocab, eos, ends_with_eos })
    }

    fn source(&self) -> String {
        let (files, bytes) = (self.texts.files(), self.texts.bytes());
        format!("{files} {} of {bytes} bytes", if files == 1 { "file" } else { "files" })
    }

    fn unit_fingerprint(&self, unit: usize) -> Fingerprint {
        self.texts.unit_fingerprint(unit)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let tokenizer = ("the tokenizer", self.tokenizer.fingerprint().to_string());
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        let (special, append) = match &self.text {
            DocumentText::Chat(chats) => return chats.facts().into_iter().chain([named(tokenizer)]).collect(),
            DocumentText::Document { special, append, .. } => (special, append),
        };
        let append = append.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let special = format!("{special:?}").to_lowercase();
        let plain_text = format!("{:?}", self.texts.options().plain_text).to_lowercase();
        let from = self.texts.options().from.fields().join("|");
        [
            tokenizer,
            ("the field", from),
            ("plain text", plain_text),
            ("special tokens", special),
            ("the appended token", append),
        ]
        .map(named)
        .into()
    }

    fn read(&self, unit: usize, each: &mut EachDocument<'_>) -> Result<(), DatasetError> {
        let mut memory = TokenIds::default();
        self.texts.read(unit, &mut |text, wrong| {
            let problem = match text.and_then(|text| self.tokenized(text, &mut memory)) {
                Ok(TokenizedText { ids, learned }) => each(SourceDocument::Ids(&ids, learned.as_deref()))?,
                Err(problem) => Some(problem),
            };
            match problem {
                Some(problem) => each(SourceDocument::Bad(wrong(problem))).map(drop),
                None => Ok(()),
            }
        })
    }
}
