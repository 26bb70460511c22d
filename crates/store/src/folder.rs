//! A folder on disk or in an object store, opened by its URL.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use object_store::{ObjectStore, path::Path};

use crate::{
    StoreError, StoreOptions, TemporaryFolder,
    location::{self, StoreMode},
    stores::{FolderVersions, Store},
};
use spdl_job::scheme::UrlScheme;

/// A folder on disk or in an object store. It is cheap to clone.
#[derive(Clone)]
pub struct StoreFolder {
    pub(crate) object: Arc<dyn ObjectStore>,
    pub(crate) folder: Path,
    pub(crate) url: Arc<str>,
    pub(crate) store: &'static dyn Store,
    /// The folder's path on disk, if it is a local one.
    pub(crate) local: Option<Arc<std::path::Path>>,
    /// How the folder was opened.
    pub(crate) access: Arc<FolderAccess>,
    /// The folder's versions, if the store has versions.
    pub(crate) versions: Option<Arc<dyn FolderVersions>>,
}

impl fmt::Debug for StoreFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFolder").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How a folder is opened.
pub(crate) struct FolderAccess {
    pub(crate) options: StoreOptions,
    pub(crate) mode: StoreMode,
}

impl StoreFolder {
    /// Opens the folder at `url_or_path`: a path, or a URL with a scheme of [`URL_SCHEMES`](spdl_job::scheme::URL_SCHEMES). Options
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
    /// request is sent once and may take forever, and a busy server's answer is kept, see [`Busy`](crate::Busy).
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_once(url_or_path: &str) -> Result<Self, StoreError> {
        location::open(url_or_path, FolderAccess { options: StoreOptions::from_env(), mode: StoreMode::ReadOnce })
    }

    /// Returns the folder fixed to the version that it has now: in a store with versions, [`url`](Self::url) names
    /// it, such as the commit of a revision, so that a later push changes nothing.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub async fn pinned(&self) -> Result<Self, StoreError> {
        let Some(versions) = &self.versions else { return Ok(self.clone()) };
        let url = versions.pinned().await.map_err(|source| StoreError::of(self.url(), source))?;
        Ok(Self { url: url.into(), ..self.clone() })
    }

    /// Returns the URL by which a job names the folder of `dataset`, which was opened
    /// and [pinned](Self::pinned): as it was given, or with its version.
    #[must_use]
    pub fn pinned_url(&self, dataset: &str) -> String {
        if self.versions.is_some() { self.url().to_owned() } else { dataset.to_owned() }
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

    /// Opens another folder to read from, with the options of this one.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_another(&self, url_or_path: &str) -> Result<Self, StoreError> {
        let FolderAccess { options, mode } = &*self.access;
        location::open(url_or_path, FolderAccess { options: options.clone(), mode: mode.reading() })
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
    /// If `relative` is not a path inside the folder.
    #[must_use]
    pub fn path_of(&self, relative: &str) -> Path {
        let whole =
            if self.folder.as_ref().is_empty() { relative.to_owned() } else { format!("{}/{relative}", self.folder) };
        Path::parse(&whole).unwrap_or_else(|error| panic!("`{relative}` lies outside the folder: {error}"))
    }

    /// Returns whether the store can list a folder; a web server cannot.
    #[must_use]
    pub fn can_list(&self) -> bool {
        self.store.can_list()
    }

    /// Returns the folder's name: the last part of its URL, without a revision.
    #[must_use]
    pub fn name(&self) -> &str {
        UrlScheme::name(&self.url)
    }

    /// Returns the folder's path on disk, if it is a local one.
    #[must_use]
    pub fn local_folder(&self) -> Option<&std::path::Path> {
        self.local.as_deref()
    }

    /// Returns the folder for temporary files of work that writes to this one: itself if it is a local one.
    #[must_use]
    pub fn temporary_folder(&self) -> TemporaryFolder {
        self.local_folder().map_or_else(TemporaryFolder::of_system, |folder| TemporaryFolder::new(folder.to_owned()))
    }

    /// Returns the path of the folder in the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores a small object atomically: whole or not at all.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub async fn put(&self, relative: &str, bytes: Bytes) -> Result<(), StoreError> {
        let put = self.object.put_opts(&self.path_of(relative), bytes.into(), Default::default()).await;
        put.map(drop).map_err(|source| StoreError::of(&self.url_of(relative), source))
    }

    /// Removes temporary files that a killed process has left in a subfolder and the folders below it.
    ///
    /// # Errors
    /// If a folder cannot be read, or a file cannot be removed.
    pub fn remove_temporaries_below(&self, subfolder: &str) -> Result<(), StoreError> {
        let mut folders = vec![subfolder.to_owned()];
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
    ///
    /// # Errors
    /// If the folder cannot be read, or a file cannot be removed.
    pub fn remove_temporaries(&self, subfolder: &str, is_ours: impl Fn(&str) -> bool) -> Result<(), StoreError> {
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
        // A weak etag names a representation, not bytes. That of a local file is its inode and time.
        etag.filter(|etag| self.local.is_none() && !etag.starts_with("W/"))
    }
}
