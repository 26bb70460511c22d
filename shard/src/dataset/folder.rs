//! A dataset's folder: lists what lies in it, and removes it.

use std::{future::ready, pin::pin};

use futures::{Stream, StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::{DatasetError, LeftOutReason, LeftOutTally, catalog::Catalogued};
use crate::{
    index::INDEX_SUFFIX,
    manifest::ManifestBuilder,
    store::{DatasetStore, StoreError},
};

/// Upper limit of the objects that are listed in a folder, so that a wrong bucket does not exhaust the memory.
const MAX_LISTED: usize = 10_000_000;

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

/// Lists the shards in a folder and its subfolders, by name: every object that ends in `.tar`. The other objects are
/// counted in `others`.
pub(super) async fn list_shards(
    from: &DatasetStore,
    others: &mut LeftOutTally,
) -> Result<Vec<(String, ObjectMeta)>, DatasetError> {
    let mut shards = Vec::new();
    let mut listed = pin!(list(from));
    while let Some((name, meta)) = listed.try_next().await? {
        if name.ends_with(".tar") {
            shards.push((name, meta));
        } else {
            others.add(&name, LeftOutReason::NoShard);
        }
    }
    shards.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(shards)
}

/// Lists the names of all objects in a folder and its subfolders, in no order.
pub(super) async fn list_all(from: &DatasetStore) -> Result<Vec<String>, DatasetError> {
    list(from).map_ok(|(name, _)| name).try_collect().await
}

fn list(from: &DatasetStore) -> impl Stream<Item = Result<(String, ObjectMeta), DatasetError>> {
    let folder = from.folder().clone();
    let url = from.url().to_owned();
    let listed = from.object().list(Some(&folder)).take(MAX_LISTED);
    listed.map_err(move |source| StoreError::of(&url, source).into()).try_filter_map(move |meta| {
        let parts = meta.location.prefix_match(&folder);
        let name = parts.map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"));
        ready(Ok(name.map(|name| (name, meta))))
    })
}

pub(super) fn add_shard(manifest: &mut ManifestBuilder, shard: &Catalogued) -> Result<(), DatasetError> {
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
