//! Reads a folder of class folders.

use std::{collections::BTreeMap, path::Path};

use super::{
    DatasetError, ListOptions, SourceRecord, SourceRecords, hints,
    left_out::LeftOutReason,
    stems::{FolderFiles, Rules},
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
    let mut folders: Vec<String> = Vec::new();
    for (name, kind) in entries(&root)? {
        match kind {
            PathKind::Folder => folders.push(name.into()),
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
    let folder = format!("{folder}/");
    let files: Vec<u32> =
        (0..).zip(&entries).filter(|(_, (_, kind))| *kind == PathKind::File).map(|(at, _)| at).collect();
    let name = |file: u32| &*entries[file as usize].0;
    hints::note_json(&folder, files.iter().map(|file| name(*file)), json);
    let taken = how.taken(true);
    let rules = Rules { choice: how.fields, all_make_records: false, taken: &taken };
    // Records and the subfolders between them come in the order of their names.
    let mut left_out = std::mem::take(&mut found.left_out);
    let mut rest = entries.iter().enumerate();
    let mut take_others = |found: &mut SourceRecords, before: usize| -> Result<(), DatasetError> {
        for (_, (name, kind)) in rest.by_ref().take_while(|(at, _)| *at < before) {
            match kind {
                PathKind::Other => found.left_out.add(&format!("{folder}{name}"), LeftOutReason::NotRegular),
                PathKind::Folder => walk(found, how, &format!("{folder}{name}"), label, depth + 1, json)?,
                PathKind::File => {}
            }
        }
        Ok(())
    };
    let mut take = |first: u32, record: SourceRecord| {
        take_others(found, first as usize)?;
        found.records.push(record);
        Ok(())
    };
    let of = FolderFiles { folder: &folder, label: Some(label), name: &name };
    rules.records(&of, &files, &mut left_out, &mut take)?;
    take_others(found, entries.len())?;
    found.left_out.join(left_out);
    Ok(())
}

/// Returns the names in a folder, sorted, with the kind of each. Hidden entries are left out.
fn entries(folder: &Path) -> Result<Vec<(Box<str>, PathKind)>, DatasetError> {
    let fail = |error: std::io::Error| wrong(folder, &format!("cannot be read: {error}"));
    let mut names: Vec<(Box<str>, PathKind)> = Vec::new();
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
            names.push((name.into(), kind));
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}
