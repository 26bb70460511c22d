//! A recording of a dataset other than the samples' own, which an operation takes.

use bytes::Bytes;

/// A recording that was read for an operation.
#[derive(Debug)]
pub(crate) struct DatasetSound {
    /// The key of its record.
    pub(crate) key: String,
    /// Its file, or what is wrong with its record.
    pub(crate) file: Result<Bytes, String>,
}
