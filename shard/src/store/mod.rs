//! The folder that a dataset lies in, on disk or on an object store, opened by its URL.

mod error;
mod hub;
mod layer;
mod location;
mod no_retry;
mod page_cache;
mod profile;
mod read;
mod settings;
mod tls;

pub use error::{StoreError, cause, is_refusal};
pub use layer::StoreLayer;
pub use no_retry::Busy;
pub(crate) use read::{RANGE_BYTES, split};
pub use settings::StoreOptions;

use hub::HubStore;
use location::StoreMode;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use object_store::{ObjectStore, path::Path};
use spdl_job::redact;

use crate::{
    blocking,
    format::ShardIndex,
    manifest::{BaseKind, MANIFEST_NAME, METADATA_FOLDER, Manifest, MetadataPlace, Shard, base_between, folder_at},
    temporary::TemporaryFolder,
};

/// Size of the largest manifest that is read, in bytes: 4 GiB, some 20 million shards.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 30;
/// Size of the largest record index that is read, in bytes: 1 GiB, some 10 million records in one shard.
pub const MAX_INDEX_BYTES: u64 = 1 << 30;

/// The suffix of objects that are going to replace others.
pub(crate) const STAGED_SUFFIX: &str = ".new";

/// The folder of a dataset, or of its shards. It is cheap to clone.
#[derive(Clone)]
pub struct DatasetStore {
    object: Arc<dyn ObjectStore>,
    folder: Path,
    url: Arc<str>,
    /// Whether the store's etags survive copying a dataset; a local file's etag is its inode and time.
    keeps_etags: bool,
    /// The folder's path on disk, if it is a local one.
    local: Option<Arc<std::path::Path>>,
    /// How the folder was opened. The folder of its shards is opened in the same way.
    access: Arc<FolderAccess>,
    /// The folder that the indexes lie in, if this folder has only the shards.
    indexes: Option<Arc<Self>>,
    /// The repository, if the folder is on the Hugging Face Hub.
    hub: Option<Arc<HubStore>>,
}

impl fmt::Debug for DatasetStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetStore").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How a folder is opened.
struct FolderAccess {
    options: StoreOptions,
    mode: StoreMode,
}

impl DatasetStore {
    /// Opens the folder at `url_or_path`: a path, or a URL with `file`, `s3`, `gs`, `az`, `hf`, `http` or `https`. Options
    /// come from the environment, see [`StoreOptions::from_env`]. Opening does not read from the dataset.
    ///
    /// # Errors
    /// If the URL is none of these, its options contradict each other, or a local folder does not exist.
    pub fn open(url_or_path: &str) -> Result<Self, StoreError> {
        Self::open_with(url_or_path, &StoreOptions::from_env())
    }

    /// Opens the folder like [`open`](Self::open), with the caller's options.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(url_or_path: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        location::open(url_or_path, FolderAccess { options: options.clone(), mode: StoreMode::Read })
    }

    /// Opens the folder like [`open`](Self::open), for callers with a retry and time-out policy of their own: every
    /// request is sent once and may take forever, and a busy server's answer is kept, see [`Busy`].
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_once(url_or_path: &str) -> Result<Self, StoreError> {
        location::open(url_or_path, FolderAccess { options: StoreOptions::from_env(), mode: StoreMode::ReadOnce })
    }

    /// Opens the folder like [`open`](Self::open), [pinned](Self::pinned).
    ///
    /// # Errors
    /// As for [`open`](Self::open) and [`pinned`](Self::pinned).
    pub async fn open_pinned(url_or_path: &str) -> Result<Self, StoreError> {
        Self::open(url_or_path)?.pinned().await
    }

    /// Returns the folder fixed to the version that it has now: on the Hugging Face Hub, [`url`](Self::url) names the
    /// commit of the revision, so that a later push changes nothing.
    ///
    /// # Errors
    /// If the Hub cannot be asked.
    pub async fn pinned(&self) -> Result<Self, StoreError> {
        let Some(hub) = &self.hub else { return Ok(self.clone()) };
        let url = hub.pinned().await.map_err(|source| StoreError::of(self.url(), source))?;
        Ok(Self { url: url.into(), ..self.clone() })
    }

    /// Returns the URL by which a job names the folder of `dataset`, which was opened by
    /// [`open_pinned`](Self::open_pinned): as it was given, or with a commit of the Hugging Face Hub.
    #[must_use]
    pub fn pinned_url(&self, dataset: &str) -> String {
        if self.is_on_hub() { self.url().to_owned() } else { dataset.to_owned() }
    }

    /// Returns the same folder, read through the store that `wrap` makes from this one's store.
    #[must_use]
    pub fn through(self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self { object: wrap(self.object), ..self }
    }

    /// Opens a folder to write to; a local one is created if it does not exist.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and if the URL's scheme cannot be written to.
    pub fn create_with(url_or_path: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        location::open(url_or_path, FolderAccess { options: options.clone(), mode: StoreMode::Write })
    }

    /// Returns the URL or path of the folder of the shards of `manifest`, which was read from this folder. A process
    /// that may read from some stores only has to check it before it opens the folder.
    ///
    /// # Errors
    /// [`StoreError::Base`] if the manifest may not name that folder: a manifest in a store may not name a path on this
    /// machine, and a relative path may not lead out of the store.
    pub fn shards_url(&self, manifest: &Manifest) -> Result<String, StoreError> {
        let Some(base) = manifest.base() else { return Ok(self.url().to_owned()) };
        let wrong = |problem: &str| self.wrong_base(manifest.place(), base, problem.to_owned());
        match BaseKind::of(base).map_err(|problem| wrong(&problem))? {
            BaseKind::Url(url) => Ok(url.to_owned()),
            BaseKind::Path(path) if self.local.is_some() => Ok(path.to_owned()),
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
    /// [`StoreError::Base`] if the manifest may not name this folder, or if it cannot be opened.
    pub fn shards(&self, manifest: &Manifest) -> Result<Self, StoreError> {
        let Some(base) = manifest.base() else { return Ok(self.clone()) };
        let url = self.shards_url(manifest)?;
        let access = FolderAccess { options: self.access.options.clone(), mode: self.access.mode.reading() };
        let wrong = |error: StoreError| self.wrong_base(manifest.place(), base, error.to_string());
        let opened = location::open(&url, access).map_err(wrong)?;
        Ok(Self { indexes: Some(Arc::new(self.clone())), ..opened })
    }

    /// Returns the base with which a manifest in this folder names the folder `shards`; `None` if it is the same folder.
    ///
    /// # Errors
    /// [`StoreError::Base`] if no manifest in this folder may name that one.
    pub(crate) fn base_of(&self, shards: &Self) -> Result<Option<String>, StoreError> {
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
            if self.local.is_none() {
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
        StoreError::Base { manifest: self.url_of(&place.path(MANIFEST_NAME)), base: redact(base).into_owned(), problem }
    }

    /// Returns the folder's URL, without a trailing slash, a password or a query.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of `relative` in the folder, for messages.
    #[must_use]
    pub fn url_of(&self, relative: &str) -> String {
        format!("{}/{relative}", self.url)
    }

    /// Returns the object store itself, for reading shards.
    #[must_use]
    pub fn object(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.object)
    }

    /// Returns the path of `relative` in the store.
    ///
    /// # Panics
    /// If `relative` is not a path inside the folder. The paths of a manifest's shards are: they were checked when it
    /// was opened.
    #[must_use]
    pub fn path_of(&self, relative: &str) -> Path {
        let whole =
            if self.folder.as_ref().is_empty() { relative.to_owned() } else { format!("{}/{relative}", self.folder) };
        Path::parse(&whole).unwrap_or_else(|error| panic!("`{relative}` lies outside the folder: {error}"))
    }

    /// Returns the path of `shard` in the store.
    #[must_use]
    pub fn shard_path(&self, shard: &Shard<'_>) -> Path {
        self.path_of(shard.url)
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
        let object = self.read_kept(&name, limit_bytes, Manifest::check_head).await?;
        let bytes = object.bytes();
        let manifest = blocking(move || Manifest::open(bytes)).await;
        object.give_back();
        let manifest = manifest.map_err(|source| StoreError::Format { url: self.url_of(&name), source })?;
        Ok(manifest.found_at(place))
    }

    /// Returns the URL of `manifest`, which was read from this folder, for messages.
    #[must_use]
    pub fn manifest_url(&self, manifest: &Manifest) -> String {
        self.url_of(&manifest.place().path(MANIFEST_NAME))
    }

    /// Reads the index of `shard` and checks that the manifest was made with it. While a dataset is being indexed again, this
    /// can be the staged index, which will replace it, or one that has moved to [`METADATA_FOLDER`].
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
        let index = index.map_err(|source| StoreError::Format { url: self.url_of(name), source })?;
        if (index.record_count(), index.sample_count()) == (shard.records, shard.samples)
            && index.shard_bytes() == shard.bytes
        {
            return Ok(index);
        }
        let what = "its counts are not those of the manifest".to_owned();
        Err(StoreError::Format { url: self.url_of(name), source: crate::FormatError::Malformed(what) })
    }

    /// Returns whether the store can list a folder; a web server cannot.
    pub(crate) fn can_list(&self) -> bool {
        !self.url.starts_with("http://") && !self.url.starts_with("https://")
    }

    /// Returns whether the folder is on the Hugging Face Hub.
    pub(crate) const fn is_on_hub(&self) -> bool {
        self.hub.is_some()
    }

    /// Returns the folder's path on disk, if it is a local one.
    pub(crate) fn local_folder(&self) -> Option<&std::path::Path> {
        self.local.as_deref()
    }

    /// Returns the folder for temporary files of work that writes to this one: itself if it is a local one.
    pub(crate) fn temporary_folder(&self) -> TemporaryFolder {
        self.local_folder().map_or_else(TemporaryFolder::of_system, |folder| TemporaryFolder::new(folder.to_owned()))
    }

    /// Returns the path of the folder in the store.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores a small object atomically: whole or not at all.
    pub(crate) async fn put(&self, relative: &str, bytes: Bytes) -> Result<(), StoreError> {
        let put = self.object.put_opts(&self.path_of(relative), bytes.into(), Default::default()).await;
        put.map(drop).map_err(|source| StoreError::of(&self.url_of(relative), source))
    }

    /// Removes temporary files that a killed process has left in [`METADATA_FOLDER`] and its subfolders.
    pub(crate) fn remove_metadata_temporaries(&self) -> Result<(), StoreError> {
        let mut folders = vec![METADATA_FOLDER.to_owned()];
        while let Some(folder) = folders.pop() {
            self.remove_temporaries(&folder, |_| true)?;
            let entries = self.local.as_ref().and_then(|root| std::fs::read_dir(root.join(&folder)).ok());
            let below = entries.into_iter().flatten().flatten();
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.filter_map(|entry| Some(format!("{folder}/{}", entry.file_name().to_str()?))));
        }
        Ok(())
    }

    /// Removes the temporary files of objects whose name `is_ours`, which a process left because it was killed while it
    /// wrote them. Looks in a subfolder, or in the folder itself if `subfolder` is empty. `object_store` writes
    /// `NAME#1` and renames it, and neither lists nor removes such files.
    pub(crate) fn remove_temporaries(&self, subfolder: &str, is_ours: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let Some(folder) = &self.local else { return Ok(()) };
        let folder = folder.join(subfolder);
        let fail = |source: std::io::Error| {
            let source = object_store::Error::Generic { store: "file", source: source.into() };
            StoreError::of(&self.url, source)
        };
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(fail)?,
        };
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.rsplit_once('#'));
            let is_left = |(name, number): (&str, &str)| {
                is_ours(name) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            };
            if parts.is_some_and(is_left) {
                match std::fs::remove_file(entry.path()) {
                    // Another process may have removed it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(fail)?,
                }
            }
        }
        Ok(())
    }

    /// Returns the etag to record for an object, if the etag would survive copying the dataset.
    #[must_use]
    pub fn lasting_etag(&self, etag: Option<String>) -> Option<String> {
        // A weak etag names a representation, not bytes.
        etag.filter(|etag| self.keeps_etags && !etag.starts_with("W/"))
    }
}
