//! Helpers: workers that decode samples for the ranks of other workers. Here are a home's requests to its helpers, and
//! the list of helpers that a home gets.
//!
//! A home sends the stored bytes of records and receives the columns of their samples. It can always decode the samples
//! itself, so a helper that is slow, gone or wrong costs only time.

use serde::{Deserialize, Serialize};

use crate::peers::PeerAddress;
use spdl_job::Job;
use spdl_types::{BatchId, DType, Fingerprint, SampleId};

/// Maximum number of samples in one request.
pub const MAX_SAMPLES: usize = 64;
/// Maximum bytes of the fields in one request, and of the columns in its reply.
pub const MAX_BYTES: u64 = 64 << 20;

/// A job whose samples a helper is going to decode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HelpJob {
    /// The job.
    pub job: Job,
    /// The classes of its dataset, in the order of their numbers.
    pub classes: Vec<String>,
}

/// A request to decode samples. The bytes of their fields follow it, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodeRequest {
    /// Fingerprint of the job.
    pub job: Fingerprint,
    /// The batch that the samples are for.
    pub batch: BatchId,
    /// The samples, at most [`MAX_SAMPLES`].
    pub samples: Vec<StoredSample>,
}

/// A sample to decode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSample {
    /// The epoch.
    pub epoch: u64,
    /// The sample.
    pub id: SampleId,
    /// Number of the sample within its record, from 0.
    pub sample_in_record: u32,
    /// The fields of its record that the job's columns may read.
    pub fields: Vec<StoredField>,
}

/// A field of a record, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredField {
    /// The place of its name in the list of names that the job's columns may read, from 0.
    pub number: u16,
    /// The kind of data in its bytes.
    pub value: StoredValue,
    /// The number of its bytes.
    pub bytes: u64,
}

/// The kind of data in the bytes of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredValue {
    /// A file.
    File,
    /// The elements of an array of this type and these dimensions.
    Array(DType, Vec<u64>),
    /// A list of files, one after the other: the size of each in bytes; `None` for one that is null.
    List(Vec<Option<u64>>),
}

/// A reply of a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelpReply {
    /// The helper is ready to decode samples of the job.
    Ready,
    /// The helper does not know the job.
    UnknownJob,
    /// The helper cannot decode samples of the job for any home: it may not call the job's functions, or lacks their
    /// modules.
    Unable {
        /// The reason.
        cause: String,
    },
    /// The helper has no room for the request at the moment.
    Busy,
    /// For each sample the bytes of its ragged columns, in the order of the columns; `None` for a sample that did not decode. The
    /// columns of all samples that did follow, one after the other.
    Decoded(Vec<Option<Vec<u64>>>),
}

/// The helpers of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperList {
    /// Identifies the content; 0 if there are none.
    pub version: u64,
    /// The helpers.
    pub helpers: Vec<PeerAddress>,
}

/// The part of a worker's heartbeat about helpers: its role, its list of helpers and its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelpReport {
    /// Whether the worker may be asked to decode samples of other workers' ranks.
    pub is_helper: bool,
    /// Whether it does nothing else, and takes no ranks.
    pub is_helper_only: bool,
    /// Whether helpers may decode samples of its ranks.
    pub is_helped: bool,
    /// Version of the list of helpers that it has; 0 for none.
    pub helpers: u64,
    /// Its counts of samples that were decoded for it or by it.
    pub stats: HelpStats,
}

spdl_insight::counts! {
    /// Counts of samples that were decoded for other workers, or by them, since a worker started.
    HelpStats {
        /// Samples of this worker's ranks that helpers decoded.
        received_samples: Total = "spdl_worker_help_received_samples", "Samples of its ranks that helpers decoded";
        /// Samples that this worker decoded for others.
        made_samples: Total = "spdl_worker_help_made_samples", "Samples decoded for other workers";
        /// Samples that this worker took back from helpers that were late, busy or gone, or that did not decode them.
        returned_samples: Total = "spdl_worker_help_returned_samples",
            "Samples that helpers were asked for and that were decoded here after all";
    }
}
