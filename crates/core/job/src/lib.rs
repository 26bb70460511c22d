//! A job: dataset, columns, seed, order parameters and global batch, checked and frozen.
//!
//! [`JobFile`] is what a user wrote; [`Job`] is the valid result. A job is immutable: everything that decides the
//! stream, the frozen order parameters included, is in its [fingerprint](Job::fingerprint). The [`layout`] of a batch
//! follows from it.

mod callable;
mod check;
mod column;
mod content;
mod file;
mod form;
mod function;
pub mod layout;
mod mix;
mod operation;
mod reader;
mod redact;
mod schema;
pub mod scheme;
mod size;
mod source;
mod start;
mod transform;
mod view;

pub use callable::{Arguments, ArgumentsFile, Callable};
pub use check::{MAX_COLUMNS, no_such_field};
pub use column::{
    BoolColumn, BoxClassColumn, BoxFormat, BoxLabelsColumn, BoxLabelsKeys, BoxStorage, BoxesColumn, BoxesKeys,
    BytesColumn, BytesKeys, CategoryColumn, CategoryKeys, Column, ColumnFile, ColumnKind, DecodeFile, FloatColumn,
    FunctionCall, GeometryColumn, GeometryKeys, ImageColumn, ImageKeys, ImageSizeColumn, ImageSizeKeys, IntColumn,
    JsonColumn, JsonKeys, Kind, KindKeys, MaskColumn, MaskKeys, NoKeys, OneHotColumn, OneHotKeys, PictureList,
    ReturnedColumn, ReturnedValue, TensorColumn, TensorEncoding, TensorKeys, TextColumn, TextKeys, decoded_columns,
};
pub use content::{ContentPart, SampleContent};
pub use file::{DEFAULT_BAD_FRACTION, DEFAULT_BAD_SAMPLES, JobFile, MAX_JOB_FILE_BYTES, OrderFile};
pub use function::{FunctionFile, ReturnedFile};
pub use mix::{Mix, MixFile};
pub use operation::{
    AugMix, CenterCrop, ColorJitter, CropBox, Fill, FiveCrop, GaussianBlur, Grayscale, ImageOp, Interpolation,
    Letterbox, NumberOrRange, Operation, OperationProblem, Pad, Padding, PaddingMode, PicturePlan, PicturePlanner,
    RandAugment, RandomAdjustSharpness, RandomAffine, RandomApply, RandomAutocontrast, RandomChoice, RandomCrop,
    RandomEqualize, RandomErasing, RandomFlip, RandomGrayscale, RandomInvert, RandomPerspective, RandomPosterize,
    RandomResizedCrop, RandomRotation, RandomSolarize, RandomVerticalFlip, Resize, TenCrop, TrivialAugmentWide,
    WarpInterpolation,
};
pub use redact::{redact, secret_in};
pub use schema::job_file_schema;
pub use size::Size;
pub use source::SourceDigest;
pub use start::is_name;
pub use transform::{Returns, ReturnsFile, Transform};
pub use view::ViewFile;

use serde::{Deserialize, Serialize};

use spdl_order::{EpochEnd, OrderParams, PlanError};
use spdl_types::Fingerprint;

/// What happens to a sample that does not decode or lacks a field. All ranks make the same number of steps with each
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BadSamples {
    /// Another sample takes its place, the same one in every run: a hash of (seed, epoch, offset, attempt) chooses it.
    /// `stats()` and `spdl-ctl status` count it.
    #[default]
    Substitute,
    /// The entry is zeros in all columns, with a flag, and `batch.valid` is false; it is counted, too. A sample that an
    /// evaluation cannot read is then missing in it, and no other one counts twice.
    Mask,
    /// The job fails.
    Fail,
}

/// A valid, frozen job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The name that users give it: 1 to 128 of `[A-Za-z0-9._-]`.
    pub name: String,
    /// URL or path of the dataset's folder, where the manifest lies.
    pub dataset: String,
    /// Fingerprint of the dataset's manifest.
    pub dataset_fingerprint: Fingerprint,
    /// Fingerprint of the samples of the dataset that the job delivers; `None` if these are all.
    pub view: Option<Fingerprint>,
    /// Number of samples of an epoch: those of the dataset, or of the view.
    pub samples: u64,
    /// Seed of the order and of the transforms.
    pub seed: u64,
    /// B, the number of samples per step over all ranks.
    pub global_batch: u32,
    /// Number of epochs to deliver.
    pub epochs: u64,
    /// Policy at the end of an epoch.
    pub epoch_end: EpochEnd,
    /// Policy for samples that do not decode.
    pub bad_samples: BadSamples,
    /// Distinct bad samples, as a fraction of the dataset, above which the job fails.
    pub max_bad_fraction: f64,
    /// The order's parameters.
    pub order: OrderParams,
    /// How samples are mixed; `None` if they are not.
    pub mix: Option<Mix>,
    /// The columns of a batch, in order.
    pub columns: Vec<Column>,
}

/// The key of a column that is wrong, and what is wrong with it.
pub type KeyProblem = (&'static str, String);

/// Why a job file or a job is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The text is longer than [`MAX_JOB_FILE_BYTES`].
    #[error("job file `{origin}` is {bytes} bytes, more than {MAX_JOB_FILE_BYTES}")]
    TooLong {
        /// The origin of the text.
        origin: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text is not TOML.
    #[error("job file `{origin}`: {source}")]
    Syntax {
        /// The origin of the text.
        origin: String,
        /// The parser's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// An unknown key, a missing key, or a value of the wrong type.
    #[error("{origin}: {problem}")]
    Value {
        /// The origin of the job, with the line if it is a text: "job file `a.toml`, line 3".
        origin: String,
        /// The place in the job, and what is wrong there: `column image, ops[0]: resize expects { size = 256 }`.
        problem: String,
    },
    /// A key has an invalid value.
    #[error("job `{job}`: {key} {problem}")]
    Key {
        /// The job's name.
        job: String,
        /// The key in backticks, with the column it belongs to.
        key: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The dataset's samples never fill a batch.
    #[error("job `{job}`: {source}")]
    NoBatch {
        /// The job's name.
        job: String,
        /// The number of samples, and the number that would be needed.
        source: PlanError,
    },
    /// The job file cannot be read.
    #[error("job file `{path}` cannot be read: {source}")]
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The dataset has nothing to deliver.
    #[error("job `{job}`: dataset `{dataset}` has no samples")]
    Empty {
        /// The job's name.
        job: String,
        /// The dataset's URL.
        dataset: String,
    },
}

impl Job {
    /// Returns the number of bad samples above which the job fails.
    #[must_use]
    pub fn bad_samples_allowed(&self) -> u64 {
        (self.max_bad_fraction * self.samples as f64) as u64
    }

    /// Returns the fingerprint of everything that decides which samples come at which position and what their bytes
    /// are: dataset, view, columns, seed, order, mix, policy for bad samples. Batch size, epochs and name are not part of it, so
    /// that a resumed run may change them.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let identity =
            (&self.dataset_fingerprint, self.samples, self.seed, &self.order, &self.bad_samples, &self.columns);
        let bytes = match (&self.view, &self.mix) {
            (None, None) => serde_json::to_vec(&identity),
            (Some(view), None) => serde_json::to_vec(&(identity, view)),
            (view, Some(mix)) => serde_json::to_vec(&(identity, view, mix)),
        };
        Fingerprint::of(&bytes.expect("plain data serialises"))
    }

    /// Returns whether some columns hold the numbers of names that the dataset lists.
    #[must_use]
    pub fn needs_classes(&self) -> bool {
        decoded_columns(&self.columns).any(|column| column.check_without_classes(&self.columns).is_err())
    }

    /// Returns whether each epoch has every sample, in the dataset's order.
    #[must_use]
    pub const fn is_in_order(&self) -> bool {
        !self.order.shuffle && self.epoch_end.is_whole()
    }

    /// Returns whether the job is an evaluation: it delivers every sample once, apart from padding, in the dataset's
    /// order. Such a job is run again and again.
    #[must_use]
    pub fn is_evaluation(&self) -> bool {
        self.is_in_order() && self.epochs == 1
    }
}

/// Number of epochs of a run without an end of its own: more than any training takes, and few enough for positions not
/// to overflow.
pub const ENDLESS_EPOCHS: u64 = 1 << 20;
