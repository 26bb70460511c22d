//! Loose files: a dataset of files as they lie in a folder or under a prefix of a bucket. Nothing is packed.
//!
//! A shard is a run of some thousand files, laid end to end in the order of their paths; its file index has their paths,
//! sizes and etags, and the values that a table or their folders give them. A block is a run of neighbouring files, which
//! are requested together. Files are not read when they are indexed: a file that changed is recognised by its size and
//! its etag.

mod build;
mod coco;
mod delimited;
mod index;
mod records;
mod scan;
mod table;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, Takes};
use crate::{
    FormatError,
    dataset::{DatasetError, Listing, Scan, ShardResult, is_hidden},
};

pub use table::FileTable;

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

    /// A shard of loose files is a list of them, and no object.
    fn is_shard(&self, _name: &str) -> bool {
        false
    }

    fn takes(&self) -> Takes {
        Takes::Files
    }

    fn recognises(&self, folder: &Listing) -> bool {
        folder.iter().any(|object| records::is_picture_file(object.name) && !is_hidden(object.name))
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        Some(
            "needs the annotations, and loose files are not read when they are indexed; pack them: with \
             `--annotations-beside` or `--annotations DIR`, `spdl-ctl pack` makes a sample of each box",
        )
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        scan::scan(scan)
    }
}
