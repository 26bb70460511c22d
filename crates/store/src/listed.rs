//! An object in a list of a folder.

use object_store::ObjectMeta;

use crate::StoreFolder;

/// One object of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedObject<'l> {
    /// Its path, relative to the folder, with `/` between parts.
    pub name: &'l str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its etag, if the store gives one.
    pub etag: Option<&'l str>,
}

impl ListedObject<'_> {
    /// Returns the facts about the object as the store describes it.
    #[must_use]
    pub fn meta(&self, from: &StoreFolder) -> ObjectMeta {
        ObjectMeta {
            location: from.path_of(self.name),
            last_modified: Default::default(),
            size: self.bytes,
            e_tag: self.etag.map(str::to_owned),
            version: None,
        }
    }
}
