//! Loose files: a dataset of files as they lie in a folder or under a prefix of a bucket. Nothing is packed.
//!
//! A shard is a run of some thousand files, laid end to end in the order of their paths; its file index has their paths,
//! sizes and etags, and the values that a table or their folders give them. A block is a run of neighbouring files, which
//! are requested together. Files are not read when they are indexed: a file that changed is recognised by its size and
//! its etag.

mod build;
mod check;
mod index;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex};
use crate::FormatError;

pub use build::FileIndexBuilder;

/// Loose files.
#[derive(Debug)]
pub struct LooseFiles;

impl Format for LooseFiles {
    fn name(&self) -> &'static str {
        "files"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(index::FileIndex::open(bytes, expected)?))
    }
}
