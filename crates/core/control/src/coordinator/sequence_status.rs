//! What the status of a job says of its sequences.

use serde::{Deserialize, Serialize};
use spdl_job::Sequence;

/// What the sequences of a job hold, in each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SequenceStatus {
    pub seq_len: u32,
    /// Documents that are packed, and those that are left out.
    pub documents: u64,
    pub tokens: u64,
    /// Places without a token.
    pub padding: u64,
}

impl SequenceStatus {
    pub(super) fn of(sequence: &Sequence, sequences: u64) -> Self {
        let Sequence { seq_len, documents, tokens, .. } = *sequence;
        let padding = sequences.saturating_mul(seq_len.into()).saturating_sub(tokens);
        Self { seq_len, documents, tokens, padding }
    }

    /// Returns the share of places that hold a token.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.tokens as f64 / self.tokens.saturating_add(self.padding).max(1) as f64
    }
}
