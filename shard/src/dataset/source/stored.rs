//! Reads a folder of class folders in a store, from one list of its objects, a page at a time.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use futures::TryStreamExt;
use tokio::runtime::Handle;

use super::{
    super::{hidden::is_hidden, listing::list},
    DatasetError, DatasetStore, ListOptions, SourceFiles,
    collect::{Collected, FileCollector},
    extension,
    folder::{by_path, no_picture},
    hints,
    left_out::LeftOutReason,
    stems::{FoundRecord, Rules},
    unknown_class, wrong,
};
use crate::temporary::TemporaryFolder;

/// Upper limit of the classes, so that a wrong bucket does not exhaust the memory.
const MAX_CLASSES: usize = 1 << 20;

/// A class that was found: its number among those that were found, in the order in which they came.
type FoundClasses = HashMap<String, i64>;

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
    let found = Handle::current().block_on(collect(from, how, &mut files))?;

    // Until all are found, a class has no number of its own.
    let mut folders: Vec<&String> = found.keys().collect();
    folders.sort_unstable();
    let classes = how.classes_of(from.url(), folders.iter().map(|folder| folder.as_str()))?;
    let numbers: BTreeMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
    let mut labels = vec![0; found.len()];
    found.iter().for_each(|(class, provisional)| labels[*provisional as usize] = numbers[class.as_str()]);
    let mut has_record = vec![false; classes.len()];
    let key_of = |found: &mut FoundRecord| {
        let provisional = found.record.label.expect("each file is in a class");
        let label = labels[provisional as usize];
        found.record.label = Some(label);
        has_record[label as usize] = true;
        by_path(found)
    };
    let mut json = Vec::new();
    let mut collected = files.records(key_of, |path| hints::note_json(path, &mut json))?;
    let empty = folders.iter().filter(|folder| !has_record[numbers[folder.as_str()] as usize]);
    collected.notes.extend(empty.map(|folder| no_picture(folder)));
    collected.notes.extend(hints::unread_in_store(source, &json));
    collected.classes = classes;
    Ok(collected)
}

/// Collects the files in the folder and its subfolders, with provisional numbers of classes as labels. Returns the
/// classes.
async fn collect(
    from: &DatasetStore,
    how: &ListOptions<'_>,
    files: &mut FileCollector<'_>,
) -> Result<FoundClasses, DatasetError> {
    let mut found = FoundClasses::new();
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
        let number = match found.get(class) {
            Some(number) => *number,
            None => {
                if how.classes.is_some_and(|classes| classes.iter().all(|known| known != class)) {
                    return Err(unknown_class(&from.url_of(class), class));
                }
                if found.len() == MAX_CLASSES {
                    let problem = format!("has more than {MAX_CLASSES} folders, and each is a class");
                    return Err(wrong(Path::new(from.url()), &problem));
                }
                let number = found.len() as i64;
                found.insert(class.to_owned(), number);
                number
            }
        };
        files.add_listed(number, &path, meta.size)?;
    }
    Ok(found)
}
