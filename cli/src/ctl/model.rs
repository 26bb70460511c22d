//! The files of a model: its tokenizer, and the settings beside that.

use std::path::Path;

use spdl_dataset::DatasetError;
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, StoreOptions};
use spdl_text::{MAX_TOKENIZER_BYTES, Tokenizer};

use super::CtlError;

/// The file with the tokenizer in a folder.
const TOKENIZER: &str = "tokenizer.json";
/// The file beside it that names special tokens, and has the template of older models.
pub(super) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Size of the largest such file that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// A tokenizer, and the folder that it lies in.
pub(super) struct Model {
    pub(super) tokenizer: Tokenizer,
    pub(super) folder: DatasetStore,
}

impl Model {
    /// Reads a tokenizer from a file, or from the folder of a model, on disk or as a URL.
    pub(super) async fn open(path: &str) -> Result<Self, CtlError> {
        let is_folder = Path::new(path).is_dir() || path.contains("://") && !path.ends_with(".json");
        let (folder, name) = if is_folder { (path, TOKENIZER) } else { file_of(path) };
        let folder = open_folder(folder).await?;
        let bytes = folder.read(name, MAX_TOKENIZER_BYTES).await?;
        let tokenizer = Tokenizer::open(&bytes).map_err(|error| unusable(&folder.url_of(name), error.to_string()))?;
        Ok(Self { tokenizer, folder })
    }

    /// Returns the token that ends a text, if a tokenizer_config.json in the folder states it.
    ///
    /// # Errors
    /// If that file is there, and cannot be read or is no JSON.
    pub(super) async fn eos_token(&self) -> Result<Option<String>, CtlError> {
        let Some(config) = read_if_there(&self.folder, TOKENIZER_CONFIG).await? else { return Ok(None) };
        let config: serde_json::Value = serde_json::from_str(&config)
            .map_err(|error| unusable(&self.folder.url_of(TOKENIZER_CONFIG), format!("is no JSON: {error}")))?;
        let Some(token) = config.get("eos_token") else { return Ok(None) };
        Ok(token.get("content").unwrap_or(token).as_str().map(str::to_owned))
    }
}

/// Opens a folder on disk or a URL, to read from.
pub(super) async fn open_folder(folder: &str) -> Result<DatasetStore, CtlError> {
    Ok(DatasetStore::open_with(folder, &StoreOptions::from_env())?.pinned().await?)
}

/// Divides the path or URL of a file into its folder and its name.
pub(super) fn file_of(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => (".", path),
    }
}

/// Reads a file of text; `None` if there is none of this name.
pub(super) async fn read_if_there(folder: &DatasetStore, name: &str) -> Result<Option<String>, CtlError> {
    match folder.read(name, MAX_CONFIG_BYTES).await {
        Ok(bytes) => Ok(Some(utf8(&folder.url_of(name), &bytes)?)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a file of text.
pub(super) async fn read(folder: &DatasetStore, name: &str) -> Result<String, CtlError> {
    utf8(&folder.url_of(name), &folder.read(name, MAX_CONFIG_BYTES).await?)
}

/// Returns the error about a file of a model that cannot be used.
pub(super) fn unusable(path: &str, problem: String) -> CtlError {
    DatasetError::Source { path: path.to_owned(), problem }.into()
}

fn utf8(name: &str, bytes: &[u8]) -> Result<String, CtlError> {
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| unusable(name, "is no text in UTF-8".to_owned()))
}
