//! The places of the files about a dataset, beside its shards: the manifest, record indexes, evaluated views, and the
//! lists of a command that is writing.

use crate::index::INDEX_SUFFIX;

/// Name of the manifest.
pub const MANIFEST_NAME: &str = "manifest.spdl";

/// The subfolder of a dataset's folder that holds the files about the dataset. It is hidden, so that other programs
/// find only the data: `pyarrow` and the Hub's `datasets` read every file that is not hidden, and Energon and DALI call
/// their own record indexes `x.tar.idx`, too.
pub const METADATA_FOLDER: &str = ".spdl";

/// The place of the files about a dataset in its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataPlace {
    /// In [`METADATA_FOLDER`], where all of them are written.
    #[default]
    Hidden,
    /// In the folder itself, beside the shards: they are read there, and never written.
    Beside,
}

impl MetadataPlace {
    /// The places in the order in which a manifest is looked for.
    pub const ALL: [Self; 2] = [Self::Hidden, Self::Beside];

    /// Returns the path of the file `name`, relative to the dataset's folder.
    #[must_use]
    pub fn path(self, name: &str) -> String {
        match self {
            Self::Hidden if in_metadata_folder(name).is_none() => format!("{METADATA_FOLDER}/{name}"),
            _ => name.to_owned(),
        }
    }

    /// Returns the path of the record index of the shard at `shard`, relative to the dataset's folder.
    #[must_use]
    pub fn index_path(self, shard: &str) -> String {
        self.path(&format!("{shard}{INDEX_SUFFIX}"))
    }
}

/// Returns `path` relative to [`METADATA_FOLDER`]; `None` if it lies outside that folder.
#[must_use]
pub fn in_metadata_folder(path: &str) -> Option<&str> {
    path.strip_prefix(METADATA_FOLDER)?.strip_prefix('/')
}
