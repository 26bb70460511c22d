//! A dataset's folder: what may be in it, and removing it.

use std::path::{Path, PathBuf};

use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_shard::{
    index::IndexFile,
    manifest::{ManifestBuilder, MetadataPlace, in_metadata_folder},
    store::DatasetStore,
};
use spdl_store::{StoreError, TemporaryError};

use super::{DatasetError, scan::ScannedShard};
use crate::tar::TAR_SUFFIX;

/// Size of the parts in which long objects are written, in bytes.
pub(super) const PART_BYTES: usize = 8 << 20;
/// Size of these parts on disk, which has no least size. They are in the processor's cache from being made to being written.
const LOCAL_PART_BYTES: usize = 2 << 20;

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

/// The folders that are made for a dataset on disk, the innermost first.
#[derive(Clone, Debug)]
pub struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Returns those that [`DatasetStore::create_with`] will make for this path or URL.
    #[must_use]
    pub fn of(url_or_path: &str) -> Self {
        if url_or_path.contains("://") {
            return Self(Vec::new());
        }
        let parents = Path::new(url_or_path).ancestors();
        let missing = parents.take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        Self(missing.map(Path::to_owned).collect())
    }

    /// Removes those that are empty, after a failure.
    pub fn remove_empty(&self) {
        // `remove_dir` removes only empty folders, so other programs' files stay.
        self.0.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
}

/// Returns the error for a folder that has `name` already.
pub(super) fn in_use<T>(at: &DatasetStore, name: &str) -> Result<T, DatasetError> {
    Err(DatasetError::InUse { url: at.url_of(name) })
}

pub(super) fn add_shard(manifest: &mut ManifestBuilder, shard: &ScannedShard) -> Result<(), DatasetError> {
    let added = manifest.shard(&shard.facts, &shard.blocks);
    added.map_err(|source| DatasetError::Unwritable { url: shard.facts.url.clone(), source })
}

/// Returns the size of the parts in which long objects are written to a store, in bytes.
pub(super) fn part_bytes(to: &DatasetStore) -> usize {
    if to.local_folder().is_some() { LOCAL_PART_BYTES } else { PART_BYTES }
}

/// Writes the index of a shard. Only a part of a long index is in memory.
pub(super) async fn put_index(to: &DatasetStore, name: &str, index: &IndexFile) -> Result<(), DatasetError> {
    if index.bytes() <= PART_BYTES as u64 {
        return Ok(to.put(name, index.read()?).await?);
    }
    put_pieces(to, name, index.pieces()).await
}

/// Writes an object in pieces. Only a part of it is in memory, and it appears in the store as a whole.
pub(super) async fn put_pieces(
    to: &DatasetStore,
    name: &str,
    pieces: impl Iterator<Item = Result<Vec<u8>, TemporaryError>> + Send,
) -> Result<(), DatasetError> {
    let fail = |source| StoreError::of(&to.url_of(name), source);
    let upload = to.object().put_multipart(&to.path_of(name)).await.map_err(fail)?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, part_bytes(to));
    for piece in pieces {
        match piece {
            Ok(piece) => upload.put(piece.into()),
            Err(error) => {
                // The first error is the one to report.
                let _ = upload.abort().await;
                return Err(error.into());
            }
        }
        upload.wait_for_capacity(1).await.map_err(fail)?;
    }
    upload.finish().await.map_err(fail)?;
    Ok(())
}

/// Removes a shard and its index, if they exist.
pub(super) async fn remove_shard(to: &DatasetStore, shard: &str) -> Result<(), DatasetError> {
    remove(to, shard).await?;
    remove(to, &MetadataPlace::Hidden.index_path(shard)).await
}

/// Returns the dataset's name: the given one, or that of its folder.
pub(super) fn dataset_name(to: &DatasetStore, given: Option<&str>) -> String {
    given.unwrap_or_else(|| to.name()).to_owned()
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

/// Removes an object, if it exists, and folders for files about the dataset that are empty then.
pub(super) async fn remove(at: &DatasetStore, name: &str) -> Result<(), DatasetError> {
    match at.object().delete(&at.path_of(name)).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {
            remove_empty_folders(at, name);
            Ok(())
        }
        Err(source) => Err(StoreError::of(&at.url_of(name), source).into()),
    }
}

/// Removes the folders of the path `name` that are for files about the dataset and empty, on disk.
pub(super) fn remove_empty_folders(at: &DatasetStore, name: &str) {
    let Some(root) = at.local_folder().filter(|_| in_metadata_folder(name).is_some()) else { return };
    let above = Path::new(name).ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty());
    for folder in above {
        // `remove_dir` removes only empty folders.
        if std::fs::remove_dir(root.join(folder)).is_err() {
            return;
        }
    }
}

/// Returns the name of shard `number` of a packed dataset.
pub(super) fn shard_name(number: u64) -> String {
    format!("shard-{number:06}.tar")
}

/// Returns whether a packed dataset can have a shard of this name.
pub(super) fn is_shard_name(name: &str) -> bool {
    is_shard_name_of(name, TAR_SUFFIX)
}

/// Returns whether `name` is that of a numbered shard that ends with `suffix`.
pub(super) fn is_shard_name_of(name: &str, suffix: &str) -> bool {
    let number = name.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(suffix));
    number.is_some_and(|number| number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
}
