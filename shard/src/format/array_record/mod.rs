//! ArrayRecord: files of records as Google's `array_record` writes them, for Grain and TensorFlow Datasets, read where they
//! lie.
//!
//! A file is one of Riegeli/records: records lie in chunks, which are compressed one by one, and between the chunks' bytes
//! there is a header every 64 KiB. What makes it an ArrayRecord is its end, a table of all chunks, so that only the end of a
//! file and its first chunks are read to index it.
//!
//! A shard is a file. Its space of bytes is not the file's: neighbouring chunks are a segment, in which they lie as in the
//! file, and then there is room up to the size that their records have once they are decompressed, because that is what a
//! block takes in memory. A segment is a block.
//!
//! Chunks are read by code of our own, although there is the crate `riegeli` (0.2.1). That one withstood millions of damaged
//! files, but a file of 98 kB made it take more than 2 GB: it has no limit that a caller can set, and none of its functions
//! reads one chunk of a file that is not there as a whole. It draws in `protobuf` with its C code, and second versions of
//! brotli and zstd. What ArrayRecord writes needs a small part of it, because transposed chunks are refused.

mod chunk;
mod decode;
mod footer;
mod index;
mod index_file;
mod sample;
mod scan;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, Takes, footer_files::index_files, is_named_so};
use crate::{
    FormatError,
    dataset::{DatasetError, Scan, ShardResult},
};

pub use footer::{Footer, LAST_BLOCK_BYTES, MAX_FOOTER_BYTES, footer_range};
pub use sample::fields_of;

/// The field that is the whole record, where records are no examples.
pub const WHOLE_RECORD: &str = "record";

/// What the end of each decoded record takes in memory.
const END_BYTES: u64 = 4;

/// ArrayRecord.
#[derive(Debug)]
pub(super) struct ArrayRecord;

impl Format for ArrayRecord {
    fn name(&self) -> &'static str {
        "array_record"
    }

    fn is_columnar(&self) -> bool {
        true
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        Ok(Arc::new(index_file::open(bytes, expected)?))
    }

    fn is_shard(&self, name: &str) -> bool {
        is_named_so(name, &[".array_record", ".arrayrecord"])
    }

    fn takes(&self) -> Takes {
        Takes::ShardsOrAll
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        index_files(scan, scan::ChunkIndexer::new())
    }
}

/// What the fields of records are. All records of a file have the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordFields {
    /// One field, [`WHOLE_RECORD`].
    Whole,
    /// The features of a `tf.train.Example`, by name.
    Features(Vec<String>),
}

impl RecordFields {
    /// Returns their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Whole => vec![WHOLE_RECORD.to_owned()],
            Self::Features(names) => names.clone(),
        }
    }
}
