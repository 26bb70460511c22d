//! The errors of fetching bytes of a dataset.

use std::sync::Arc;

use spdl_shard::format::ObjectRole;
use spdl_store::{StoreError, cause};

/// The error of bytes that could not be fetched, or that do not match the manifest. Of an object, `shard` is its path in backticks, or its
/// URL and that of its manifest.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum FetchError {
    /// The object is another than the manifest describes.
    #[error(
        "{} {shard} changed: the manifest has {expected}, the store has {actual}; {}", role.noun(), remedy(*role)
    )]
    Changed { shard: String, role: ObjectRole, expected: String, actual: String },
    /// The store refused the request; retries do not help.
    #[error("{} {shard} cannot be read: {}{}", role.noun(), cause(source), remedy_of_refusal(*role, source))]
    Refused { shard: String, role: ObjectRole, source: Arc<object_store::Error> },
    /// The index of a shard cannot be read, which names the files that hold the shard's bytes.
    #[error("dataset `{shard}`: {source}")]
    Index { shard: String, source: Arc<StoreError> },
    /// A compressed shard does not become what was indexed, even after several fetches.
    #[error(
        "shard `{shard}` is damaged, or was replaced, after {attempts} fetches: {problem}; {}",
        remedy(ObjectRole::Shard)
    )]
    Decompress { shard: String, problem: String, attempts: u32 },
    /// The fetched bytes are wrong, even after several fetches.
    #[error(
        "field `{field}` of record `{key}` in shard `{shard}` has checksum {actual:08x} where the index has \
         {expected:08x}, after {attempts} fetches: the shard is damaged, or was replaced"
    )]
    WrongBytes { shard: String, key: String, field: String, expected: u32, actual: u32, attempts: u32 },
    /// The fetched bytes do not decode, even after several fetches.
    #[error("field `{field}` of record `{key}` in `{shard}` {problem}, after {attempts} fetches: the file is damaged")]
    Damaged { shard: String, key: String, field: String, problem: String, attempts: u32 },
}

impl FetchError {
    /// Returns whether another worker, or this one later, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Index { source, .. } => source.is_retryable(),
            _ => matches!(self, Self::WrongBytes { .. } | Self::Damaged { .. } | Self::Decompress { .. }),
        }
    }
}

/// Returns what to do about a file that is gone, as words that follow the error; other refusals speak for themselves.
fn remedy_of_refusal(role: ObjectRole, source: &object_store::Error) -> String {
    match (role, source) {
        (ObjectRole::File, object_store::Error::NotFound { .. }) => format!("; {}", remedy(role)),
        _ => String::new(),
    }
}

const fn remedy(role: ObjectRole) -> &'static str {
    match role {
        ObjectRole::Shard => "copy it again from where the dataset was made",
        ObjectRole::File => "put the old file back, or index the dataset again and give the job a new name",
    }
}
