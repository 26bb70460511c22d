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

    /// Counts a document; `None` if a sum does not fit into 64 bits.
    pub(crate) fn count(&mut self, params: &SequenceParams, length: u32) -> Option<()> {
        let (all, kept) = (params.all_tokens(length), params.kept_tokens(length));
        self.documents += 1;
        self.empty_documents += u64::from(all == 0);
        self.tokens = self.tokens.checked_add(kept)?;
        if kept < all {
            self.lost_tokens = self.lost_tokens.checked_add(all - kept)?;
            self.cut_documents += u64::from(kept > 0);
            self.lost_documents += u64::from(kept == 0);
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
