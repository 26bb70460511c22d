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
    /// Returns the eight counts in the order of the fields.
    #[must_use]
    pub const fn counts(self) -> [u64; 8] {
        let Self { sequences, places, tokens, lost_tokens, documents, empty_documents, cut_documents, lost_documents } =
            self;
        [sequences, places, tokens, lost_tokens, documents, empty_documents, cut_documents, lost_documents]
    }

    /// Returns what has these [`counts`](Self::counts).
    #[must_use]
    pub const fn of_counts(counts: [u64; 8]) -> Self {
        let [sequences, places, tokens, lost_tokens, documents, empty_documents, cut_documents, lost_documents] =
            counts;
        Self { sequences, places, tokens, lost_tokens, documents, empty_documents, cut_documents, lost_documents }
    }

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
        let mut sums = self.counts();
        for (sum, more) in sums.iter_mut().zip(other.counts()) {
            *sum = sum.checked_add(more)?;
        }
        Some(Self::of_counts(sums))
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
    fn counts_are_those_of_the_fields_in_their_order_and_add_up_to_64_bits() {
        let counts = [1, 2, 3, 4, 5, 6, 7, 8];
        let fill = SequenceFill::of_counts(counts);
        assert_eq!((fill.sequences, fill.places, fill.tokens, fill.lost_tokens), (1, 2, 3, 4));
        let documents = (fill.documents, fill.empty_documents, fill.cut_documents, fill.lost_documents);
        assert_eq!((documents, fill.counts()), ((5, 6, 7, 8), counts));
        assert_eq!(fill.checked_add(fill), Some(SequenceFill::of_counts(counts.map(|count| 2 * count))));
        for number in 0..counts.len() {
            let mut most = [0; 8];
            most[number] = u64::MAX;
            assert_eq!(fill.checked_add(SequenceFill::of_counts(most)), None, "count {number}");
        }
    }

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
