//! Parquet: a dataset of Parquet files as they lie in a folder or under a prefix of a bucket. Nothing is converted.
//!
//! A shard is a file, a record a row, a field a column or a leaf of one (`image.bytes`); folders called `key=value` are
//! fields of the rows below them. The index of a file has the places of the pages of its columns. It is made from the
//! file's footer and page index, and for large row groups that the page index lacks, from the headers of their pages;
//! no values are read.
//!
//! A shard's offsets are not the file's: the pages that belong to the same rows lie together, column by column, so that
//! a block is a run of rows. They are followed by room up to the decoded size of the rows, because that is what a block
//! takes in memory.

mod columns;
mod cut;
mod decode;
mod features;
mod footer;
mod headers;
mod index;
mod index_file;
mod lists;
mod numbers;
mod pages;
mod schema;
mod thrift;
mod values;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex};
use crate::FormatError;

pub use footer::{MAX_FOOTER_BYTES, PagesByHeader, ParquetFooter, RowFacts};
pub use headers::{PageWalk, UnknownPages};

/// Parquet.
#[derive(Debug)]
pub struct Parquet;

impl Format for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn is_columnar(&self) -> bool {
        true
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(index_file::open(bytes, expected)?))
    }
}
