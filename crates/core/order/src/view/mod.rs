//! Views: a dataset seen through a filter that is evaluated once, when the job is created.
//!
//! An [`Expression`] is true of the records that are kept. The result of evaluating a view is a [`SampleSet`], the
//! samples that the job delivers, or a [`ClassSampling`] of one, which says how often each comes. The order counts only those; see
//! [`Plan::of_view`](crate::Plan::of_view).

mod chunk;
mod expression;
mod sample_set;
mod samples;
mod sampling;

pub use expression::{Expression, ExpressionError, Value};
pub use sample_set::{SampleSet, SampleSetBuilder};
pub use samples::ViewSamples;
pub(crate) use sampling::EpochSamples;
pub use sampling::{ClassSampling, MAX_SAMPLED, MAX_SAMPLED_CLASSES, SampledClass};

/// The most bytes of encoded [`ViewSamples`]: 64 MiB, which hold any view of 500 million samples, and views of many more
/// if the samples that they keep are few or neighbours. A [`ClassSampling`] takes a byte more for each sample, and two with more than 256 classes.
pub const MAX_VIEW_BYTES: usize = 64 << 20;

/// Why there are no [`ViewSamples`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The set is longer than [`MAX_VIEW_BYTES`].
    #[error("is longer than {} MiB; keep fewer samples", MAX_VIEW_BYTES >> 20)]
    TooLong,
    /// The bytes end before the set.
    #[error("is cut off")]
    Truncated,
    /// A later release wrote it.
    #[error("has version {version}, which this spdl-cluster does not know")]
    Newer {
        /// Its version.
        version: u32,
    },
    /// It is a set of samples of another dataset.
    #[error("is of a dataset of {theirs} samples, not of one of {ours}")]
    OtherDataset {
        /// The number of samples of its dataset.
        theirs: u64,
        /// The number of samples of the dataset at hand.
        ours: u64,
    },
    /// The bytes are not a set.
    #[error("is not a set of samples: {0}")]
    Malformed(String),
}
