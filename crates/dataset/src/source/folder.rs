//! Reads a folder of class folders.

use std::{fs::FileType, path::Path};

use spdl_store::TemporaryFolder;

use super::{
    super::hidden::is_hidden,
    DatasetError, LeftOutTally, ListOptions,
    class_folders::ClassFolders,
    collect::{Collected, FileCollector},
    hints,
    left_out::LeftOutReason,
    stems::{FoundRecord, Rules},
    unknown_class, wrong,
};

/// Upper limit of the depth of folders: a deeper one is taken for a link to itself.
const MAX_DEPTH: usize = 32;

/// The kind of an entry of a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathKind {
    Folder,
    File,
    /// A pipe, a device or a socket: opening one may wait forever, or reading it may never end.
    Other,
}

impl PathKind {
    fn of(kind: FileType) -> Self {
        if kind.is_dir() {
            Self::Folder
        } else if kind.is_file() {
            Self::File
        } else {
            Self::Other
        }
    }
}

/// Reads the folders of class folders at these paths of `root`.
pub(super) fn read(
    root: &Path,
    sources: &[String],
    how: &ListOptions<'_>,
    temporary: &TemporaryFolder,
) -> Result<Collected, DatasetError> {
    let taken = how.taken(true);
    let rules = Rules { choice: how.fields, all_make_records: false, taken: &taken };
    let mut files = FileCollector::new(rules, temporary);
    // The path of each class folder, and its name.
    let mut folders: Vec<(String, String)> = Vec::new();
    for source in sources {
        let (folder, before) = match source.as_str() {
            "" => (root.to_owned(), String::new()),
            source => (root.join(source), format!("{source}/")),
        };
        entries(&folder, |name, kind| {
            let path = format!("{before}{name}");
            match kind {
                _ if is_hidden(&name) => count_hidden(root, path, kind, 1, &mut files.left_out),
                PathKind::Folder => folders.push((path, name)),
                PathKind::File => files.left_out.add(&path, LeftOutReason::NoClass),
                PathKind::Other => files.left_out.add(&path, LeftOutReason::NotRegular),
            }
            Ok(())
        })?;
    }
    folders.sort_unstable();
    let mut classes = ClassFolders::default();
    for (path, class) in &folders {
        if !how.allows(class) {
            return Err(unknown_class(&root.join(path).display().to_string(), class));
        }
        let number = classes.find(class).unwrap_or_else(|| classes.add(class));
        walk(root, path, number, 1, &mut files, &mut classes)?;
    }
    let decided = classes.decide(&root.display().to_string(), how)?;
    let key_of = |found: &mut FoundRecord| {
        decided.label(found);
        by_path(found)
    };
    let mut json = Vec::new();
    let mut found = files.records(key_of, |path| hints::note_json(path, &mut json))?;
    found.notes.extend(decided.notes);
    found.notes.extend(hints::unread_annotations(root, &json));
    found.classes = decided.classes;
    Ok(found)
}

/// Returns the key by which records are sorted: records and the folders between them come in the order of their names.
pub(super) fn by_path(found: &FoundRecord) -> Vec<u8> {
    found.first.path.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// Collects the files in `folder` of the root and its subfolders.
fn walk(
    root: &Path,
    folder: &str,
    label: i64,
    depth: usize,
    files: &mut FileCollector<'_>,
    classes: &mut ClassFolders,
) -> Result<(), DatasetError> {
    if depth > MAX_DEPTH {
        return Err(wrong(&root.join(folder), "lies too deep, or is a link to a folder around it"));
    }
    entries(&root.join(folder), |name, kind| {
        let path = format!("{folder}/{name}");
        match kind {
            _ if is_hidden(&name) => {
                count_hidden(root, path, kind, depth + 1, &mut files.left_out);
                Ok(())
            }
            PathKind::Folder => walk(root, &path, label, depth + 1, files, classes),
            PathKind::File => {
                if files.makes_a_record(&path) {
                    classes.has_record(label);
                }
                files.add(Some(label), &path, 0)
            }
            PathKind::Other => {
                files.left_out.add(&path, LeftOutReason::NotRegular);
                Ok(())
            }
        }
    })
}

/// Counts the hidden file at `path` of the root, or the files in the hidden folder there, as far as they can be seen.
fn count_hidden(root: &Path, path: String, kind: PathKind, depth: usize, left_out: &mut LeftOutTally) {
    if kind != PathKind::Folder {
        left_out.add(&path, LeftOutReason::Hidden);
    } else if depth < MAX_DEPTH {
        let _ = entries(&root.join(&path), |name, kind| {
            count_hidden(root, format!("{path}/{name}"), kind, depth + 1, left_out);
            Ok(())
        });
    }
}

/// Passes the names in a folder to `take`, in no order, with the kind of each.
fn entries(
    folder: &Path,
    mut take: impl FnMut(String, PathKind) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let fail = |error: std::io::Error| wrong(folder, &format!("cannot be read: {error}"));
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| wrong(&entry.path(), "has a name that is not UTF-8"))?;
        let fail = |error: std::io::Error| wrong(&entry.path(), &format!("cannot be read: {error}"));
        let listed = entry.file_type().map_err(fail)?;
        let kind = match listed.is_symlink().then(|| std::fs::metadata(entry.path())) {
            Some(Err(_)) if is_hidden(&name) => PathKind::Other,
            Some(target) => PathKind::of(target.map_err(fail)?.file_type()),
            None => PathKind::of(listed),
        };
        take(name, kind)?;
    }
    Ok(())
}
