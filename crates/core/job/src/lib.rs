//! A job: dataset, columns, seed, order parameters and global batch, checked and frozen.
//!
//! [`JobFile`] is what a user wrote; [`Job`] is the valid result. A job is immutable: everything that decides the
//! stream, the frozen order parameters included, is in its [fingerprint](Job::fingerprint). The [`layout`] of a batch
//! follows from it.

mod callable;
mod check;
mod column;
mod content;
mod described;
mod file;
mod form;
mod function;
mod function_source;
mod key;
pub mod layout;
mod lineage;
mod mix;
mod numbers;
mod operation;
mod reader;
mod redact;
mod redactions;
mod schema;
pub mod scheme;
mod sequence;
mod size;
mod sound_operation;
mod sounds;
mod sources;
mod start;
pub mod testing;
mod transform;
mod view;

pub use callable::{Arguments, ArgumentsFile, Callable};
pub use check::{MAX_COLUMNS, named_in_dataset};
pub use column::*;
pub use content::{ContentPart, SampleContent};
pub use file::{MAX_JOB_FILE_BYTES, OrderFile};
pub use function::{FunctionFile, ReturnedFile};
pub use function_source::SourceDigest;
pub use key::{
    BadSamples, CostName, CostTable, DEFAULT_BAD_FRACTION, DEFAULT_BAD_SAMPLES, Job, JobFile, MeasuredSize, SampleCost,
    SampleCostFile, SizeName, SizeSource,
};
pub use lineage::MAX_EARLIER;
pub use mix::{Mix, MixFile};
pub use operation::*;
pub use reader::nearest_name;
pub use redact::{redact, secret_in};
pub use schema::job_file_schema;
pub use sequence::{LabelRule, Sequence, SequenceFile, SequenceMethod};
pub use size::Size;
pub use sound_operation::*;
pub use sources::{
    CLASS_NUMBERS, DatasetOfJob, JobSource, JobSourceFile, JobStageFile, PackedSource, SourceDatasetFacts,
};
pub use start::is_name;
pub use transform::{Returns, ReturnsFile, Transform};
pub use view::{SamplingFile, ViewFile};

use spdl_order::{BucketParams, PlanError};
use spdl_types::Fingerprint;

/// The key of a column that is wrong, and what is wrong with it.
pub type KeyProblem = (&'static str, String);

/// Why a job file or a job is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum JobError {
    /// The text is longer than [`MAX_JOB_FILE_BYTES`].
    #[error("job file `{origin}` is {bytes} bytes, more than {MAX_JOB_FILE_BYTES}")]
    TooLong { origin: String, bytes: usize },
    /// The text is not TOML.
    #[error("job file `{origin}`: {source}")]
    Syntax { origin: String, source: Box<toml::de::Error> },
    /// An unknown key, a missing key, or a value of the wrong type.
    #[error("{origin}: {problem}")]
    Value { origin: String, problem: String },
    /// A key has an invalid value.
    #[error("job `{job}`: {key} {problem}")]
    Key { job: String, key: String, problem: String },
    /// The dataset's samples never fill a batch.
    #[error("job `{job}`: {source}")]
    NoBatch { job: String, source: PlanError },
    /// The job file cannot be read.
    #[error("job file `{path}` cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    /// The dataset has nothing to deliver.
    #[error("job `{job}`: dataset `{dataset}` has no samples")]
    Empty { job: String, dataset: String },
}

impl Job {
    /// Returns the fingerprint of everything that decides which samples come at which position and what their bytes
    /// are: dataset, view, columns, seed, order, mix, sequences, sources and their stages, buckets, redactions, policy for bad samples. Batch size, epochs and name are not part of it, so
    /// that a resumed run may change them.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let columns = self.columns_anywhere();
        let identity = (&self.dataset_fingerprint, self.samples, self.seed, &self.order, &self.bad_samples, columns);
        let sources: Vec<_> = self
            .sources
            .iter()
            .map(|source| {
                let JobSource { dataset_fingerprint, view, samples, ids, weight, lanes, window, .. } = source;
                (dataset_fingerprint, view, samples, ids, weight, lanes, window)
            })
            .collect();
        let bytes = match (&self.view, &self.mix, &self.sequence) {
            // Of these, a job of sources has sequences alone.
            (_, _, Some(sequence)) if !sources.is_empty() => {
                serde_json::to_vec(&(identity, sources, &self.stages, sequence))
            }
            _ if !self.stages.is_empty() => serde_json::to_vec(&(identity, sources, &self.stages)),
            _ if !sources.is_empty() => serde_json::to_vec(&(identity, sources)),
            (None, None, None) => serde_json::to_vec(&identity),
            (Some(view), None, None) => serde_json::to_vec(&(identity, view)),
            (view, Some(mix), None) => serde_json::to_vec(&(identity, view, mix)),
            (view, mix, Some(sequence)) => serde_json::to_vec(&(identity, view, mix, sequence)),
        };
        let without = Fingerprint::of(&bytes.expect("plain data serialises"));
        let without = match self.cost.and_then(|cost| cost.measured).filter(|measured| measured.bucket.is_some()) {
            Some(measured) => {
                Fingerprint::of(&serde_json::to_vec(&(without, measured)).expect("plain data serialises"))
            }
            None => without,
        };
        if self.redactions.is_empty() {
            return without;
        }
        let redactions: Vec<_> = self.redactions.iter().map(|of| (of.from, of.samples.fingerprint())).collect();
        Fingerprint::of(&serde_json::to_vec(&(without, redactions)).expect("plain data serialises"))
    }

    /// Returns how samples of like size come in one batch; `None` if they do not.
    #[must_use]
    pub fn bucket(&self) -> Option<BucketParams> {
        self.cost.and_then(|cost| cost.measured?.bucket)
    }

    /// Returns whether decoding some columns looks at the dataset's classes.
    #[must_use]
    pub fn needs_classes(&self) -> bool {
        decoded_columns(&self.columns).any(Column::reads_classes)
    }

    /// Returns the classes whose numbers the batches have, if a column lists them; otherwise these are the dataset's.
    #[must_use]
    pub fn listed_classes(&self) -> Option<&[String]> {
        listed_classes(&self.columns)
    }

    /// Returns whether each epoch has every sample, in the dataset's order. An epoch of several sources is a blend of them, as long as the
    /// job says.
    #[must_use]
    pub const fn is_in_order(&self) -> bool {
        !self.order.shuffle && self.epoch_end.is_whole() && self.sources.is_empty()
    }

    /// Returns whether the job is an evaluation: it delivers every sample once, apart from padding, in the dataset's
    /// order. Such a job is run again and again.
    #[must_use]
    pub fn is_evaluation(&self) -> bool {
        self.is_in_order() && self.epochs == 1 && self.total_samples.is_none()
    }
}

/// Returns the classes that the first of these columns lists that lists some of the dataset's.
#[must_use]
pub fn listed_classes(columns: &[Column]) -> Option<&[String]> {
    decoded_columns(columns).find_map(Column::classes)
}

/// Number of epochs of a run without an end of its own: more than any training takes, and few enough for positions not
/// to overflow.
pub const ENDLESS_EPOCHS: u64 = 1 << 20;
