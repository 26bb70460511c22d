//! The progress of building files of tokens.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::work::RunTotals;
use crate::DatasetError;

/// Number of bad documents that a report names.
const NAMED_BAD: usize = 10;

/// Progress of building files of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBuildProgress {
    /// Documents so far, those of earlier calls included.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Of these, the tokens that this call has made.
    pub new_tokens: u64,
    /// Bytes of the source so far; once all are done, bytes of shards.
    pub bytes: u64,
    /// Of these, the bytes that this call has read.
    pub new_bytes: u64,
    /// Their total.
    pub total_bytes: u64,
    /// The shards that are written and all shards, once the source is done.
    pub shards: Option<(u64, u64)>,
}

/// Counts what is done, from all threads.
#[derive(Debug, Default)]
pub(super) struct BuildCounts {
    pub(super) documents: AtomicU64,
    pub(super) tokens: AtomicU64,
    bad: AtomicU64,
    first_bad: Mutex<Vec<String>>,
    kept_tokens: AtomicU64,
    kept_bytes: AtomicU64,
    shard_bytes: AtomicU64,
    shards: AtomicU64,
    all_shard_bytes: AtomicU64,
    all_shards: AtomicU64,
}

impl BuildCounts {
    pub(super) fn add_document(&self, tokens: u64) {
        self.documents.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens, Relaxed);
    }

    /// Counts a bad document, of which `most` are left out. Otherwise it is an error.
    pub(super) fn leave_out(&self, bad: DatasetError, most: u64) -> Result<(), DatasetError> {
        if self.bad.fetch_add(1, Relaxed) >= most {
            return Err(bad);
        }
        let mut named = self.first_bad.lock().expect("nothing panics with it");
        if named.len() < NAMED_BAD {
            named.push(bad.to_string());
        }
        Ok(())
    }

    /// Returns the number of bad documents.
    pub(super) fn bad(&self) -> u64 {
        self.bad.load(Relaxed)
    }

    /// Returns what is wrong with the first of them.
    pub(super) fn first_bad(&self) -> Vec<String> {
        self.first_bad.lock().expect("nothing panics with it").clone()
    }

    /// Counts a unit whose run is there.
    pub(super) fn keep_unit(&self, bytes: u64, known: RunTotals) {
        self.documents.fetch_add(known.documents, Relaxed);
        self.tokens.fetch_add(known.tokens, Relaxed);
        self.bad.fetch_add(known.bad, Relaxed);
        self.kept_tokens.fetch_add(known.tokens, Relaxed);
        self.kept_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn begin_shards(&self, bytes: u64, shards: u64) {
        self.all_shard_bytes.store(bytes, Relaxed);
        self.all_shards.store(shards, Relaxed);
    }

    pub(super) fn add_shard(&self, bytes: u64) {
        self.shard_bytes.fetch_add(bytes, Relaxed);
        self.shards.fetch_add(1, Relaxed);
    }

    /// Returns the progress, of units of `total_bytes` of which `read_bytes` were read.
    pub(super) fn progress(&self, read_bytes: u64, total_bytes: u64) -> TokenBuildProgress {
        let tokens = self.tokens.load(Relaxed);
        let all_shards = self.all_shards.load(Relaxed);
        let kept_bytes = self.kept_bytes.load(Relaxed);
        let (bytes, total_bytes) = match all_shards {
            0 => ((kept_bytes + read_bytes).min(total_bytes), total_bytes),
            _ => (self.shard_bytes.load(Relaxed), self.all_shard_bytes.load(Relaxed)),
        };
        TokenBuildProgress {
            documents: self.documents.load(Relaxed),
            tokens,
            new_tokens: tokens - self.kept_tokens.load(Relaxed),
            bytes,
            new_bytes: read_bytes,
            total_bytes,
            shards: (all_shards > 0).then(|| (self.shards.load(Relaxed), all_shards)),
        }
    }
}
