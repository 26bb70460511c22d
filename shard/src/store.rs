//! The folder that a dataset lies in, with its manifest and its indexes.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;
use object_store::ObjectStore;
use spdl_job::redact;
use spdl_store::{ContentError, StoreError, StoreFolder, StoreOptions, blocking};

use crate::{
    FormatError,
    format::{ObjectRange, ShardIndex},
    manifest::{BaseKind, MANIFEST_NAME, Manifest, MetadataPlace, Shard, base_between, folder_at},
};

/// Size of the largest manifest that is read, in bytes: 4 GiB, some 20 million shards.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 30;
/// Size of the largest record index that is read, in bytes: 1 GiB, some 10 million records in one shard.
pub const MAX_INDEX_BYTES: u64 = 1 << 30;

/// The suffix of objects that are going to replace others.
pub const STAGED_SUFFIX: &str = ".new";

/// The folder of a dataset, or of its shards. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct DatasetStore {
    folder: StoreFolder,
    /// The folder that the indexes lie in, if this folder has only the shards.
    indexes: Option<Arc<Self>>,
}

impl Deref for DatasetStore {
    type Target = StoreFolder;

    fn deref(&self) -> &StoreFolder {
        &self.folder
    }
}

impl From<StoreFolder> for DatasetStore {
    fn from(folder: StoreFolder) -> Self {
        Self { folder, indexes: None }
    }
}

impl From<FormatError> for ContentError {
    fn from(error: FormatError) -> Self {
        let hint = match &error {
            FormatError::Base { .. } => {
                "a path holds only where each machine sees the shards there, as on a shared file system; otherwise index them \
                 by the URL of a store, or copy the manifest's folder and theirs together"
            }
            FormatError::Newer { .. } => "update spdl-cluster",
            _ => Self::MAKE_AGAIN,
        };
        Self { is_retryable: error.is_retryable(), hint, error: Box::new(error) }
    }
}

impl DatasetStore {
    /// Opens a dataset's folder, see [`StoreFolder::open`].
    ///
    /// # Errors
    /// As for [`StoreFolder::open`].
    pub fn open(url_or_path: &str) -> Result<Self, StoreError> {
        StoreFolder::open(url_or_path).map(Self::from)
    }

    /// Opens the folder with the caller's options, see [`StoreFolder::open_with`].
    ///
    /// # Errors
    /// As for [`StoreFolder::open_with`].
    pub fn open_with(url_or_path: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        StoreFolder::open_with(url_or_path, options).map(Self::from)
    }

    /// Opens the folder for callers with a retry and time-out policy of their own, see [`StoreFolder::open_once`].
    ///
    /// # Errors
    /// As for [`StoreFolder::open_once`].
    pub fn open_once(url_or_path: &str) -> Result<Self, StoreError> {
        StoreFolder::open_once(url_or_path).map(Self::from)
    }

    /// Opens the folder like [`open`](Self::open), [pinned](Self::pinned).
    ///
    /// # Errors
    /// As for [`open`](Self::open) and [`pinned`](Self::pinned).
    pub async fn open_pinned(url_or_path: &str) -> Result<Self, StoreError> {
        Self::open(url_or_path)?.pinned().await
    }

    /// Opens a folder to write to, see [`StoreFolder::create_with`].
    ///
    /// # Errors
    /// As for [`StoreFolder::create_with`].
    pub fn create_with(url_or_path: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        StoreFolder::create_with(url_or_path, options).map(Self::from)
    }

    /// Returns the folder fixed to the version that it has now, see [`StoreFolder::pinned`].
    ///
    /// # Errors
    /// As for [`StoreFolder::pinned`].
    pub async fn pinned(&self) -> Result<Self, StoreError> {
        Ok(Self { folder: self.folder.pinned().await?, indexes: self.indexes.clone() })
    }

    /// Returns the same folder, read through the store that `wrap` makes from this one's store.
    #[must_use]
    pub fn through(self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self { folder: self.folder.through(wrap), ..self }
    }

    /// Returns the URL or path of the folder of the shards of `manifest`, which was read from this folder. A process
    /// that may read from some stores only has to check it before it opens the folder.
    ///
    /// # Errors
    /// [`FormatError::Base`] if the manifest may not name that folder: a manifest in a store may not name a path on this
    /// machine, and a relative path may not lead out of the store.
    pub fn shards_url(&self, manifest: &Manifest) -> Result<String, StoreError> {
        let Some(base) = manifest.base() else { return Ok(self.url().to_owned()) };
        let wrong = |problem: &str| self.wrong_base(manifest.place(), base, problem.to_owned());
        match BaseKind::of(base).map_err(|problem| wrong(&problem))? {
            BaseKind::Url(url) => Ok(url.to_owned()),
            BaseKind::Path(path) if self.local_folder().is_some() => Ok(path.to_owned()),
            BaseKind::Path(_) => Err(wrong("a manifest in a store cannot have its shards on this machine")),
            BaseKind::Relative(up, path) => {
                folder_at(self.url(), up, path).ok_or_else(|| wrong("this is outside of the store"))
            }
        }
    }

    /// Opens the folder of the shards of `manifest`, which was read from this folder. The indexes of the shards are
    /// read from this folder.
    ///
    /// # Errors
    /// [`FormatError::Base`] if the manifest may not name this folder, or if it cannot be opened.
    pub fn shards(&self, manifest: &Manifest) -> Result<Self, StoreError> {
        let Some(base) = manifest.base() else { return Ok(self.clone()) };
        let url = self.shards_url(manifest)?;
        let wrong = |error: StoreError| self.wrong_base(manifest.place(), base, error.to_string());
        let opened = self.folder.open_another(&url).map_err(wrong)?;
        Ok(Self { folder: opened, indexes: Some(Arc::new(self.clone())) })
    }

    /// Returns the base with which a manifest in this folder names the folder `shards`; `None` if it is the same folder.
    ///
    /// # Errors
    /// [`FormatError::Base`] if no manifest in this folder may name that one.
    pub fn base_of(&self, shards: &Self) -> Result<Option<String>, StoreError> {
        let mut url = shards.url().to_owned();
        if let Some(local) = shards.local_folder() {
            let canonical = std::fs::canonicalize(local).ok();
            if self
                .local_folder()
                .is_some_and(|own| canonical.is_some() && std::fs::canonicalize(own).ok() == canonical)
            {
                return Ok(None);
            }
            let wrong = |problem: &str| self.wrong_base(MetadataPlace::Hidden, &url, problem.to_owned());
            if self.local_folder().is_none() {
                return Err(wrong(
                    "a manifest in a store cannot have its shards on this machine; index them where they are read",
                ));
            }
            // A base is text, and may not have `..` in the path of a folder.
            let is_plain = local.components().all(|part| part != std::path::Component::ParentDir);
            let path = if is_plain { Some(local) } else { canonical.as_deref() };
            url = path.and_then(std::path::Path::to_str).ok_or_else(|| wrong("its path is not UTF-8"))?.to_owned();
        }
        Ok(base_between(self.url(), &url))
    }

    fn wrong_base(&self, place: MetadataPlace, base: &str, problem: String) -> StoreError {
        let source = FormatError::Base { base: redact(base).into_owned(), problem };
        StoreError::Format { url: self.url_of(&place.path(MANIFEST_NAME)), source: source.into() }
    }

    /// Reads and checks the manifest.
    ///
    /// # Errors
    /// If it cannot be read or is not a manifest.
    pub async fn manifest(&self) -> Result<Manifest, StoreError> {
        self.manifest_within(MAX_MANIFEST_BYTES).await
    }

    /// Reads and checks the manifest, which may have at most `limit_bytes`, and at most [`MAX_MANIFEST_BYTES`].
    ///
    /// # Errors
    /// As for [`manifest`](Self::manifest), and if the manifest is longer.
    pub async fn manifest_within(&self, limit_bytes: u64) -> Result<Manifest, StoreError> {
        let limit_bytes = limit_bytes.min(MAX_MANIFEST_BYTES);
        let error = match self.manifest_at(MetadataPlace::Hidden, limit_bytes).await {
            // Without permission to list a bucket, a store denies access to objects that it does not have.
            Err(error @ (StoreError::Missing { .. } | StoreError::Denied { .. })) => error,
            found => return found,
        };
        match self.manifest_at(MetadataPlace::Beside, limit_bytes).await {
            Err(StoreError::Missing { .. } | StoreError::Denied { .. }) => Err(error),
            found => found,
        }
    }

    async fn manifest_at(&self, place: MetadataPlace, limit_bytes: u64) -> Result<Manifest, StoreError> {
        let name = place.path(MANIFEST_NAME);
        let object = self.read_kept(&name, limit_bytes, |first, bytes| Ok(Manifest::check_head(first, bytes)?)).await?;
        let bytes = object.bytes();
        let manifest = blocking(move || Manifest::open(bytes)).await;
        object.give_back();
        let manifest = manifest.map_err(|source| self.wrong(&name, source))?;
        Ok(manifest.found_at(place))
    }

    /// Returns the URL of `manifest`, which was read from this folder, for messages.
    #[must_use]
    pub fn manifest_url(&self, manifest: &Manifest) -> String {
        self.url_of(&manifest.place().path(MANIFEST_NAME))
    }

    /// Reads the index of `shard` and checks that the manifest was made with it. While a dataset is being indexed again, this
    /// can be the staged index, which will replace it, or one that has moved to [`METADATA_FOLDER`](crate::manifest::METADATA_FOLDER).
    ///
    /// # Errors
    /// If it cannot be read or is another index.
    pub async fn index(&self, shard: &Shard<'_>) -> Result<Arc<dyn ShardIndex>, StoreError> {
        if let Some(indexes) = &self.indexes {
            return Box::pin(indexes.index(shard)).await;
        }
        let name = shard.place.index_path(shard.url);
        let error = match self.index_at(&name, shard).await {
            Err(error @ (StoreError::Missing { .. } | StoreError::Format { .. } | StoreError::Changed { .. })) => error,
            read => return read,
        };
        let other = match shard.place {
            MetadataPlace::Hidden => format!("{name}{STAGED_SUFFIX}"),
            MetadataPlace::Beside => MetadataPlace::Hidden.index_path(shard.url),
        };
        self.index_at(&other, shard).await.map_err(|_| error)
    }

    async fn index_at(&self, name: &str, shard: &Shard<'_>) -> Result<Arc<dyn ShardIndex>, StoreError> {
        let limit_bytes = shard.index_bytes.min(MAX_INDEX_BYTES);
        let bytes = self.read(name, limit_bytes).await.map_err(|error| match error {
            StoreError::TooLarge { url, bytes, .. } if limit_bytes == shard.index_bytes => {
                let problem = format!("the manifest has {limit_bytes} bytes, the store has {bytes}");
                StoreError::Changed { url, problem }
            }
            error => error,
        })?;
        let index = shard.format.open_index(bytes, shard.index_hash);
        let index = index.map_err(|source| self.wrong(name, source))?;
        if (index.record_count(), index.sample_count()) == (shard.records, shard.samples)
            && index.shard_bytes() == shard.bytes
        {
            return Ok(index);
        }
        Err(self.wrong(name, FormatError::Malformed("its counts are not those of the manifest".to_owned())))
    }

    fn wrong(&self, name: &str, source: FormatError) -> StoreError {
        StoreError::Format { url: self.url_of(name), source: source.into() }
    }

    /// Reads a range of an object, and checks that the object has not changed since it was indexed.
    ///
    /// # Errors
    /// If it cannot be read, or changed.
    pub async fn read_range(&self, part: &ObjectRange) -> Result<Bytes, StoreError> {
        let ObjectRange { object, range, .. } = part;
        // A web server may support no ranges.
        let bounds = (*range != (0..object.bytes)).then(|| range.clone());
        let answer = self.get_range(&object.url, bounds).await?;
        if let Some([indexed, found]) = object.change(answer.meta.size, answer.meta.e_tag.as_deref()) {
            let problem = format!("{indexed} when it was indexed, {found} in the store");
            return Err(StoreError::Changed { url: self.url_of(&object.url), problem });
        }
        self.body(&object.url, answer, range.end - range.start).await
    }
}
