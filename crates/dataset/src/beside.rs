//! The files about a dataset that lie [beside its shards](MetadataPlace::Beside). They are read there, and removed or
//! moved when the dataset is replaced. Their bytes show that they belong to the dataset; their names do not.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use spdl_order::view::MAX_VIEW_BYTES;
use spdl_shard::{
    manifest::{MANIFEST_NAME, Manifest, MetadataPlace, Shard},
    store::{DatasetStore, MAX_MANIFEST_BYTES},
    view::view_called,
};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use super::{DatasetError, folder::remove, listing::Listing};

/// Number of files that are looked at at once.
const FILES_AT_ONCE: usize = 8;

/// Returns whether an object of a dataset's folder has the name of a file about the dataset that is read beside the shards,
/// other than an index.
pub(super) fn may_lie_beside(name: &str) -> bool {
    name == MANIFEST_NAME || view_called(name).is_some()
}

/// Removes the manifest beside the shards after another one has taken its place, and the indexes that belong to it.
/// Views move to the hidden folder.
pub(super) async fn leave_beside(to: &DatasetStore) -> Result<(), DatasetError> {
    let Some(bytes) = found(to.read(MANIFEST_NAME, MAX_MANIFEST_BYTES).await)? else { return Ok(()) };
    let Ok(manifest) = Manifest::open(bytes) else { return Ok(()) };
    for view in Listing::of(to, |name| view_called(name).is_some()).await?.iter() {
        let bytes = found(to.read(view.name, MAX_VIEW_BYTES as u64).await)?;
        if let Some(bytes) = bytes.filter(|bytes| view_called(view.name) == Some(Fingerprint::of(bytes))) {
            to.put(&MetadataPlace::Hidden.path(view.name), bytes).await?;
            remove(to, view.name).await?;
        }
    }
    let indexes: Vec<_> = manifest.shards().map(|shard| remove_index(to, shard)).collect();
    stream::iter(indexes).buffer_unordered(FILES_AT_ONCE).try_collect::<()>().await?;
    // Removed last, because it names the indexes.
    remove(to, MANIFEST_NAME).await
}

/// Removes the index beside a shard, if the manifest was made with it.
async fn remove_index(to: &DatasetStore, shard: Shard<'_>) -> Result<(), DatasetError> {
    let name = MetadataPlace::Beside.index_path(shard.url);
    let index = found(to.read(&name, shard.index_bytes).await)?;
    if index.is_some_and(|index| Fingerprint::of(&index) == shard.index_hash) {
        remove(to, &name).await?;
    }
    Ok(())
}

/// Returns the bytes that were read; `None` if there is no file, or one that is longer than ours can be.
fn found(read: Result<Bytes, StoreError>) -> Result<Option<Bytes>, DatasetError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Missing { .. } | StoreError::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
