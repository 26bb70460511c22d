//! Replaces a dataset: the old one stays until the new one is complete, on disk and on object stores.
//!
//! The manifest is the only switch, because every store replaces a single object atomically. So [`pack`](super::pack)
//! writes shards whose names are taken under staged names (`.spdl/new/shard-000000.tar`), writes a manifest that names
//! these, copies them to their own names (on disk a hard link, on object stores a copy that the store makes) and writes the
//! manifest once more, because paths are part of the fingerprint. [`index`](super::index) cannot rename shards: it
//! writes staged record indexes (`.spdl/x.tar.idx.new`), then the manifest, then renames the indexes. A reader that finds a
//! record index of another manifest reads the staged one. If the process is killed, at whatever moment, the manifest
//! names objects that exist. Meanwhile a list of shards that may be left over (`unfinished.spdl`) lies beside it, from which
//! the next run cleans up.
//!
//! Outside of the folder for the files about the dataset, only two kinds of files are removed: shards that a manifest
//! or that list names, and files about the dataset that lie [beside them](MetadataPlace::Beside), if their bytes show
//! that they are.

use std::collections::HashSet;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_shard::{
    format::DEFAULT_FORMAT,
    index::{INDEX_SUFFIX, is_index},
    manifest::{
        BlockFacts, MANIFEST_NAME, METADATA_FOLDER, Manifest, ManifestBuilder, MetadataPlace, ShardFacts,
        in_metadata_folder,
    },
    store::{DatasetStore, STAGED_SUFFIX},
};
use spdl_store::StoreError;

use super::{
    DatasetError,
    beside::{leave_beside, may_lie_beside},
    folder::{
        Overwrite, PART_BYTES, exists, in_use, is_shard_name, is_shard_name_of, remove, remove_shard, shard_name,
    },
    in_parts::names::remove_part_names,
    listing::Listing,
    tokens::remove_plan_and_runs,
};
use crate::tar::TAR_SUFFIX;

/// Lists what a killed run may have left behind.
const UNFINISHED_NAME: &str = "unfinished.spdl";
/// The first line of that list.
pub(super) const UNFINISHED_TITLE: &str =
    "# A dataset is being written here, or was not finished. `--force` removes it.";
/// The folder of shards that are going to replace others.
const STAGED_FOLDER: &str = "new/";
/// An entry of that list that stands for every shard with a name that `pack` gives.
const ALL_PACKED: &str = "shard-*.tar";
/// The same for files of tokens.
pub(super) const ALL_TOKENS: [&str; 5] =
    ["shard-*.bin", "shard-*.idx", "shard-*.ds", "shard-*.ds.loss", "shard-*.ds.index"];
/// An entry of that list that stands for everything that parts of a pack write besides shards.
const ALL_PARTS: &str = "parts/*.json";
/// An entry of that list that stands for everything that building files of tokens writes besides these.
pub(super) const ALL_RUNS: &str = "tokens/*";
/// Size of the longest such list that is read, in bytes.
const MAX_UNFINISHED_BYTES: u64 = 1 << 30;

/// Returns the name under which the index called `name` is written if one of that name is in use.
pub(super) fn staged_index(name: &str) -> String {
    format!("{name}{STAGED_SUFFIX}")
}

/// Returns the name under which a shard is written if its own name is taken.
fn staged_shard(name: &str) -> String {
    MetadataPlace::Hidden.path(&format!("{STAGED_FOLDER}{name}"))
}

/// Returns the name of a shard that is staged under the name `staged`.
fn own_name(staged: &str) -> Option<&str> {
    in_metadata_folder(staged)?.strip_prefix(STAGED_FOLDER)
}

/// What happens to what building files of tokens has written besides these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Keep,
    Remove,
}

/// The replacement of a folder's dataset by a packed one.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Whether the new shards are written under staged names.
    is_staged: bool,
    /// Shards in the folder of the dataset that is replaced.
    old: Vec<String>,
}

/// Why a dataset was not committed.
pub(super) struct NotCommitted {
    pub(super) error: DatasetError,
    /// Whether the manifest certainly does not name what was written, so that the written objects can be removed.
    pub(super) can_be_removed: bool,
}

impl NotCommitted {
    pub(super) fn before(error: impl Into<DatasetError>) -> Self {
        Self { error: error.into(), can_be_removed: true }
    }

    pub(super) fn after(error: impl Into<DatasetError>) -> Self {
        Self { error: error.into(), can_be_removed: false }
    }
}

impl Replacement {
    /// Checks what is in `to`, removes what a killed run left behind, and records what this run may leave.
    pub(super) async fn begin(to: &DatasetStore, overwrite: Overwrite) -> Result<Self, DatasetError> {
        let (old, is_staged) = match overwrite {
            Overwrite::Refuse => {
                refuse_manifest(to).await?;
                // Shards without a manifest may belong to someone.
                if let Some(shard) = Listing::of(to, |name| name.ends_with(TAR_SUFFIX)).await?.iter().next() {
                    return in_use(to, shard.name);
                }
                (Vec::new(), false)
            }
            Overwrite::Replace => {
                let manifest = recover(to).await?;
                let old = manifest.as_ref().map(packed_shards).unwrap_or_default();
                let ours: HashSet<&str> = old.iter().map(String::as_str).collect();
                let of_others = Listing::of(to, |name| is_shard_name(name) && !ours.contains(name)).await?;
                if let Some(shard) = of_others.iter().next() {
                    return Err(DatasetError::NotOurs { url: to.url_of(shard.name) });
                }
                // The shards of a manifest can lie elsewhere, and their indexes here.
                let is_named = manifest.iter().flat_map(Manifest::shards).any(|shard| is_shard_name(shard.url));
                (old, is_named)
            }
        };
        let mut unfinished = format!("{UNFINISHED_TITLE}\n");
        let packed = (!is_staged).then_some(ALL_PACKED);
        for name in packed.into_iter().chain(old.iter().map(String::as_str)) {
            unfinished.push_str(name);
            unfinished.push('\n');
        }
        put_unfinished(to, unfinished).await?;
        Ok(Self { is_staged, old })
    }

    /// Returns the name under which shard `name` is written.
    pub(super) fn place_of(&self, name: &str) -> String {
        if self.is_staged { staged_shard(name) } else { name.to_owned() }
    }

    /// Commits what was written as the dataset, and removes the old one.
    pub(super) async fn commit(&self, to: &DatasetStore, manifest: ManifestBuilder) -> Result<Manifest, NotCommitted> {
        let unwritable = |source| DatasetError::Unwritable { url: to.url_of(&manifest_name()), source };
        let mut manifest = manifest.finish().map_err(|source| NotCommitted::before(unwritable(source)))?;
        if self.is_staged {
            manifest = renamed(to, &manifest, staged_shard, None).map_err(NotCommitted::before)?;
        }
        switch(to, &manifest).await?;
        if self.is_staged {
            manifest = settle(to, &manifest).await.map_err(NotCommitted::after)?;
        }
        self.tidy_up(to, &manifest).await.map_err(NotCommitted::after)?;
        Ok(manifest)
    }

    /// Removes what the dataset that was replaced has left.
    async fn tidy_up(&self, to: &DatasetStore, manifest: &Manifest) -> Result<(), DatasetError> {
        let kept: HashSet<&str> = manifest.shards().map(|shard| shard.url).collect();
        for shard in self.old.iter().filter(|shard| !kept.contains(shard.as_str())) {
            remove(to, shard).await?;
        }
        remove_unused(to, Some(manifest)).await?;
        leave_beside(to).await?;
        remove_unfinished(to).await
    }

    /// Removes the first `count` shards, some of which may not exist. The first error is the one to report.
    pub(super) async fn abort(&self, to: &DatasetStore, count: u64) {
        let mut is_clean = true;
        for number in 0..count {
            is_clean &= remove_shard(to, &self.place_of(&shard_name(number))).await.is_ok();
        }
        if is_clean {
            let _ = remove_unfinished(to).await;
        }
    }
}

/// Returns the name of the manifest that is written.
pub(super) fn manifest_name() -> String {
    MetadataPlace::Hidden.path(MANIFEST_NAME)
}

/// Writes the manifest. If the store reports an error, reads it back to find out whether it was written.
pub(super) async fn switch(to: &DatasetStore, manifest: &Manifest) -> Result<(), NotCommitted> {
    let Err(error) = to.put(&manifest_name(), manifest.bytes().clone()).await else { return Ok(()) };
    match to.manifest().await {
        Ok(found) if found.bytes() == manifest.bytes() => Ok(()),
        Ok(_) | Err(StoreError::Missing { .. }) => Err(NotCommitted::before(error)),
        Err(_) => Err(NotCommitted::after(error)),
    }
}

/// Checks that parts of a pack may be written into the folder: it holds nothing, or what other parts wrote.
pub(super) async fn check_for_parts(to: &DatasetStore) -> Result<(), DatasetError> {
    // Other parts write the list before their first shards, so it is read after the shards are listed.
    let shards = Listing::of(to, |name| name.ends_with(TAR_SUFFIX)).await?;
    let unfinished = unfinished(to).await?;
    if let Some(manifest) = existing_manifest(to).await? {
        return in_use(to, &manifest);
    }
    match (unfinished, shards.iter().next()) {
        (Some(list), _) if list.is_of_parts() => Ok(()),
        (Some(_), _) => Err(DatasetError::Unfinished { url: to.url().to_owned() }),
        (None, Some(shard)) => in_use(to, shard.name),
        (None, None) => Ok(()),
    }
}

/// Records what parts of a pack may leave in the folder.
pub(super) async fn begin_part(to: &DatasetStore) -> Result<(), DatasetError> {
    put_unfinished(to, format!("{UNFINISHED_TITLE}\n{ALL_PACKED}\n{ALL_PARTS}\n")).await
}

/// Returns whether parts of a pack have begun in the folder and are not merged, or not tidied up.
pub(super) async fn has_parts_begun(to: &DatasetStore) -> Result<bool, DatasetError> {
    Ok(unfinished(to).await?.is_some_and(|list| list.is_of_parts()))
}

/// Removes everything that parts of a pack have written besides shards.
pub(super) async fn end_parts(to: &DatasetStore) -> Result<(), DatasetError> {
    remove_part_names(to).await?;
    remove_unfinished(to).await
}

/// The list of what may be left over.
pub(super) struct Unfinished(String);

impl Unfinished {
    fn is_of_parts(&self) -> bool {
        self.0.lines().any(|line| line == ALL_PARTS)
    }

    /// Returns whether files of tokens are being built.
    pub(super) fn is_of_runs(&self) -> bool {
        self.0.lines().any(|line| line == ALL_RUNS)
    }
}

/// Reads the list of what may be left over, if there is one.
pub(super) async fn unfinished(to: &DatasetStore) -> Result<Option<Unfinished>, DatasetError> {
    match to.read(&MetadataPlace::Hidden.path(UNFINISHED_NAME), MAX_UNFINISHED_BYTES).await {
        Ok(list) => Ok(Some(Unfinished(String::from_utf8_lossy(&list).into_owned()))),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes the list of what may be left over.
pub(super) async fn put_unfinished(to: &DatasetStore, list: String) -> Result<(), DatasetError> {
    Ok(to.put(&MetadataPlace::Hidden.path(UNFINISHED_NAME), list.into()).await?)
}

pub(super) async fn remove_unfinished(to: &DatasetStore) -> Result<(), DatasetError> {
    remove(to, &MetadataPlace::Hidden.path(UNFINISHED_NAME)).await
}

/// Returns the name of a manifest in the folder, if there is one.
pub(super) async fn existing_manifest(to: &DatasetStore) -> Result<Option<String>, DatasetError> {
    for name in MetadataPlace::ALL.map(|place| place.path(MANIFEST_NAME)) {
        if exists(to, &name).await? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Fails if the folder holds a dataset or what is left of one.
pub(super) async fn refuse_manifest(to: &DatasetStore) -> Result<(), DatasetError> {
    if let Some(manifest) = existing_manifest(to).await? {
        return in_use(to, &manifest);
    }
    match unfinished(to).await? {
        Some(_) => Err(DatasetError::Unfinished { url: to.url().to_owned() }),
        None => Ok(()),
    }
}

/// Completes a replacement that was interrupted. Then removes the shards that are listed as left over and the files about
/// the dataset that are not used, unless the manifest names them. Returns the manifest, if there is one that can be read.
pub(super) async fn recover(to: &DatasetStore) -> Result<Option<Manifest>, DatasetError> {
    recover_and(to, Runs::Remove).await
}

/// Recovers like [`recover`], and decides about runs.
pub(super) async fn recover_and(to: &DatasetStore, runs: Runs) -> Result<Option<Manifest>, DatasetError> {
    to.remove_temporaries_below(METADATA_FOLDER)?;
    let mut manifest = match to.manifest().await {
        Ok(manifest) => Some(manifest),
        // A manifest that cannot be read names nothing that has to stay.
        Err(StoreError::Missing { .. } | StoreError::Format { .. } | StoreError::TooLarge { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(interim) = manifest.take_if(|manifest| manifest.shards().any(|shard| own_name(shard.url).is_some())) {
        manifest = Some(settle(to, &interim).await?);
    }
    let in_place = manifest.as_ref().filter(|manifest| manifest.place() == MetadataPlace::Hidden);
    if let Some(manifest) = in_place {
        settle_indexes(to, manifest).await?;
        leave_beside(to).await?;
    }
    remove_unused(to, in_place).await?;
    if runs == Runs::Remove {
        remove_plan_and_runs(to).await?;
    }
    if let Some(list) = unfinished(to).await? {
        remove_left(to, &list, manifest.as_ref(), runs).await?;
    }
    Ok(manifest)
}

/// Removes the shards that are listed as left over, unless the manifest names them, and the list.
async fn remove_left(
    to: &DatasetStore,
    list: &Unfinished,
    manifest: Option<&Manifest>,
    runs: Runs,
) -> Result<(), DatasetError> {
    let named: HashSet<&str> = manifest.into_iter().flat_map(Manifest::shards).map(|shard| shard.url).collect();
    let listed: HashSet<&str> = list.0.lines().collect();
    let patterns = [ALL_PACKED].into_iter().chain(ALL_TOKENS).filter(|pattern| listed.contains(pattern));
    let suffixes: Vec<&str> = patterns.filter_map(|pattern| pattern.strip_prefix("shard-*")).collect();
    let is_packed = |name: &str| suffixes.iter().any(|suffix| is_shard_name_of(name, suffix));
    if !suffixes.is_empty() {
        to.remove_temporaries("", is_packed)?;
    }
    let is_left = |name: &str| (listed.contains(name) || is_packed(name)) && !named.contains(name);
    for object in Listing::of(to, is_left).await?.iter() {
        remove(to, object.name).await?;
    }
    if list.is_of_parts() {
        remove_part_names(to).await?;
    }
    match runs {
        // They are still listed then.
        Runs::Keep if list.is_of_runs() => Ok(()),
        _ => remove_unfinished(to).await,
    }
}

/// Removes staged shards and indexes, and indexes of shards that the manifest does not name.
pub(super) async fn remove_unused(to: &DatasetStore, manifest: Option<&Manifest>) -> Result<(), DatasetError> {
    let shards = manifest.into_iter().flat_map(Manifest::shards);
    let used: HashSet<String> = shards.map(|shard| MetadataPlace::Hidden.index_path(shard.url)).collect();
    let is_unused = |name: &str| (own_name(name).is_some() || is_index(name)) && !used.contains(name);
    for object in Listing::of_metadata(to, is_unused).await?.iter() {
        remove(to, object.name).await?;
    }
    Ok(())
}

/// Returns the shards of a dataset that lie in its folder under names that `pack` gives.
fn packed_shards(manifest: &Manifest) -> Vec<String> {
    if manifest.base().is_some() || manifest.format() != DEFAULT_FORMAT {
        return Vec::new();
    }
    manifest.shards().map(|shard| shard.url.to_owned()).filter(|name| is_shard_name(name)).collect()
}

fn is_staged_index(name: &str) -> bool {
    name.strip_suffix(STAGED_SUFFIX).is_some_and(|index| index.ends_with(INDEX_SUFFIX))
}

/// Returns whether an object of a dataset's folder is about the dataset, and no data.
pub(super) fn is_metadata(name: &str) -> bool {
    in_metadata_folder(name).is_some() || may_lie_beside(name)
}

/// Renames the staged shards that a manifest names to their own names.
async fn settle(to: &DatasetStore, interim: &Manifest) -> Result<Manifest, DatasetError> {
    let own = |name: &str| own_name(name).unwrap_or(name).to_owned();
    let moved: Vec<&str> = interim.shards().map(|shard| shard.url).filter(|name| own_name(name).is_some()).collect();
    let mut etags = Vec::new();
    for shard in interim.shards() {
        let name = own(shard.url);
        let path = to.path_of(&name);
        if name != shard.url {
            let [index, own_index] = [shard.url, &*name].map(|shard| MetadataPlace::Hidden.index_path(shard));
            copy(to, &index, &own_index).await?;
            copy(to, shard.url, &name).await?;
        }
        // The copy can have another etag than an object that was uploaded in parts.
        let meta = to.object().head(&path).await.map_err(|source| StoreError::of(&to.url_of(&name), source))?;
        etags.push(to.lasting_etag(meta.e_tag));
    }
    let manifest = renamed(to, interim, own, Some(etags))?;
    to.put(&manifest_name(), manifest.bytes().clone()).await?;
    for shard in moved {
        remove_shard(to, shard).await?;
    }
    Ok(manifest)
}

/// Returns the manifest of the same dataset with other names for its shards, and with other etags if they are given.
fn renamed(
    to: &DatasetStore,
    manifest: &Manifest,
    name: impl Fn(&str) -> String,
    etags: Option<Vec<Option<String>>>,
) -> Result<Manifest, DatasetError> {
    let unwritable = |source| DatasetError::Unwritable { url: to.url_of(&manifest_name()), source };
    let mut builder = ManifestBuilder::new(manifest.name())
        .format(manifest.format())
        .base(manifest.base())
        .tokenizer(manifest.tokenizer())
        .classes(manifest.classes());
    for (number, shard) in (0..).zip(manifest.shards()) {
        let etag = match &etags {
            Some(etags) => etags[number as usize].clone(),
            None => shard.etag.map(str::to_owned),
        };
        let facts = ShardFacts {
            url: name(shard.url),
            bytes: shard.bytes,
            etag,
            records: shard.records,
            index_bytes: shard.index_bytes,
            index_hash: shard.index_hash,
        };
        let blocks: Vec<BlockFacts> =
            manifest.shard_blocks(number).map(|block| BlockFacts::of(manifest, block)).collect();
        builder.shard(&facts, &blocks).map_err(unwritable)?;
    }
    builder.finish().map_err(unwritable)
}

/// Renames staged record indexes to their own names, if the manifest was made with them.
pub(super) async fn settle_indexes(to: &DatasetStore, manifest: &Manifest) -> Result<(), DatasetError> {
    let beside = Listing::of_metadata(to, is_staged_index).await?;
    let names: HashSet<&str> = beside.iter().map(|object| object.name).collect();
    for shard in manifest.shards() {
        let index = MetadataPlace::Hidden.index_path(shard.url);
        let beside = staged_index(&index);
        if !names.contains(beside.as_str()) {
            continue;
        }
        let is_it = |bytes: Result<Bytes, StoreError>| {
            bytes.is_ok_and(|bytes| shard.format.open_index(bytes, shard.index_hash).is_ok())
        };
        if is_it(to.read(&index, shard.index_bytes).await) {
            remove(to, &beside).await?;
        } else if is_it(to.read(&beside, shard.index_bytes).await) {
            let renamed = to.object().rename(&to.path_of(&beside), &to.path_of(&index)).await;
            renamed.map_err(|source| StoreError::of(&to.url_of(&index), source))?;
        }
    }
    Ok(())
}

/// Copies an object to a name that the manifest does not use.
async fn copy(at: &DatasetStore, from: &str, to: &str) -> Result<(), DatasetError> {
    // If `to` is a hard link to `from` already, the rename of the temporary file would leave that file behind.
    remove(at, to).await?;
    let object = at.object();
    let (source, target) = (at.path_of(from), at.path_of(to));
    if object.copy(&source, &target).await.is_ok() {
        return Ok(());
    }
    // For file systems without hard links, and objects larger than a store copies itself (S3: 5 GB).
    let fail = |name: &str, error| StoreError::of(&at.url_of(name), error);
    let mut chunks = object.get(&source).await.map_err(|error| fail(from, error))?.into_stream();
    let upload = object.put_multipart(&target).await.map_err(|error| fail(to, error))?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    while let Some(chunk) = chunks.try_next().await.map_err(|error| fail(from, error))? {
        upload.put(chunk);
        upload.wait_for_capacity(1).await.map_err(|error| fail(to, error))?;
    }
    upload.finish().await.map_err(|error| fail(to, error))?;
    Ok(())
}
