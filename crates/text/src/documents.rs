//! The documents of a source of texts, as ids of a tokenizer.

use std::collections::BTreeMap;

use spdl_dataset::{DatasetError, DocumentSource};
use spdl_shard::manifest::TokenizerFacts;
use spdl_types::Fingerprint;

use crate::{SpecialTokens, TextSource, Tokenizer};

/// The documents of a source of texts, tokenized.
#[derive(Debug)]
pub struct TokenizedSource {
    /// The texts.
    pub texts: TextSource,
    /// What makes ids of them.
    pub tokenizer: Tokenizer,
    /// Whether the tokens that the tokenizer puts around a text are added.
    pub special: SpecialTokens,
    /// The id that ends a document, if it is known.
    pub eos: Option<u32>,
    /// An id that each document ends with.
    pub append: Option<u32>,
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
        Some(TokenizerFacts {
            fingerprint: self.tokenizer.fingerprint(),
            vocab: self.tokenizer.vocab(),
            eos: self.append.or(self.eos),
            ends_with_eos: self.append.is_some(),
        })
    }

    fn source(&self) -> String {
        let (files, bytes) = (self.texts.files(), self.texts.bytes());
        format!("{files} {} of {bytes} bytes", if files == 1 { "file" } else { "files" })
    }

    fn unit_fingerprint(&self, unit: usize) -> Fingerprint {
        self.texts.unit_fingerprint(unit)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let append = self.append.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let special = format!("{:?}", self.special).to_lowercase();
        let plain_text = format!("{:?}", self.texts.options().plain_text).to_lowercase();
        let from = self.texts.options().from.join("|");
        let tokenizer = self.tokenizer.fingerprint().to_string();
        [
            ("the tokenizer", tokenizer),
            ("the field", from),
            ("plain text", plain_text),
            ("special tokens", special),
            ("the appended token", append),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn read(
        &self,
        unit: usize,
        each: &mut dyn FnMut(&[u32]) -> Result<Option<String>, DatasetError>,
    ) -> Result<(), DatasetError> {
        self.texts.read(unit, &mut |text, wrong| {
            let mut ids = self.tokenizer.encode(text, self.special).map_err(wrong)?;
            if !ids.is_empty() {
                ids.extend(self.append);
            }
            each(&ids)?.map_or(Ok(()), |problem| Err(wrong(problem)))
        })
    }
}
