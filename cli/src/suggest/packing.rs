//! Suggests how the documents of a dataset of tokens are packed into sequences.

use super::facts::{FieldFacts, RecordFacts};
use crate::kind::{ValueKind, dtype_of};

/// Names of fields that hold the ids of tokens.
const TOKENS: [&str; 4] = ["tokens", "input_ids", "ids", "token_ids"];
/// Names of fields with a value for each token, which go with the ids and follow from packing, or are about text of one document.
const WITH_TOKENS: [&str; 6] = ["attention_mask", "labels", "loss", "modes", "special_tokens_mask", "token_type_ids"];
/// The tokens of a sequence: at most, and at least where a dataset is small.
const MAX_SEQ_LEN: u64 = 4096;
const MIN_SEQ_LEN: u64 = 128;
/// Sequences that a dataset is to have at least, as far as it is large enough.
const SEQUENCES: u64 = 256;
/// Steps that an epoch is to have at least.
const STEPS: u64 = 4;

/// The lengths of documents that were looked at, and of what they are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenTokens {
    mean: f64,
    longest: u64,
    /// Whether each has a mask, which says what is learned: then it is an answer with its question, and is not cut.
    pub(super) is_masked: bool,
    /// The largest id that was seen, if it was looked for.
    pub(super) largest: Option<i64>,
}

/// The length of sequences, and how many of them make a batch at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SuggestedSequences {
    pub(super) seq_len: u64,
    pub(super) batch: u32,
}

/// Returns the field of tokens of records that have nothing else, and its name. `is_tokenized`: the dataset has the facts of a tokenizer.
pub(super) fn tokens_alone(facts: &RecordFacts, is_tokenized: bool) -> Option<(&str, &FieldFacts)> {
    let mut others = facts.fields.iter().filter(|(name, _)| !WITH_TOKENS.contains(&name.as_str()));
    let (name, field) = others.next()?;
    let is_alone = others.next().is_none() && field.records == facts.records && field.problem.is_none();
    (is_alone && is_tokens(name, field, is_tokenized)).then_some((name.as_str(), field))
}

/// Returns whether a field is called, and looks, as those of ids do: arrays of whole numbers that differ in length, or need not where
/// the dataset is known to be of tokens.
pub(super) fn is_tokens(name: &str, field: &FieldFacts, is_tokenized: bool) -> bool {
    let differ = matches!(field.sides(), Some([least, most]) if least.len() == 1 && (is_tokenized || least < most));
    TOKENS.contains(&name) && differ && dtype(field).is_some_and(|dtype| dtype.starts_with(['i', 'u']))
}

fn dtype(field: &FieldFacts) -> Option<&str> {
    match field.kind()? {
        ValueKind::Array(dtype, _) => Some(dtype),
        ValueKind::Npy(descr, _) => dtype_of(descr),
        _ => None,
    }
}

impl SeenTokens {
    pub(super) fn of(field: &FieldFacts, is_masked: bool) -> Self {
        let bits: f64 = dtype(field).and_then(|dtype| dtype[1..].parse().ok()).unwrap_or(32.0);
        let longest = field.sides().map_or(0, |[_, most]| most.iter().product());
        Self { mean: field.mean_bytes() * 8.0 / bits, longest, is_masked, largest: field.largest }
    }

    /// Returns sequences of so many documents: long ones of many tokens, and of few ones so short that there are some steps. Documents with
    /// masks that were seen fit into them, as far as that is not too long.
    pub(super) fn sequences(self, documents: u64) -> SuggestedSequences {
        let tokens = (self.mean * documents as f64) as u64;
        let whole = if self.is_masked { self.longest.next_power_of_two() } else { 0 };
        let seq_len = 1 << (tokens / SEQUENCES).max(whole).clamp(MIN_SEQ_LEN, MAX_SEQ_LEN).ilog2();
        let batch = (tokens / seq_len / STEPS).clamp(1, u32::MAX.into()) as u32;
        SuggestedSequences { seq_len, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_documents_make_short_sequences_and_small_batches() {
        let of = |mean, documents| {
            let seen = SeenTokens { mean, longest: 3000, is_masked: false, largest: None };
            let SuggestedSequences { seq_len, batch } = seen.sequences(documents);
            (seq_len, batch)
        };
        assert_eq!(of(1000.0, 1_000_000), (4096, 61_035));
        assert_eq!(of(1000.0, 1000), (2048, 122));
        assert_eq!(of(100.0, 50), (128, 9));
        assert_eq!(of(3.0, 5), (128, 1));
        assert_eq!(of(0.0, 5), (128, 1));
    }

    #[test]
    fn documents_with_masks_are_whole() {
        let of = |longest| SeenTokens { mean: 50.0, longest, is_masked: true, largest: None }.sequences(60).seq_len;
        assert_eq!([of(50), of(187), of(256), of(70_000)], [128, 256, 256, 4096]);
    }
}
