//! What became of the documents of one pool or of several, in numbers.

use crate::SequenceParams;

/// Counts of sequences, and of the tokens and documents that are in them or not. They are the same in every epoch. Tokens
/// include those that documents get beside their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceFill {
    /// Sequences in an epoch.
    pub sequences: u64,
    /// Places for tokens in them: sequences times `seq_len`.
    pub places: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// Tokens that are in no sequence.
    pub lost_tokens: u64,
    /// All documents.
    pub documents: u64,
    /// Documents without a token.
    pub empty_documents: u64,
    /// Documents of which some tokens are always kept and the others never: `long = "truncate"`.
    pub cut_documents: u64,
    /// Documents that are in no sequence at all although they have tokens.
    pub lost_documents: u64,
}

impl SequenceFill {
    /// Returns the places that hold no token.
    #[must_use]
    pub const fn padding(&self) -> u64 {
        self.places - self.tokens
    }

    /// Returns the share of places that hold a token, from 0 to 1; 1 if there are no sequences.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.places == 0 { 1.0 } else { self.tokens as f64 / self.places as f64 }
    }

    /// Returns the counts of both together; `None` if one does not fit into 64 bits.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            sequences: self.sequences.checked_add(other.sequences)?,
            places: self.places.checked_add(other.places)?,
            tokens: self.tokens.checked_add(other.tokens)?,
            lost_tokens: self.lost_tokens.checked_add(other.lost_tokens)?,
            documents: self.documents.checked_add(other.documents)?,
            empty_documents: self.empty_documents.checked_add(other.empty_documents)?,
            cut_documents: self.cut_documents.checked_add(other.cut_documents)?,
            lost_documents: self.lost_documents.checked_add(other.lost_documents)?,
        })
    }

    /// Counts so many documents of one length; `None` if a sum does not fit into 64 bits.
    pub(crate) fn count(&mut self, params: &SequenceParams, (length, documents): (u32, u32)) -> Option<()> {
        let (all, kept, documents) = (params.all_tokens(length), params.kept_tokens(length), u64::from(documents));
        self.documents += documents;
        self.empty_documents += if all == 0 { documents } else { 0 };
        self.tokens = self.tokens.checked_add(kept.checked_mul(documents)?)?;
        if kept < all {
            self.lost_tokens = self.lost_tokens.checked_add((all - kept).checked_mul(documents)?)?;
            self.cut_documents += if kept > 0 { documents } else { 0 };
            self.lost_documents += if kept == 0 { documents } else { 0 };
        }
        Some(())
    }

    /// Sets the number of sequences that the counted documents fill by chunk.
    pub(crate) const fn chunk(&mut self, seq_len: u32) {
        let all = self.tokens;
        self.sequences = all.saturating_sub(1) / seq_len as u64;
        self.tokens = self.sequences * seq_len as u64;
        self.lost_tokens = all - self.tokens;
        if self.sequences == 0 {
            self.lost_documents = self.documents - self.empty_documents;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LongDocument, PackMethod};

    #[test]
    fn documents_of_one_length_are_counted_as_one_after_the_other_up_to_64_bits() {
        let of = |long, added_tokens| {
            let method = PackMethod::BestFit { align: 1, max_documents: None, long };
            SequenceParams { version: 1, seq_len: 8, added_tokens, method }
        };
        for long in [LongDocument::Split, LongDocument::Truncate, LongDocument::Drop] {
            let [mut together, mut apart] = [SequenceFill::default(); 2];
            for length in [0, 1, 8, 9, u32::MAX] {
                together.count(&of(long, 1), (length, 3)).unwrap();
                (0..3).for_each(|_| apart.count(&of(long, 1), (length, 1)).unwrap());
            }
            assert_eq!(together, apart, "{long:?}");
        }
        // Each has 2^33 - 2 tokens, which are kept or lost.
        for (long, expected) in [(LongDocument::Split, (u64::MAX << 32, 0)), (LongDocument::Drop, (0, u64::MAX << 32))]
        {
            let params = of(long, u32::MAX);
            let mut fill = SequenceFill::default();
            fill.count(&params, (u32::MAX, 1 << 31)).unwrap();
            assert_eq!((fill.tokens, fill.lost_tokens), expected);
            assert_eq!(fill.count(&params, (u32::MAX, 1)), None);
            assert_eq!(SequenceFill::default().count(&params, (u32::MAX, u32::MAX)), None);
        }
    }
}
