//! What a manifest notes of the tokenizer that the tokens of a dataset are of.

use spdl_types::Fingerprint;

use super::{ManifestError, open::ensure};
use crate::envelope::{u32_at, u128_at};

/// Bytes that a manifest has for it.
pub(super) const TOKENIZER_BYTES: usize = 28;
/// The greatest number of ids.
const MAX_VOCAB: u32 = 1 << 31;
/// Stands for no id.
const NO_ID: u32 = u32::MAX;

/// The tokenizer that the tokens of a dataset are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// Stands for all that decides the ids of a text. Two datasets with different ones are not of one model.
    pub fingerprint: Fingerprint,
    /// Number of ids: all are below it.
    pub vocab: u32,
    /// The id that ends a document, if it is known.
    pub eos: Option<u32>,
    /// Whether each document has that id at its end already.
    pub ends_with_eos: bool,
}

impl TokenizerFacts {
    pub(super) fn to_bytes(self) -> [u8; TOKENIZER_BYTES] {
        let mut bytes = [0; TOKENIZER_BYTES];
        bytes[..16].copy_from_slice(&self.fingerprint.0.to_le_bytes());
        for (place, number) in [(16, self.vocab), (20, self.eos.unwrap_or(NO_ID)), (24, self.ends_with_eos.into())] {
            bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads facts that were checked.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self {
            fingerprint: Fingerprint(u128_at(bytes, 0)),
            vocab: u32_at(bytes, 16),
            eos: Some(u32_at(bytes, 20)).filter(|id| *id != NO_ID),
            ends_with_eos: u32_at(bytes, 24) == 1,
        }
    }

    /// Checks that there can be such a tokenizer, and that `bytes` are how it is written.
    pub(super) fn check(self, bytes: &[u8]) -> Result<(), ManifestError> {
        let is_valid = (1..=MAX_VOCAB).contains(&self.vocab)
            && self.eos.is_none_or(|eos| eos < self.vocab)
            && (self.eos.is_some() || !self.ends_with_eos);
        ensure(is_valid && self.to_bytes() == bytes, || "its tokenizer cannot be one".to_owned())
    }
}
