//! ArrayRecord: files of records as Google's `array_record` writes them, for Grain and TensorFlow Datasets, read where they
//! lie.
//!
//! A file has the format Riegeli/records: records lie in chunks, which are compressed one by one, and every 64 KiB a
//! header lies between the chunks' bytes. An ArrayRecord file also ends with a table of all chunks, so that indexing
//! reads only the end of a file and its first chunks.
//!
//! A shard is a file, but its offsets are not the file's. Neighbouring chunks form a segment, in which they lie as in
//! the file, followed by room up to the decompressed size of their records, because that is what a block takes in
//! memory. A segment is a block.
//!
//! Our own code reads the chunks, although there is the crate `riegeli` (0.2.1). That crate withstood millions of
//! damaged files, but a file of 98 kB made it take more than 2 GB: it has no limit that a caller can set, and no
//! function that reads one chunk without the whole file. It depends on `protobuf` with its C code, and on second
//! versions of brotli and zstd. ArrayRecord files need only a small part of it, because transposed chunks are refused.

mod chunk;
mod decode;
mod footer;
mod index;
mod index_file;
mod sample;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex};
use crate::FormatError;

pub use footer::{Footer, LAST_BLOCK_BYTES, MAX_FOOTER_BYTES, footer_range};
pub use sample::fields_of;

/// The field that holds the whole record, if records are not examples.
pub const WHOLE_RECORD: &str = "record";

/// Size in memory of the number that states where a decoded record ends, in bytes.
const END_BYTES: u64 = 4;

/// ArrayRecord.
#[derive(Debug)]
pub struct ArrayRecord;

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
}

/// The fields of records. All records of a file have the same ones.
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
