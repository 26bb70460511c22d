//! Reads a folder of class folders.

use std::{collections::BTreeMap, path::Path};

use super::{
    DatasetError, ListOptions, SourceRecords, hints,
    left_out::LeftOutReason,
    stems::{Rules, SourceFile},
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

/// Reads the folder of class folders at the root of `found`.
pub(super) fn read(found: &mut SourceRecords, how: &ListOptions<'_>) -> Result<(), DatasetError> {
    let root = found.root.clone();
    let mut folders = Vec::new();
    for (name, kind) in entries(&root)? {
        match kind {
            PathKind::Folder => folders.push(name),
            PathKind::File => found.left_out.add(&name, LeftOutReason::NoClass),
            PathKind::Other => found.left_out.add(&name, LeftOutReason::NotRegular),
        }
    }
    found.classes = how.classes.map_or_else(|| folders.clone(), <[_]>::to_vec);
    let numbers: BTreeMap<String, i64> = found.classes.iter().cloned().zip(0..).collect();
    let mut json = Vec::new();
    for folder in folders {
        let number = *numbers.get(&folder).ok_or_else(|| unknown_class(&root.join(&folder), &folder))?;
        let before = found.records.len();
        walk(found, how, &folder, number, 1, &mut json)?;
        if found.records.len() == before {
            found.notes.push(format!("class `{folder}` has no picture"));
        }
    }
    found.notes.extend(hints::unread_annotations(&root, &json));
    Ok(())
}

fn walk(
    found: &mut SourceRecords,
    how: &ListOptions<'_>,
    folder: &str,
    label: i64,
    depth: usize,
    json: &mut Vec<String>,
) -> Result<(), DatasetError> {
    if depth > MAX_DEPTH {
        return Err(wrong(&found.root.join(folder), "lies too deep, or is a link to a folder around it"));
    }
    let entries = entries(&found.root.join(folder))?;
    let path = |name: &str| format!("{folder}/{name}");
    let is_file = |(_, kind): &&(String, PathKind)| *kind == PathKind::File;
    let file = |(name, _): &(String, PathKind)| SourceFile { path: path(name).into(), label: Some(label) };
    let files: Vec<SourceFile> = entries.iter().filter(is_file).map(file).collect();
    hints::note_json(&files, json);
    let taken = how.taken(true);
    let rules = Rules { choice: how.fields, all_make_records: false, taken: &taken };
    // Records and the subfolders between them come in the order of their names.
    let mut records = rules.records(&files, &mut found.left_out).into_iter().peekable();
    for (name, kind) in &entries {
        match kind {
            PathKind::Other => found.left_out.add(&path(name), LeftOutReason::NotRegular),
            PathKind::Folder => walk(found, how, &path(name), label, depth + 1, json)?,
            PathKind::File => {
                let first = path(name);
                found.records.extend(records.next_if(|record| record.files().next() == Some(&first)));
            }
        }
    }
    assert!(records.next().is_none(), "each record begins with a file of the folder");
    Ok(())
}

/// Returns the names in a folder, sorted, with the kind of each. Hidden entries are left out.
fn entries(folder: &Path) -> Result<Vec<(String, PathKind)>, DatasetError> {
    let fail = |error: std::io::Error| wrong(folder, &format!("cannot be read: {error}"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| wrong(&entry.path(), "has a name that is not UTF-8"))?;
        if !name.starts_with('.') {
            let fail = |error: std::io::Error| wrong(&entry.path(), &format!("cannot be read: {error}"));
            let listed = entry.file_type().map_err(fail)?;
            let kind =
                if listed.is_symlink() { std::fs::metadata(entry.path()).map_err(fail)?.file_type() } else { listed };
            let kind = match kind {
                kind if kind.is_dir() => PathKind::Folder,
                kind if kind.is_file() => PathKind::File,
                _ => PathKind::Other,
            };
            names.push((name, kind));
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}
