//! The stores: a file for each, and one table. What their URLs say by themselves is in the table of `spdl_job`.

mod az;
mod file;
mod gs;
mod hub;
mod page_cache;
mod s3;
mod web;

pub use page_cache::WantsFile;

use std::sync::{Arc, LazyLock};

use object_store::{ObjectStore, path::Path};
use spdl_job::scheme::UrlScheme;

use crate::{StoreError, location::Location};

/// All stores. What is not known to be another's is a web server's.
static STORES: [&dyn Store; 6] =
    [&file::LocalStore, &s3::S3Store, &gs::GoogleStore, &az::AzureStore, &hub::Hub, &web::WebStore];

/// What a store has to say about itself.
pub(crate) trait Store: Sync {
    /// Its URLs.
    fn scheme(&self) -> &'static UrlScheme;

    /// The ends of the names of web servers that are this store's.
    fn hosts(&self) -> &'static [&'static str] {
        &[]
    }

    /// The variables of the environment that it reads: whole names, and with a `_` at the end the beginnings of names.
    fn variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether it reads a variable whose value has to be valid. Other variables with such names belong to other
    /// programs.
    fn checks(&self, _variable: &str) -> bool {
        false
    }

    /// What it is called where somebody wants to write to it, if it can be read only.
    fn read_only(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether it can list a folder.
    fn can_list(&self) -> bool {
        true
    }

    /// Returns whether its errors name the region of a bucket.
    fn has_regions(&self) -> bool {
        false
    }

    /// Where it looks for credentials, if nothing can be asked of it without them.
    fn sought(&self) -> Option<SoughtCredentials> {
        None
    }

    /// Returns what the user can do about one of its errors, if that is not the same for all stores.
    fn hint(&self, _error: &StoreError) -> Option<&'static str> {
        None
    }

    /// Opens a folder.
    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError>;
}

/// The places where credentials of a store can be.
pub(crate) struct SoughtCredentials {
    /// What there is not, where none are found.
    pub(crate) missing: &'static str,
    /// What the user can do about it.
    pub(crate) hint: &'static str,
}

/// A folder of a store.
pub(crate) struct OpenedFolder {
    pub(crate) object: Arc<dyn ObjectStore>,
    /// The path of the folder in the store.
    pub(crate) folder: Path,
    /// Its path on disk, if it is a local one.
    pub(crate) local: Option<Arc<std::path::Path>>,
    /// What fixes the folder to a version, if the store has versions.
    pub(crate) versions: Option<Arc<dyn FolderVersions>>,
}

impl OpenedFolder {
    /// Returns a folder of a store without versions.
    pub(crate) fn remote(object: impl ObjectStore, folder: Path) -> Self {
        Self { object: Arc::new(object), folder, local: None, versions: None }
    }
}

/// The versions of a folder.
#[async_trait::async_trait]
pub(crate) trait FolderVersions: Send + Sync {
    /// Returns the URL of the folder at the version that it has now.
    async fn pinned(&self) -> object_store::Result<String>;
}

/// Returns all stores.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Store> {
    STORES.into_iter()
}

/// Returns the store of a URL or path.
pub(crate) fn of(url_or_path: &str) -> Option<&'static dyn Store> {
    let Some((scheme, rest)) = url_or_path.split_once("://") else { return Some(&file::LocalStore) };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let has_host = |store: &&dyn Store| store.hosts().iter().any(|end| host.ends_with(end));
    let by_host = all().find(has_host).filter(|_| scheme.eq_ignore_ascii_case("https"));
    by_host.or_else(|| all().find(|store| store.scheme().has(scheme)))
}

/// The schemes of all stores: `file, s3, gs or http`.
pub(crate) static HINT: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<_> = all().flat_map(|store| store.scheme().names).copied().collect();
    let (last, others) = names.split_last().expect("there are stores");
    format!("give a path, or a URL with {} or {last}", others.join(", "))
});

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_job::scheme::URL_SCHEMES;

    #[test]
    fn every_row_of_urls_has_its_store() {
        assert!(all().map(Store::scheme).zip(URL_SCHEMES).all(|(own, row)| std::ptr::eq(own, row)));
        let name = |url: &str| of(url).map(|store| store.scheme().names[0]);
        assert_eq!(name("https://s3.eu-west-1.amazonaws.com/bucket/set"), Some("s3"));
        assert_eq!(name("https://account.blob.core.windows.net/container"), Some("az"));
        assert_eq!(name("https://example.org/amazonaws.com"), Some("http"));
        assert_eq!(name("ftp://host/x"), None);
        assert_eq!(*HINT, "give a path, or a URL with file, s3, gs, az, hf, http or https");
    }
}
