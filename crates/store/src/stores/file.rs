//! Folders of this machine.

use std::{io::ErrorKind, path::PathBuf};

use object_store::{local::LocalFileSystem, path::Path};
use spdl_job::scheme::{LOCAL, UrlScheme};

use super::{OpenedFolder, Store, page_cache::PageCacheStore};
use crate::{
    StoreError,
    location::{Location, StoreMode},
};

pub(super) struct LocalStore;

impl Store for LocalStore {
    fn scheme(&self) -> &'static UrlScheme {
        &LOCAL
    }

    fn hint(&self, error: &StoreError) -> Option<&'static str> {
        matches!(error, StoreError::Denied { .. }).then_some("check the permissions of the file and of its folders")
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let path = match &location.url {
            Some(url) => url.to_file_path().map_err(|()| location.bad("it names a file on another host"))?,
            None => PathBuf::from(location.given),
        };
        let generic = |source: std::io::Error| object_store::Error::Generic { store: "file", source: source.into() };
        let path = std::path::absolute(path).map_err(|source| StoreError::of(location.given, generic(source)))?;
        let url = path.to_string_lossy().trim_end_matches('/').to_owned();
        let writes = location.access.mode == StoreMode::Write;
        if writes {
            std::fs::create_dir_all(&path).map_err(|source| StoreError::of(&url, generic(source)))?;
        }
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                return Err(StoreError::BadLocation {
                    url,
                    problem: "it is a file, not a dataset's folder".to_owned(),
                });
            }
            Err(source) if source.kind() == ErrorKind::NotFound => {
                let source = object_store::Error::NotFound { path: url.clone(), source: source.into() };
                return Err(StoreError::of(&url, source));
            }
            Err(source) => return Err(StoreError::of(&url, generic(source))),
        }
        let store = LocalFileSystem::new_with_prefix(&path).map_err(|source| StoreError::of(&url, source))?;
        let object = PageCacheStore::over(store.with_fsync(writes), &path);
        Ok(OpenedFolder { object, folder: Path::default(), local: Some(path.into()), versions: None })
    }
}
