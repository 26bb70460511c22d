//! A dataset's folder: what may be in it, and removing it.

use object_store::ObjectStoreExt;

use super::{DatasetError, scan::ScannedShard};
use crate::{
    index::INDEX_SUFFIX,
    manifest::ManifestBuilder,
    store::{DatasetStore, StoreError},
};

/// What happens to a dataset that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// It stays, and the call fails.
    #[default]
    Refuse,
    /// It is replaced once the new dataset is complete. Objects that its manifest does not name are left alone, except
    /// for what a killed run left behind.
    Replace,
}

/// Returns the error for a folder that has `name` already.
pub(super) fn in_use<T>(at: &DatasetStore, name: &str) -> Result<T, DatasetError> {
    Err(DatasetError::InUse { url: at.url_of(name) })
}

pub(super) fn add_shard(manifest: &mut ManifestBuilder, shard: &ScannedShard) -> Result<(), DatasetError> {
    let added = manifest.shard(&shard.facts, &shard.blocks);
    added.map_err(|source| DatasetError::Unwritable { url: shard.facts.url.clone(), source })
}

/// Removes a shard and its index, if they exist.
pub(super) async fn remove_shard(to: &DatasetStore, shard: &str) -> Result<(), DatasetError> {
    remove(to, shard).await?;
    remove(to, &format!("{shard}{INDEX_SUFFIX}")).await
}

/// Returns the dataset's name: the given one, or the last part of its folder's URL.
pub(super) fn dataset_name(to: &DatasetStore, given: Option<&str>) -> String {
    let last = || to.url().rsplit('/').next().unwrap_or_default();
    given.unwrap_or_else(last).to_owned()
}

pub(super) async fn exists(at: &DatasetStore, name: &str) -> Result<bool, DatasetError> {
    match at.object().head(&at.path_of(name)).await {
        Ok(_) => Ok(true),
        Err(source) => match StoreError::of(&at.url_of(name), source) {
            StoreError::Missing { .. } => Ok(false),
            error => Err(error.into()),
        },
    }
}

pub(super) async fn remove(at: &DatasetStore, name: &str) -> Result<(), DatasetError> {
    match at.object().delete(&at.path_of(name)).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(source) => Err(StoreError::of(&at.url_of(name), source).into()),
    }
}
