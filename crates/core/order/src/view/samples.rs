//! What a view found: the samples that it keeps, and how often they come.

use std::sync::Arc;

use super::{ClassSampling, SampleSet, SetError, sampling};
use spdl_types::Fingerprint;

/// The samples of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewSamples {
    /// Each comes once in an epoch.
    Set(Arc<SampleSet>),
    /// They come as often as their classes say.
    Sampling(Arc<ClassSampling>),
}

impl ViewSamples {
    /// Returns the samples that the view keeps, however often they come.
    #[must_use]
    pub fn kept(&self) -> &Arc<SampleSet> {
        match self {
            Self::Set(set) => set,
            Self::Sampling(sampling) => sampling.kept(),
        }
    }

    /// Returns the sampling, if it is one.
    #[must_use]
    pub const fn sampling(&self) -> Option<&Arc<ClassSampling>> {
        if let Self::Sampling(sampling) = self { Some(sampling) } else { None }
    }

    /// Returns the number of samples in an epoch.
    #[must_use]
    pub fn in_epoch(&self) -> u64 {
        match self {
            Self::Set(set) => set.len(),
            Self::Sampling(sampling) => sampling.in_epoch(),
        }
    }

    /// Returns the encoded samples.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Set(set) => set.encode(),
            Self::Sampling(sampling) => sampling.encode(),
        }
    }

    /// Returns the fingerprint of the samples. Equal ones have equal fingerprints.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.encode())
    }

    /// Reads encoded samples of a dataset that has `universe` of them.
    ///
    /// # Errors
    /// If the bytes are not the complete samples of a view of such a dataset. Memory is in proportion to the bytes.
    pub fn decode(bytes: &[u8], universe: u64) -> Result<Self, SetError> {
        if bytes.starts_with(&sampling::MAGIC) {
            return ClassSampling::decode(bytes, universe).map(|sampling| Self::Sampling(Arc::new(sampling)));
        }
        SampleSet::decode(bytes, universe).map(|set| Self::Set(Arc::new(set)))
    }
}

impl From<SampleSet> for ViewSamples {
    fn from(set: SampleSet) -> Self {
        Self::Set(Arc::new(set))
    }
}
