//! The files of evaluated views in a dataset's folder.

use std::sync::Arc;

use spdl_core::{
    Fingerprint, SampleId,
    job::DatasetFacts,
    view::{MAX_VIEW_BYTES, SampleSet},
};

use crate::{
    FormatError,
    manifest::Manifest,
    store::{DatasetStore, StoreError},
};

const PREFIX: &str = "view-";
const SUFFIX: &str = ".spdl";

fn name_of(samples: Fingerprint) -> String {
    format!("{PREFIX}{samples}{SUFFIX}")
}

/// Returns whether an object of a dataset's folder is an evaluated view.
pub(crate) fn is_view_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|name| name.strip_suffix(SUFFIX))
        .is_some_and(|name| name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

/// Writes the samples of a view into the folder of the dataset's manifest, unless they are there.
///
/// # Errors
/// If the folder cannot be written to.
pub async fn save_view(at: &DatasetStore, manifest: &Manifest, set: &SampleSet) -> Result<(), StoreError> {
    let samples = set.fingerprint();
    match open_view(at, manifest, samples).await {
        Ok(_) => Ok(()),
        Err(StoreError::Missing { .. } | StoreError::Format { .. }) => {
            at.put(&name_of(samples), set.encode().into()).await
        }
        Err(error) => Err(error),
    }
}

/// Reads the samples of a view that was evaluated, and checks them.
///
/// # Errors
/// If they cannot be read, or are others.
pub async fn open_view(
    at: &DatasetStore,
    manifest: &Manifest,
    samples: Fingerprint,
) -> Result<Arc<SampleSet>, StoreError> {
    let name = name_of(samples);
    let wrong = |source| StoreError::Format { url: at.url_of(&name), source };
    let bytes = at.read(&name, MAX_VIEW_BYTES as u64).await?;
    if Fingerprint::of(&bytes) != samples {
        return Err(wrong(FormatError::Checksum));
    }
    let set = SampleSet::decode(&bytes, manifest.samples());
    set.map(Arc::new).map_err(|error| wrong(FormatError::Malformed(format!("it {error}"))))
}

/// Returns the facts about a view that creating a job needs: of the samples that it keeps, and the blocks that hold them.
#[must_use]
pub fn view_facts(manifest: &Manifest, set: &SampleSet) -> DatasetFacts {
    let facts = manifest.facts();
    let has_samples = |block: &u32| {
        let block = manifest.block(*block);
        let [start, end] = [block.first_sample, block.first_sample + u64::from(block.samples)].map(SampleId);
        set.below(end) > set.below(start)
    };
    let blocks = (0..manifest.block_count()).filter(has_samples).count() as u64;
    DatasetFacts { samples: set.len(), blocks, ..facts }
}
