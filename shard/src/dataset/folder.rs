//! A dataset's folder: what lies in it, and removing it.

use std::{future::ready, pin::pin};

use futures::{Stream, StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::{DatasetError, LeftOutReason, LeftOutTally, catalog::Catalogued};
use crate::{
    index::INDEX_SUFFIX,
    manifest::ManifestBuilder,
    store::{DatasetStore, StoreError},
};

/// Objects that are listed in a folder at most, so that a wrong bucket does not fill the memory.
const MAX_LISTED: usize = 10_000_000;

/// What happens to what is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Nothing: it is an error.
    #[default]
    Refuse,
    /// A dataset that is there is replaced once the new one is complete. Objects that its manifest does not name are left
    /// alone, but for what a run left that was killed.
    Replace,
}

/// The error of a folder that has `name` already.
pub(super) fn in_use<T>(at: &DatasetStore, name: &str) -> Result<T, DatasetError> {
    Err(DatasetError::InUse { url: at.url_of(name) })
}

/// The shards in a folder and the folders in it, by name: every object that ends in `.tar`. The others are counted in
/// `others`.
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

/// The names of all objects in a folder and the folders in it, in no order.
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

/// Removes a shard and its index, where they are there.
pub(super) async fn remove_shard(to: &DatasetStore, shard: &str) -> Result<(), DatasetError> {
    remove(to, shard).await?;
    remove(to, &format!("{shard}{INDEX_SUFFIX}")).await
}

/// The dataset's name: the one that is given, or the last part of its folder's URL.
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
