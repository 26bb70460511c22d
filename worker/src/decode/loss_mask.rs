//! Masks of documents: which of their tokens are learned.

use std::ops::Range;

use spdl_job::Sequence;
use spdl_sequence::{PackMethod, Piece, can_be_ids};
use spdl_shard::format::{Array, FieldValue};
use spdl_types::DType;

use super::column::{MAX_DOCUMENT_BYTES, whole_numbers};

/// Which tokens of a document are learned.
pub(super) struct LossMask {
    array: Array,
    /// Number of tokens that are added before the document's own.
    before: u64,
}

impl LossMask {
    /// Reads the mask of a document of `tokens` tokens of its own.
    ///
    /// # Errors
    /// What is wrong with the value, to follow the name of its field.
    pub(super) fn read(value: FieldValue, tokens: u64, sequence: &Sequence) -> Result<Self, String> {
        let takes = |dtype| can_be_ids(dtype) || dtype == DType::Bool;
        let check = |values: u64| match values == tokens {
            true => Ok(()),
            false => Err(format!("it has {values} values, and its document {tokens} tokens: a mask has one for each")),
        };
        let array = whole_numbers(value, MAX_DOCUMENT_BYTES, takes, check)?;
        Ok(Self { array, before: sequence.bos.is_some().into() })
    }

    /// Returns whether a token is learned: a number among the document's tokens with those that are added, which are learned as the
    /// token beside them.
    pub(super) fn is_learned(&self, token: u64) -> bool {
        let own = token.saturating_sub(self.before).min(self.array.shape[0] - 1) as usize;
        let width = self.array.dtype.bytes();
        self.array.elements[own * width..][..width].iter().any(|byte| *byte != 0)
    }

    fn count(&self, tokens: Range<u64>) -> u32 {
        tokens.filter(|token| self.is_learned(*token)).count() as u32
    }
}

/// Returns how many labels of each piece of a document are learned, in the order of its tokens; by chunk, where pieces change, how
/// many of its tokens. `tokens` is the number of its own, and `mask` says which are learned.
///
/// # Errors
/// What is wrong with the mask, to follow the name of its field.
pub fn count_learned(sequence: &Sequence, shifted: bool, mask: &FieldValue, tokens: u32) -> Result<Vec<u32>, String> {
    let mask = LossMask::read(mask.clone(), tokens.into(), sequence)?;
    let params = sequence.params();
    let [all, kept] = [params.all_tokens(tokens), params.kept_tokens(tokens)];
    if sequence.packing == PackMethod::Chunk {
        let not_learned = sequence.eos.is_some() && !sequence.eos_in_loss;
        return Ok(vec![mask.count(0..all.saturating_sub(not_learned.into()))]);
    }
    let seq_len = u64::from(sequence.seq_len);
    let count = |piece: u64| {
        let first = piece * seq_len;
        let tokens = seq_len.min(kept - first) as u32;
        let piece = Piece { document: 0, first, tokens, at: 0, ends_document: first + u64::from(tokens) == all };
        mask.count(sequence.label_tokens(&piece, all, shifted))
    };
    Ok((0..params.kept_pieces(tokens)).map(count).collect())
}
