//! The errors that stop the feeding of a rank.

use std::sync::Arc;

use spdl_order::PlanError;
use spdl_store::StoreError;
use spdl_types::Fingerprint;
use spdl_wire::slab::SlabError;

use crate::{NoFramesError, RustFunctionError, decode::DecoderError, fetch::FetchError, transform::TransformError};
use spdl_feed::TooManyBad;

/// The error of a rank that gets no more batches. `slab_bytes` are those for slabs if there were no other ranks.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum FeedError {
    /// The session is invalid.
    #[error("session of job `{job}`, rank {rank}: {problem}")]
    Session { job: String, rank: u32, problem: String },
    /// The memory budget has no room for the minimum number of slots.
    #[error(
        "a batch for rank {rank} of job `{job}` takes {slot_bytes} bytes and room for {least} is needed, but of the worker's \
         {budget_bytes} bytes {free_bytes} are left for batches; raise its memory budget to {enough_bytes} bytes, or \
         make the batch or `max_bytes` smaller"
    )]
    Memory {
        job: String,
        rank: u32,
        slot_bytes: u64,
        least: u32,
        free_bytes: u64,
        slab_bytes: u64,
        enough_bytes: u64,
        budget_bytes: u64,
    },
    /// What trainers have of batches leaves no room for a batch that the trainer of this rank needs.
    #[error(
        "rank {rank} of job `{job}` needs {needed_bytes} bytes for the batches that its trainer has and the next one, but of the \
         worker's {budget_bytes} bytes other ranks leave {left_bytes} for them; raise its memory budget to {enough_bytes} bytes, \
         or make the batch smaller"
    )]
    NoRoom {
        job: String,
        rank: u32,
        needed_bytes: u64,
        left_bytes: u64,
        slab_bytes: u64,
        enough_bytes: u64,
        budget_bytes: u64,
    },
    /// The kernel refused the memory of the slab.
    #[error("slots for rank {rank} of job `{job}`: {source}")]
    Slab { job: String, rank: u32, source: Arc<SlabError> },
    /// The decoding threads cannot be started.
    #[error("decoding threads: {cause}")]
    Threads { cause: String },
    /// The dataset lies in a store that this worker may not read.
    #[error("job `{job}`: {problem}")]
    Store { job: String, problem: String },
    /// The dataset cannot be opened.
    #[error("dataset `{url}`: {source}")]
    Dataset { url: String, source: Arc<StoreError> },
    /// The dataset is another than the job was created for.
    #[error(
        "dataset `{url}` has fingerprint {actual}; job `{job}` was created for {expected}: give the job a new name, or \
         the dataset its old content"
    )]
    DatasetDiffers { url: String, job: String, expected: Fingerprint, actual: Fingerprint },
    /// The job's order parameters do not fit the dataset.
    #[error("order of job `{job}`: {source}")]
    Order { job: String, source: Arc<PlanError> },
    /// The job's columns cannot be decoded from this dataset.
    #[error(transparent)]
    Columns(#[from] DecoderError),
    /// The job's Python functions cannot be called.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// The job's functions in Rust cannot be called.
    #[error(transparent)]
    Function(#[from] RustFunctionError),
    /// The job's videos cannot be decoded.
    #[error(transparent)]
    Frames(#[from] NoFramesError),
    /// Bytes cannot be fetched, or are wrong.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The record index and the manifest contradict each other.
    #[error("shard `{shard}`: its record index has no sample {sample}")]
    Index { shard: String, sample: u64 },
    /// A record lies outside its sample's block.
    #[error("shard `{shard}`: its record index puts a record of block {block} at bytes {start}..{end}, outside of it")]
    Span { shard: String, block: u32, start: u64, end: u64 },
    /// A bad sample, in a job with `bad_samples = "fail"`.
    #[error("job `{job}` fails at its first bad sample: record `{key}` of shard `{shard}`: {cause}")]
    BadSample { job: String, shard: String, key: String, cause: String },
    /// The job has more bad samples than it allows.
    #[error(transparent)]
    TooManyBad(#[from] TooManyBad),
    /// All substitutes that were tried for a bad sample are bad.
    #[error("job `{job}`: {attempts} substitutes in a row for the sample at {position} are bad; the last: {cause}")]
    NoSubstitute { job: String, position: spdl_types::Position, attempts: u32, cause: String },
    /// A slot was given back that the consumer did not have.
    #[error("slot {slot} is not lent, so it cannot be given back")]
    NotLent { slot: u32 },
    /// A decoding thread panicked; the log names the place.
    #[error("a decoding thread panicked on a batch of job `{job}`; the worker's log names the place")]
    Panicked { job: String },
}

impl FeedError {
    /// Returns whether another worker, or this one later, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_retryable(),
            Self::Dataset { source, .. } => source.is_retryable(),
            // Once other ranks have gone there may be room.
            Self::Memory { slot_bytes, least, slab_bytes, .. } => slot_bytes * u64::from(*least) <= *slab_bytes,
            Self::NoRoom { needed_bytes, slab_bytes, .. } => needed_bytes <= slab_bytes,
            Self::Slab { .. } | Self::Panicked { .. } => true,
            _ => false,
        }
    }
}
