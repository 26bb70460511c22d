//! A dataset's folder as a whole: what is there before, the manifest that makes it a dataset, and what is left over.

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::{DatasetError, LeftOutTally, Why, catalog::Catalogued};
use crate::{
    FormatError,
    index::INDEX_SUFFIX,
    manifest::{MANIFEST_NAME, Manifest, ManifestBuilder},
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
    /// A dataset that is there is replaced. Objects that its manifest does not name are left alone.
    Replace,
}

/// Makes room for a dataset: its folder has no manifest afterwards. Gives the shards that the old manifest named.
pub(super) async fn make_room(to: &DatasetStore, overwrite: Overwrite) -> Result<Vec<String>, DatasetError> {
    let in_use = |name: &str| Err(DatasetError::InUse { url: to.url_of(name) });
    if overwrite == Overwrite::Refuse {
        if exists(to, MANIFEST_NAME).await? {
            return in_use(MANIFEST_NAME);
        }
        // Shards without a manifest may be someone's, or what an interrupted run left.
        return match list_shards(to, &mut LeftOutTally::default()).await?.first() {
            Some((name, _)) => in_use(name),
            None => Ok(Vec::new()),
        };
    }
    let old = match to.manifest().await {
        Ok(manifest) => manifest.shards().map(|shard| shard.url.to_owned()).collect(),
        Err(StoreError::Missing { .. }) => return Ok(Vec::new()),
        // A manifest that cannot be read names nothing that we could clear away.
        Err(StoreError::Format { .. } | StoreError::TooLarge { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    remove(to, MANIFEST_NAME).await?;
    Ok(old)
}

/// Fails if there is a manifest that must not be replaced.
pub(super) async fn refuse_manifest(to: &DatasetStore, overwrite: Overwrite) -> Result<(), DatasetError> {
    if overwrite == Overwrite::Refuse && exists(to, MANIFEST_NAME).await? {
        return Err(DatasetError::InUse { url: to.url_of(MANIFEST_NAME) });
    }
    Ok(())
}

/// The shards in a folder and the folders in it, by name: every object that ends in `.tar`. The others are counted in
/// `others`.
pub(super) async fn list_shards(
    from: &DatasetStore,
    others: &mut LeftOutTally,
) -> Result<Vec<(String, ObjectMeta)>, DatasetError> {
    let object = from.object();
    let folder = from.folder();
    let mut listed = object.list(Some(folder)).take(MAX_LISTED);
    let mut shards = Vec::new();
    while let Some(meta) = listed.try_next().await.map_err(|source| StoreError::of(from.url(), source))? {
        let parts = meta.location.prefix_match(folder);
        let name = parts.map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"));
        match name {
            Some(name) if name.ends_with(".tar") => shards.push((name, meta)),
            Some(name) => others.add(&name, Why::NoShard),
            None => {}
        }
    }
    shards.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(shards)
}

pub(super) fn add_shard(manifest: &mut ManifestBuilder, shard: &Catalogued) -> Result<(), DatasetError> {
    let added = manifest.shard(&shard.facts, &shard.blocks);
    added.map_err(|source| DatasetError::Unwritable { url: shard.facts.url.clone(), source })
}

/// Writes the manifest, which is what makes a folder a dataset.
pub(super) async fn write_manifest(to: &DatasetStore, manifest: ManifestBuilder) -> Result<Manifest, DatasetError> {
    let unwritable = |source: FormatError| DatasetError::Unwritable { url: to.url_of(MANIFEST_NAME), source };
    let manifest = manifest.finish().map_err(unwritable)?;
    to.put(MANIFEST_NAME, manifest.bytes().clone()).await?;
    Ok(manifest)
}

/// Removes those of the `old` shards that the new manifest does not name.
pub(super) async fn remove_stale(to: &DatasetStore, old: Vec<String>, new: &Manifest) -> Result<(), DatasetError> {
    let kept: std::collections::HashSet<&str> = new.shards().map(|shard| shard.url).collect();
    for shard in old.iter().filter(|shard| !kept.contains(shard.as_str())) {
        remove_shard(to, shard).await?;
    }
    Ok(())
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

async fn exists(at: &DatasetStore, name: &str) -> Result<bool, DatasetError> {
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
