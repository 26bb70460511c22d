//! Reads a folder of class folders in a store, from one list of its objects, a page at a time.

use std::path::Path;

use futures::TryStreamExt;
use spdl_store::TemporaryFolder;
use tokio::runtime::Handle;

use super::{
    super::{hidden::is_hidden, listing::list},
    DatasetError, DatasetStore, ListOptions, SourceFiles,
    class_folders::ClassFolders,
    collect::{Collected, FileCollector},
    extension,
    folder::by_path,
    hints,
    left_out::LeftOutReason,
    stems::{FoundRecord, Rules},
    unknown_class, wrong,
};

/// Upper limit of the classes, so that a wrong bucket does not exhaust the memory.
const MAX_CLASSES: usize = 1 << 20;

/// Reads the folder of class folders that `from` is.
pub(super) fn read(
    from: &DatasetStore,
    source: &SourceFiles,
    how: &ListOptions<'_>,
    temporary: &TemporaryFolder,
) -> Result<Collected, DatasetError> {
    if !from.can_list() {
        let problem = "is on a web server, which cannot list its files; pack from a bucket, or from a folder on disk";
        return Err(wrong(Path::new(from.url()), problem));
    }
    let taken = how.taken(true);
    let rules = Rules { choice: how.fields, all_make_records: false, taken: &taken };
    let mut files = FileCollector::new(rules, temporary);
    let classes = Handle::current().block_on(collect(from, how, &mut files))?;
    let decided = classes.decide(from.url(), how)?;
    let key_of = |found: &mut FoundRecord| {
        decided.label(found);
        by_path(found)
    };
    let mut json = Vec::new();
    let mut collected = files.records(key_of, |path| hints::note_json(path, &mut json))?;
    collected.notes.extend(decided.notes);
    collected.notes.extend(hints::unread_in_store(source, &json));
    collected.classes = decided.classes;
    Ok(collected)
}

/// Collects the files in the folder and its subfolders, with provisional numbers of classes as labels. Returns the
/// folders that may be classes.
async fn collect(
    from: &DatasetStore,
    how: &ListOptions<'_>,
    files: &mut FileCollector<'_>,
) -> Result<ClassFolders, DatasetError> {
    let mut found = ClassFolders::default();
    let mut listed = std::pin::pin!(list(from));
    while let Some((path, meta)) = listed.try_next().await? {
        // Some programs put an empty object where a folder is.
        if meta.size == 0 && extension(&path).is_none() {
            continue;
        }
        if is_hidden(&path) {
            files.left_out.add(&path, LeftOutReason::Hidden);
            continue;
        }
        let Some((class, _)) = path.split_once('/') else {
            files.left_out.add(&path, LeftOutReason::NoClass);
            continue;
        };
        let number = match found.find(class) {
            Some(number) => number,
            None => {
                if !how.allows(class) {
                    return Err(unknown_class(&from.url_of(class), class));
                }
                if found.len() == MAX_CLASSES {
                    let problem = format!("has more than {MAX_CLASSES} folders, and each is a class");
                    return Err(wrong(Path::new(from.url()), &problem));
                }
                found.add(class)
            }
        };
        if files.makes_a_record(&path) {
            found.has_record(number);
        }
        files.add_listed(number, &path, meta.size)?;
    }
    Ok(found)
}
