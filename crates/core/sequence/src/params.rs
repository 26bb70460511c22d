//! The parameters of sequences, and what they make of the length of one document.

use serde::{Deserialize, Serialize};

use crate::SequenceError;

/// The version of sequences that this code computes.
pub const SEQUENCE_VERSION: u32 = 1;

/// How documents become sequences, fixed when a job is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceParams {
    /// Version of the algorithm; this code knows version 1.
    pub version: u32,
    /// Places for tokens in a sequence; at least 1.
    pub seq_len: u32,
    /// Tokens that each document gets beside its own, such as one at its begin and one at its end. A document without
    /// tokens gets none.
    pub added_tokens: u32,
    /// How documents share sequences.
    pub method: PackMethod,
}

/// How documents share sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackMethod {
    /// Whole documents, each in the fullest sequence that has room for it; what stays free is padding.
    BestFit {
        /// The room of a document is rounded up to a multiple of this number of tokens, and to at most a sequence; at
        /// least 1. Documents with the same room exchange their places from epoch to epoch, so a larger unit mixes better
        /// and pads more.
        align: u32,
        /// The most pieces of documents in a sequence, at least 1; `None` without a limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_documents: Option<u32>,
        /// What is done with documents that are longer than a sequence.
        long: LongDocument,
    },
    /// Documents end to end, cut into sequences without padding.
    Chunk,
}

/// What happens to a document that is longer than a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LongDocument {
    /// It is cut into parts as long as a sequence, and the last part shares a sequence with others.
    #[default]
    Split,
    /// Its first tokens, as many as a sequence has, are kept.
    Truncate,
    /// It is left out.
    Drop,
}

impl SequenceParams {
    /// Returns an error if the parameters make no sequences of any documents.
    ///
    /// # Errors
    /// [`SequenceError`] that names the parameter.
    pub const fn check(&self) -> Result<(), SequenceError> {
        if self.version != SEQUENCE_VERSION {
            return Err(SequenceError::Version { version: self.version });
        }
        if self.seq_len == 0 {
            return Err(SequenceError::Zero { parameter: "seq_len" });
        }
        if let PackMethod::BestFit { align, max_documents, .. } = self.method {
            if align == 0 {
                return Err(SequenceError::Zero { parameter: "align" });
            }
            if align > self.seq_len {
                return Err(SequenceError::AlignTooLarge { align, seq_len: self.seq_len });
            }
            if matches!(max_documents, Some(0)) {
                return Err(SequenceError::Zero { parameter: "max_documents" });
            }
        }
        Ok(())
    }

    /// Returns the default number of tokens at which a pool is closed: 4 Mi, and at least 512 sequences. Smaller pools
    /// pad more: with 1 Mi, sequences of 32,768 tokens have 2 % of padding in place of 0.7 %. Larger ones are more to
    /// keep for a look-up.
    #[must_use]
    pub const fn default_pool_tokens(&self) -> u64 {
        let of_sequences = 512 * self.seq_len as u64;
        if of_sequences > 4 << 20 { of_sequences } else { 4 << 20 }
    }

    /// Returns the tokens of a document of this length together with those that it gets.
    #[must_use]
    pub const fn all_tokens(&self, length: u32) -> u64 {
        if length == 0 { 0 } else { length as u64 + self.added_tokens as u64 }
    }

    /// Returns how many of a document's tokens, from the first on, are packed. Chunk packs all of a pool's tokens but the
    /// last ones, and these are of another document in each epoch; they count here.
    #[must_use]
    pub const fn kept_tokens(&self, length: u32) -> u64 {
        let (tokens, seq_len) = (self.all_tokens(length), self.seq_len as u64);
        match self.method {
            PackMethod::BestFit { long: LongDocument::Truncate, .. } if tokens > seq_len => seq_len,
            PackMethod::BestFit { long: LongDocument::Drop, .. } if tokens > seq_len => 0,
            PackMethod::BestFit { .. } | PackMethod::Chunk => tokens,
        }
    }

    /// Returns how many pieces of at most a sequence these tokens of a document make.
    #[must_use]
    pub const fn kept_pieces(&self, length: u32) -> u64 {
        self.kept_tokens(length).div_ceil(self.seq_len as u64)
    }
}

/// Returns the room that a piece takes in its sequence: its tokens rounded up to `align`, and at most a sequence.
#[inline]
pub(crate) const fn room(tokens: u32, align: u32, seq_len: u32) -> u32 {
    let rounded = (tokens as u64).next_multiple_of(align as u64);
    if rounded < seq_len as u64 { rounded as u32 } else { seq_len }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best_fit(long: LongDocument) -> SequenceParams {
        let method = PackMethod::BestFit { align: 1, max_documents: None, long };
        SequenceParams { version: 1, seq_len: 100, added_tokens: 2, method }
    }

    #[test]
    fn a_document_keeps_what_its_method_keeps() {
        for (length, split, truncated, dropped) in
            [(0, 0, 0, 0), (1, 3, 3, 3), (98, 100, 100, 100), (99, 101, 100, 0), (u32::MAX, (1 << 32) + 1, 100, 0)]
        {
            assert_eq!(best_fit(LongDocument::Split).kept_tokens(length), split);
            assert_eq!(best_fit(LongDocument::Truncate).kept_tokens(length), truncated);
            assert_eq!(best_fit(LongDocument::Drop).kept_tokens(length), dropped);
        }
    }

    #[test]
    fn room_is_rounded_up_and_never_more_than_a_sequence() {
        for (tokens, align, seq_len, expected) in
            [(1, 1, 8, 1), (1, 4, 8, 4), (4, 4, 8, 4), (5, 4, 8, 8), (9, 4, 10, 10), (u32::MAX, 16, u32::MAX, u32::MAX)]
        {
            assert_eq!(room(tokens, align, seq_len), expected, "{tokens} {align} {seq_len}");
        }
    }

    #[test]
    fn parameters_that_make_no_sequences_are_refused_by_name() {
        let with = |version, seq_len, align, max_documents| {
            let method = PackMethod::BestFit { align, max_documents, long: LongDocument::Split };
            SequenceParams { version, seq_len, added_tokens: 0, method }.check()
        };
        assert_eq!(with(1, 8, 8, Some(1)), Ok(()));
        assert_eq!(with(2, 8, 8, None), Err(SequenceError::Version { version: 2 }));
        assert_eq!(with(1, 0, 1, None), Err(SequenceError::Zero { parameter: "seq_len" }));
        assert_eq!(with(1, 8, 0, None), Err(SequenceError::Zero { parameter: "align" }));
        assert_eq!(with(1, 8, 9, None), Err(SequenceError::AlignTooLarge { align: 9, seq_len: 8 }));
        assert_eq!(with(1, 8, 8, Some(0)), Err(SequenceError::Zero { parameter: "max_documents" }));
    }
}
