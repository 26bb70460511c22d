//! Hints about data in a source that `pack` does not read: annotations of other kinds, and data in other formats.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{FilePlace, LeftOutReason, LeftOutTally, SourceFiles, extension};

/// Upper limit of the files that are inspected.
const MAX_LOOKED_INTO: usize = 32;
/// Number of bytes that are inspected of each file.
const LOOK_BYTES: u64 = 64 << 10;

/// Records a file if it may be annotations of a whole dataset.
pub(super) fn note_json(path: &str, json: &mut Vec<String>) {
    if json.len() < MAX_LOOKED_INTO && extension(path).as_deref() == Some("json") {
        json.push(path.to_owned());
    }
}

/// Returns a note for each COCO file in the source or beside it, because `pack` reads none of it.
pub(super) fn unread_annotations(root: &Path, json: &[String]) -> Vec<String> {
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let around =
        [Some(root.clone()), root.parent().map(Path::to_owned), root.parent().map(|up| up.join("annotations"))];
    let around = around.into_iter().flatten().flat_map(|folder| json_in(&folder));
    let mut seen = std::collections::BTreeSet::new();
    let inside = json.iter().map(|path| root.join(path));
    inside
        .chain(around)
        .filter(|path| seen.insert(path.clone()))
        .filter(|path| is_coco(path))
        .map(|path| unread(&path.display()))
        .collect()
}

/// Returns a note for each COCO file among the JSON files of a source in a store.
pub(super) fn unread_in_store(files: &SourceFiles, json: &[String]) -> Vec<String> {
    let places = json.iter().map(|path| files.place(path));
    let is_coco = |place: &FilePlace| {
        let bytes = place.bytes().ok().flatten().unwrap_or_default();
        place.read_range(0..bytes.min(LOOK_BYTES)).ok().flatten().is_some_and(|head| begins_as_coco(&head))
    };
    places.filter(is_coco).map(|place| unread(&place)).collect()
}

fn unread(place: &dyn fmt::Display) -> String {
    format!(
        "`{place}` has COCO annotations, which were not used: give boxes as Pascal VOC (`--annotations`), or what you train \
         with as a file beside each picture (`0.jpg`, `0.json`)"
    )
}

/// Returns the JSON files directly in a folder.
fn json_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_json).collect();
    paths.sort_unstable();
    paths.truncate(MAX_LOOKED_INTO);
    paths
}

/// Returns whether a file begins like a COCO file: one object with the list of all pictures.
fn is_coco(path: &Path) -> bool {
    let is_regular = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut head = Vec::new();
    let read = |head: &mut Vec<u8>| File::open(path).and_then(|file| file.take(LOOK_BYTES).read_to_end(head));
    is_regular && read(&mut head).is_ok() && begins_as_coco(&head)
}

fn begins_as_coco(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.trim_start().starts_with('{')
        && (head.contains("\"images\"") || head.contains("\"annotations\""))
        && ["\"file_name\"", "\"image_id\"", "\"licenses\""].iter().any(|key| head.contains(key))
}

/// Returns what the user can do with a source that has no record.
pub(super) fn way_out(left_out: &LeftOutTally) -> Option<&'static str> {
    let list = left_out.list();
    let suffixes = || list.iter().map(|entry| entry.suffix.trim_start_matches('.'));
    if suffixes().any(|suffix| super::fields::makes_a_record(&super::fields::field_name(suffix), None)) {
        return Some(
            "`spdl-ctl index` reads pictures that lie in no folder of a class where they are, without labels; to pack them, move them into a \
             folder per class, or write their paths into a text file, each with a tab and its label, and pack that",
        );
    }
    way_out_of(suffixes())
}

/// Returns what the user can do with files of these suffixes, which hold many records each.
pub(crate) fn way_out_of<'s>(mut suffixes: impl Iterator<Item = &'s str>) -> Option<&'static str> {
    suffixes.find_map(|suffix| {
        Some(match suffix {
            suffix if super::fields::is_unread_picture(suffix) => LeftOutReason::UnreadPicture.text(),
            "arrow" => {
                "tables are not read yet: write their pictures to files in a folder per class and `spdl-ctl pack` that, or \
                 write them as WebDataset tars and `spdl-ctl index` these"
            }
            "gz" | "zst" => "`spdl-ctl index` reads compressed tars (`.tar.gz`, `.tar.zst`); decompress other files first",
            "xz" | "bz2" | "zip" => "unpack or decompress them first",
            "lmdb" | "mdb" | "h5" | "hdf5" | "rec" => {
                "this format is not read yet: write its records as WebDataset tars and `spdl-ctl index` these"
            }
            _ => return crate::format::as_they_are(suffix),
        })
    })
}
