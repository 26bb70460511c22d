//! Why bytes of a dataset cannot be had.

use std::sync::Arc;

/// Bytes that did not come, or are not what the manifest says.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The object is not what the manifest describes.
    #[error(
        "shard `{shard}` changed: manifest says {expected}, store says {actual}; copy it once more from where the dataset was made"
    )]
    Changed {
        /// URL of the shard.
        shard: String,
        /// Size in the manifest, or etag and checksum.
        expected: String,
        /// Size in the store, or etag and checksum.
        actual: String,
    },
    /// The store says that it will never give the bytes.
    #[error("shard `{shard}` cannot be read: {source}")]
    Refused {
        /// URL of the shard.
        shard: String,
        /// What the store said.
        source: Arc<object_store::Error>,
    },
    /// The bytes came and are wrong, however often they were fetched.
    #[error(
        "field `{field}` of record `{key}` in shard `{shard}` has checksum {actual:08x} where the index says \
         {expected:08x}, after {attempts} fetches: the shard is damaged, or was replaced"
    )]
    WrongBytes {
        /// URL of the shard.
        shard: String,
        /// Key of the record.
        key: String,
        /// Name of the field.
        field: String,
        /// CRC-32C in the record index.
        expected: u32,
        /// CRC-32C of what came.
        actual: u32,
        /// How often the bytes were fetched.
        attempts: u32,
    },
}

impl FetchError {
    /// Whether another worker, or the same one later, might do better.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::WrongBytes { .. })
    }
}
