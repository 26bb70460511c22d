//! What the status of a job says of its sequences.

use serde::{Deserialize, Serialize};
use spdl_job::Job;

/// What the sequences of a job hold, in each epoch; of several sources in round numbers, by their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SequenceStatus {
    pub seq_len: u32,
    /// Documents that are packed, and those that are left out, of all sources.
    pub documents: u64,
    pub tokens: u64,
    /// Places without a token.
    pub padding: u64,
}

impl SequenceStatus {
    /// Returns those of a job; `None` if its samples are no sequences.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let (sequence, tokens) = (job.sequence.as_deref()?, job.epoch_tokens());
        let padding = job.samples.saturating_mul(sequence.seq_len.into()).saturating_sub(tokens);
        Some(Self { seq_len: sequence.seq_len, documents: sequence.documents, tokens, padding })
    }

    /// Returns the share of places that hold a token.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.tokens as f64 / self.tokens.saturating_add(self.padding).max(1) as f64
    }
}
