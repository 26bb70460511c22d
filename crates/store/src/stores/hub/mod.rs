//! Datasets on the Hugging Face Hub.

mod location;
mod repository;

use std::sync::Arc;

use spdl_job::scheme::{HUB, UrlScheme};

use self::{
    location::HubLocation,
    repository::{HubFiles, HubStore},
};
use super::{OpenedFolder, Store};
use crate::{StoreError, StoreLayer, StoreOptions, cause::chain_contains, error::is_of_manifest, location::Location};

/// The variables of the Hub, and those that name the place of its token.
const VARIABLES: [&str; 7] =
    ["HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HOME"];
/// The Hub's address, if no other is set.
const ENDPOINT: &str = "https://huggingface.co";
/// Size of the largest file that is read for the Hub's token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

pub(super) struct Hub;

impl Store for Hub {
    fn scheme(&self) -> &'static UrlScheme {
        &HUB
    }

    fn variables(&self) -> &'static [&'static str] {
        &VARIABLES
    }

    fn checks(&self, variable: &str) -> bool {
        matches!(variable, "HF_TOKEN" | "HF_ENDPOINT")
    }

    fn read_only(&self) -> Option<&'static str> {
        Some("the Hub")
    }

    fn hint(&self, error: &StoreError) -> Option<&'static str> {
        Some(match error {
            StoreError::Missing { source, .. } if chain_contains(source, "RevisionNotFound") => {
                "the repository has no such branch, tag or commit; a slash in the name of a branch is %2F in a URL"
            }
            StoreError::Missing { url, .. } if !is_of_manifest(url) => {
                "check repository, revision and path; a private dataset needs HF_TOKEN"
            }
            StoreError::Denied { source, .. } if chain_contains(source, "Gated") => {
                "accept the terms on the dataset's page, and set HF_TOKEN to a token of the account that has"
            }
            StoreError::Denied { .. } => {
                "check the name, which the Hub refuses like a private one if there is no such dataset; for a private one set HF_TOKEN"
            }
            _ => return None,
        })
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let place = HubLocation::of(location.url()?).map_err(|problem| location.bad(problem))?;
        let options = &location.access.options;
        let folder = place.folder.clone();
        let policy = location.client(authorization(options), None)?;
        let hub = HubStore::new(place, options.value("HF_ENDPOINT").unwrap_or(ENDPOINT), policy);
        let hub = hub.map_err(|error| location.bad(error))?;
        let object = Arc::new(HubFiles(Arc::clone(&hub))).layered();
        Ok(OpenedFolder { object, folder, local: None, versions: Some(hub) })
    }
}

/// Returns the `Authorization` header for the Hugging Face Hub, if there is a token: in the environment, or in the
/// file where its own programs keep it.
fn authorization(options: &StoreOptions) -> Option<Arc<str>> {
    let home = || {
        let cache = || Some(format!("{}/.cache", options.value("HOME")?));
        let cache = || options.value("XDG_CACHE_HOME").map(str::to_owned).or_else(cache);
        options.value("HF_HOME").map(str::to_owned).or_else(|| Some(format!("{}/huggingface", cache()?)))
    };
    let in_file = || {
        let path = options.value("HF_TOKEN_PATH").map(str::to_owned).or_else(|| Some(format!("{}/token", home()?)))?;
        let is_small = std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MAX_TOKEN_BYTES);
        std::fs::read_to_string(path).ok().filter(|_| is_small)
    };
    let in_environment = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(|name| options.value(name));
    let token = in_environment.map(str::to_owned).or_else(in_file)?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then(|| format!("Bearer {token}").into())
}
