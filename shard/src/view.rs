//! The files of evaluated views in a dataset's folder.

use spdl_order::view::{MAX_VIEW_BYTES, ViewSamples};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use crate::{
    FormatError,
    manifest::{Manifest, MetadataPlace},
    store::DatasetStore,
};

const PREFIX: &str = "view-";
const SUFFIX: &str = ".spdl";

fn name_of(samples: Fingerprint) -> String {
    format!("{PREFIX}{samples}{SUFFIX}")
}

/// Returns the fingerprint of the samples of an evaluated view, if `name` is the name of its file.
#[must_use]
pub fn view_called(name: &str) -> Option<Fingerprint> {
    let samples = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let samples = Fingerprint(u128::from_str_radix(samples, 16).ok()?);
    (name_of(samples) == name).then_some(samples)
}

/// Writes the samples of a view into the folder of the dataset's manifest, unless they are there.
///
/// # Errors
/// If the folder cannot be written to.
pub async fn save_view(at: &DatasetStore, manifest: &Manifest, set: &ViewSamples) -> Result<(), StoreError> {
    let samples = set.fingerprint();
    match open_view(at, manifest, samples).await {
        Ok(_) => Ok(()),
        Err(StoreError::Missing { .. } | StoreError::Format { .. }) => {
            at.put(&MetadataPlace::Hidden.path(&name_of(samples)), set.encode().into()).await
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
) -> Result<ViewSamples, StoreError> {
    let [name, beside] = MetadataPlace::ALL.map(|place| place.path(&name_of(samples)));
    let wrong = |source| StoreError::Format { url: at.url_of(&name), source: FormatError::into(source) };
    let bytes = match at.read(&name, MAX_VIEW_BYTES as u64).await {
        Err(error @ StoreError::Missing { .. }) => at.read(&beside, MAX_VIEW_BYTES as u64).await.map_err(|_| error)?,
        read => read?,
    };
    if Fingerprint::of(&bytes) != samples {
        return Err(wrong(FormatError::Checksum));
    }
    ViewSamples::decode(&bytes, manifest.samples())
        .map_err(|error| wrong(FormatError::Malformed(format!("it {error}"))))
}
