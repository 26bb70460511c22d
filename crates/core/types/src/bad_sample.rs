use serde::{Deserialize, Serialize};

use crate::SampleId;

/// A sample whose bytes are intact but do not decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// The job that found it.
    pub job: String,
    /// The sample's id.
    pub sample: SampleId,
    /// The shard that it lies in.
    pub shard: String,
    /// The key of its record.
    pub key: String,
    /// The error.
    pub cause: String,
}
