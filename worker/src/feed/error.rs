//! The errors that stop the feeding of a rank.

use std::sync::Arc;

use spdl_order::PlanError;
use spdl_store::StoreError;
use spdl_types::Fingerprint;
use spdl_wire::slab::SlabError;

use crate::{NoFramesError, RustFunctionError, decode::DecoderError, fetch::FetchError, transform::TransformError};
use spdl_feed::TooManyBad;

/// The error of a rank that gets no more batches.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The session is invalid.
    #[error("session of job `{job}`, rank {rank}: {problem}")]
    Session {
        /// Name of the job.
        job: String,
        /// Number of the rank.
        rank: u32,
        /// What is wrong with it.
        problem: String,
    },
    /// The memory budget has no room for the minimum number of slots.
    #[error(
        "a batch for rank {rank} of job `{job}` takes {slot_bytes} bytes and room for {least} is needed, but of the worker's \
         {budget_bytes} bytes {free_bytes} are left for batches; raise its memory budget to {enough_bytes} bytes, or \
         make the batch or `max_bytes` smaller"
    )]
    Memory {
        /// Name of the job.
        job: String,
        /// Number of the rank.
        rank: u32,
        /// Bytes of one slot.
        slot_bytes: u64,
        /// Minimum number of slots.
        least: u32,
        /// Bytes that are left for slabs.
        free_bytes: u64,
        /// Bytes for slabs if there were no other ranks.
        slab_bytes: u64,
        /// The memory budget that would be enough.
        enough_bytes: u64,
        /// The whole memory budget.
        budget_bytes: u64,
    },
    /// What trainers have of batches leaves no room for a batch that the trainer of this rank needs.
    #[error(
        "rank {rank} of job `{job}` needs {needed_bytes} bytes for the batches that its trainer has and the next one, but of the \
         worker's {budget_bytes} bytes other ranks leave {left_bytes} for them; raise its memory budget to {enough_bytes} bytes, \
         or make the batch smaller"
    )]
    NoRoom {
        /// Name of the job.
        job: String,
        /// Number of the rank.
        rank: u32,
        /// Bytes that the rank needs.
        needed_bytes: u64,
        /// Bytes that other ranks leave it.
        left_bytes: u64,
        /// Bytes for slabs if there were no other ranks.
        slab_bytes: u64,
        /// The memory budget that would be enough.
        enough_bytes: u64,
        /// The whole memory budget.
        budget_bytes: u64,
    },
    /// The kernel refused the memory of the slab.
    #[error("slots for rank {rank} of job `{job}`: {source}")]
    Slab {
        /// Name of the job.
        job: String,
        /// Number of the rank.
        rank: u32,
        /// The error of the kernel.
        source: Arc<SlabError>,
    },
    /// The decoding threads cannot be started.
    #[error("decoding threads: {cause}")]
    Threads {
        /// The error of the operating system.
        cause: String,
    },
    /// The dataset lies in a store that this worker may not read.
    #[error("job `{job}`: {problem}")]
    Store {
        /// Name of the job.
        job: String,
        /// Where the dataset lies, and which stores are allowed.
        problem: String,
    },
    /// The dataset cannot be opened.
    #[error("dataset `{url}`: {source}")]
    Dataset {
        /// URL of the dataset.
        url: String,
        /// The error of the store.
        source: Arc<StoreError>,
    },
    /// The dataset is not the one that the job was created for.
    #[error(
        "dataset `{url}` has fingerprint {actual}; job `{job}` was created for {expected}: give the job a new name, or \
         the dataset its old content"
    )]
    DatasetDiffers {
        /// URL of the dataset.
        url: String,
        /// Name of the job.
        job: String,
        /// The fingerprint in the job.
        expected: Fingerprint,
        /// The fingerprint of the manifest.
        actual: Fingerprint,
    },
    /// The job's order parameters do not fit the dataset.
    #[error("order of job `{job}`: {source}")]
    Order {
        /// Name of the job.
        job: String,
        /// The error of the plan.
        source: Arc<PlanError>,
    },
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
    Index {
        /// URL of the shard.
        shard: String,
        /// Number of the sample in the shard.
        sample: u64,
    },
    /// A record lies outside its sample's block.
    #[error("shard `{shard}`: its record index puts a record of block {block} at bytes {start}..{end}, outside of it")]
    Span {
        /// URL of the shard.
        shard: String,
        /// Number of the block.
        block: u32,
        /// First byte of the record's field.
        start: u64,
        /// One past its last byte.
        end: u64,
    },
    /// A bad sample, in a job with `bad_samples = "fail"`.
    #[error("job `{job}` fails at its first bad sample: record `{key}` of shard `{shard}`: {cause}")]
    BadSample {
        /// Name of the job.
        job: String,
        /// URL of the shard.
        shard: String,
        /// Key of the record.
        key: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The job has more bad samples than it allows.
    #[error(transparent)]
    TooManyBad(#[from] TooManyBad),
    /// All substitutes that were tried for a bad sample are bad.
    #[error("job `{job}`: {attempts} substitutes in a row for the sample at {position} are bad; the last: {cause}")]
    NoSubstitute {
        /// Name of the job.
        job: String,
        /// Position of the bad sample in the stream.
        position: spdl_types::Position,
        /// Number of substitutes that were tried.
        attempts: u32,
        /// What is wrong with the last one.
        cause: String,
    },
    /// A slot was given back that the consumer did not have.
    #[error("slot {slot} is not lent, so it cannot be given back")]
    NotLent {
        /// Number of the slot.
        slot: u32,
    },
    /// A decoding thread panicked; the log names the place.
    #[error("a decoding thread panicked on a batch of job `{job}`; the worker's log names the place")]
    Panicked {
        /// Name of the job.
        job: String,
    },
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
