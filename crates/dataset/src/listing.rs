//! The objects in a dataset's folder, in a compact form: a million of them take some 24 MB beside their names and etags.

use std::{cmp::Ordering, collections::HashSet, future::ready, os::unix::fs::MetadataExt as _, path::Path};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};
use spdl_shard::{manifest::METADATA_FOLDER, store::DatasetStore};
use spdl_store::{ListedObject, StoreError, cause};

use super::{DatasetError, LeftOutReason, LeftOutTally, hidden::is_hidden};

/// Upper limit of the objects that are listed in a folder, so that a wrong bucket does not exhaust the memory.
const MAX_LISTED: usize = 10_000_000;
/// Upper limit of the depth of local folders in which links to nothing and pipes are looked for.
const MAX_DEPTH: usize = 32;
/// Beginning of the error for a link, in a local folder, to a folder that contains the link.
const LOOP: &str = "File system loop found";
/// Number of objects whose facts are requested at once, where the store cannot list them.
const HEADS_AT_ONCE: usize = 16;

/// The objects in a folder and its subfolders: their names, sizes and etags.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Names and etags, one after the other.
    text: String,
    objects: Vec<ListingEntry>,
}

#[derive(Clone, Copy, Debug)]
struct ListingEntry {
    /// Offset of the name in the text; the etag follows it.
    at: usize,
    name_bytes: u32,
    etag_bytes: u32,
    bytes: u64,
}

impl Listing {
    /// Lists the objects in the folder and its subfolders whose names are `wanted`, by name. Objects arrive page by page,
    /// so that only their compact form is in memory.
    pub(crate) async fn of(from: &DatasetStore, wanted: impl Fn(&str) -> bool) -> Result<Self, DatasetError> {
        Self::collected(list(from), wanted).await
    }

    /// Lists the files about the dataset that lie in [`METADATA_FOLDER`] and whose names are `wanted`.
    pub(crate) async fn of_metadata(from: &DatasetStore, wanted: impl Fn(&str) -> bool) -> Result<Self, DatasetError> {
        Self::collected(list_below(from, from.path_of(METADATA_FOLDER)), wanted).await
    }

    async fn collected(
        listed: impl Stream<Item = Result<(String, ObjectMeta), DatasetError>>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, DatasetError> {
        let mut listing = Self::default();
        let mut listed = std::pin::pin!(listed.take(MAX_LISTED));
        while let Some((name, meta)) = listed.try_next().await? {
            if wanted(&name) {
                listing.push(&name, meta.size, meta.e_tag.as_deref());
            }
        }
        listing.sort_by(str::cmp);
        Ok(listing)
    }

    /// Asks the store for the objects called `names`, one by one, and keeps their order.
    pub(crate) async fn of_names(from: &DatasetStore, names: &[String]) -> Result<Self, DatasetError> {
        let mut listing = Self::default();
        let mut heads = std::pin::pin!(
            stream::iter(names)
                .map(|name| async move {
                    let meta = from.object().head(&from.path_of(name)).await;
                    Ok::<_, StoreError>((name, meta.map_err(|source| StoreError::of(&from.url_of(name), source))?))
                })
                .buffered(HEADS_AT_ONCE)
        );
        while let Some((name, meta)) = heads.try_next().await? {
            listing.push(name, meta.size, meta.e_tag.as_deref());
        }
        Ok(listing)
    }

    pub(crate) fn push(&mut self, name: &str, bytes: u64, etag: Option<&str>) {
        let (at, etag) = (self.text.len(), etag.unwrap_or_default());
        self.text.push_str(name);
        self.text.push_str(etag);
        self.objects.push(ListingEntry { at, name_bytes: name.len() as u32, etag_bytes: etag.len() as u32, bytes });
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether there are no objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns object number `number`.
    ///
    /// # Panics
    /// If there is no such object.
    pub(crate) fn get(&self, number: usize) -> ListedObject<'_> {
        self.objects[number].object(&self.text)
    }

    /// Iterates over all objects.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = ListedObject<'_>> + '_ {
        self.objects.iter().map(|entry| entry.object(&self.text))
    }

    /// Returns the number of the object for whose name `compare` returns equality, in a listing that is sorted by it.
    pub(crate) fn find_by(&self, compare: impl Fn(&str) -> Ordering) -> Option<usize> {
        self.objects.binary_search_by(|entry| compare(entry.object(&self.text).name)).ok()
    }

    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(ListedObject<'_>) -> bool) {
        let text = &self.text;
        self.objects.retain(|entry| wanted(entry.object(text)));
    }

    pub(crate) fn sort_by(&mut self, compare: impl Fn(&str, &str) -> Ordering) {
        let text = &self.text;
        self.objects.sort_unstable_by(|a, b| compare(a.object(text).name, b.object(text).name));
    }
}

impl ListingEntry {
    fn object<'l>(&self, text: &'l str) -> ListedObject<'l> {
        let name_end = self.at + self.name_bytes as usize;
        let etag = &text[name_end..name_end + self.etag_bytes as usize];
        ListedObject { name: &text[self.at..name_end], bytes: self.bytes, etag: (!etag.is_empty()).then_some(etag) }
    }
}

/// The files of a folder on disk that were seen so far. By links, one file can have several names.
pub(super) struct FilesSeen<'f> {
    /// `None` in a store, where no object has two names.
    folder: Option<&'f Path>,
    seen: HashSet<(u64, u64)>,
}

impl<'f> FilesSeen<'f> {
    pub(super) fn in_folder(folder: Option<&'f Path>) -> Self {
        Self { folder, seen: HashSet::new() }
    }

    /// Returns whether the file of this name was not seen under another one.
    pub(super) fn is_first(&mut self, name: &str) -> bool {
        let metadata = self.folder.and_then(|folder| std::fs::metadata(folder.join(name)).ok());
        metadata.is_none_or(|file| self.seen.insert((file.dev(), file.ino())))
    }
}

/// Lists the objects in a folder and its subfolders, in no order.
pub(super) fn list(from: &DatasetStore) -> impl Stream<Item = Result<(String, ObjectMeta), DatasetError>> {
    list_below(from, from.folder().clone())
}

/// Lists the objects of a folder that lie below `path` in the store, in no order.
fn list_below(
    from: &DatasetStore,
    path: object_store::path::Path,
) -> impl Stream<Item = Result<(String, ObjectMeta), DatasetError>> {
    let folder = from.folder().clone();
    let url = from.url().to_owned();
    let listed = from.object().list(Some(&path));
    let fail = move |source| match source {
        // `object_store` has no path for such a name, so that nothing else can read the object either.
        object_store::Error::InvalidPath { source } => {
            let name = source.to_string().escape_debug().to_string();
            let problem = format!("holds an object whose name no path can have; rename or remove it: {name}");
            DatasetError::Source { path: url.clone(), problem }
        }
        source => match cause(&source) {
            link if link.starts_with(LOOP) => {
                let problem = format!("holds a link to a folder around it, which has no end; remove it: {link}");
                DatasetError::Source { path: url.clone(), problem }
            }
            _ => StoreError::of(&url, source).into(),
        },
    };
    listed.map_err(fail).try_filter_map(move |meta| {
        let parts = meta.location.prefix_match(&folder);
        let name = parts.map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"));
        ready(Ok(name.map(|name| (name, meta))))
    })
}

/// Counts what a local folder holds beside objects: links to nothing, pipes and devices. A listing passes over them.
pub(super) async fn not_objects(from: &DatasetStore) -> LeftOutTally {
    let Some(folder) = from.local_folder().map(Path::to_owned) else { return LeftOutTally::default() };
    let walking = tokio::task::spawn_blocking(move || {
        let mut found = LeftOutTally::default();
        walk(&folder, "", 0, &mut found);
        found
    });
    walking.await.expect("walking through a folder does not panic")
}

/// Adds what `folder` and its subfolders hold beside objects. Entries that cannot be read are ignored: a listing reports
/// them, or they have just been removed.
fn walk(root: &Path, folder: &str, depth: usize, found: &mut LeftOutTally) {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        if is_hidden(&name) {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        // The type of a link's target takes a system call; the types of all other entries are in the folder.
        let kind = match kind.is_symlink().then(|| std::fs::metadata(entry.path())) {
            Some(Err(_)) => {
                found.add(&path, LeftOutReason::DeadLink);
                continue;
            }
            Some(Ok(target)) => target.file_type(),
            None => kind,
        };
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(root, &path, depth + 1, found);
        } else if !kind.is_dir() && !kind.is_file() {
            found.add(&path, LeftOutReason::NotRegular);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_keeps_names_sizes_and_etags_whatever_is_sorted_or_left_out() {
        let mut listing = Listing::default();
        for (name, bytes, etag) in [("b/ü.jpg", 7, Some("\"e\"")), ("a.tar", 0, None), ("b/a.jpg", 9, Some(""))] {
            listing.push(name, bytes, etag);
        }
        listing.sort_by(str::cmp);
        let found: Vec<_> = listing.iter().map(|object| (object.name, object.bytes, object.etag)).collect();
        assert_eq!(found, [("a.tar", 0, None), ("b/a.jpg", 9, None), ("b/ü.jpg", 7, Some("\"e\""))]);
        listing.retain(|object| object.name.starts_with("b/"));
        assert_eq!((listing.len(), listing.get(1).name), (2, "b/ü.jpg"));
    }
}
