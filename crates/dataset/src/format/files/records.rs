//! Groups files into records: files of one folder with one stem are one record, as in a tar.
//!
//! The stem of a file ends at a dot of its name. It is the first dot before which the name equals that of a file that
//! makes a record, without its extension: if there is `a.jpg`, then `a.seg.png` is the field `seg.png` of `a`;
//! otherwise it is the picture of `a.seg`. Files arrive by folder and name, so that those with one stem are neighbours,
//! and only these are compared.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    ops::Range,
};

use crate::{LeftOutReason, Listing, field_name, is_picture, is_sound, is_video};

/// A record: the numbers of its files in the listing with the names of their fields, the file that makes it first.
pub(super) struct ListedRecord {
    /// Length of the key, with which the path of the first file begins.
    pub(super) key_bytes: usize,
    pub(super) files: Vec<(usize, String)>,
}

/// Compares paths by folder, then by name.
pub(super) fn by_folder(a: &str, b: &str) -> Ordering {
    a[..name_at(a)].cmp(&b[..name_at(b)]).then_with(|| a.cmp(b))
}

/// Returns whether the file's name gives a field of a record.
pub(super) fn has_field(path: &str) -> bool {
    last_dot(path).is_some_and(|dot| dot + 1 < path.len())
}

/// Returns whether a file with this path is a picture, by its extension.
#[must_use]
pub fn is_picture_file(path: &str) -> bool {
    last_dot(path).is_some_and(|dot| is_picture(&path[dot + 1..]))
}

/// Returns whether a file with this path is a sound, by its extension.
pub(super) fn is_sound_file(path: &str) -> bool {
    last_dot(path).is_some_and(|dot| is_sound(&path[dot + 1..]))
}

/// Returns whether a file with this path is a video, by its extension.
pub(super) fn is_video_file(path: &str) -> bool {
    last_dot(path).is_some_and(|dot| is_video(&path[dot + 1..]))
}

/// Returns the end of the files that may be in one record with file number `first`: those of its folder whose names
/// begin alike up to the first dot.
pub(super) fn neighbours(files: &Listing, first: usize) -> Range<usize> {
    let prefix = |number: usize| {
        let path = files.get(number).name;
        let name = name_at(path);
        &path[..path[name..].find('.').map_or(path.len(), |dot| name + dot)]
    };
    let start = prefix(first);
    let end = (first + 1..files.len()).find(|number| prefix(*number) != start).unwrap_or(files.len());
    first..end
}

/// Groups `neighbours` into records, in their order. The files for which `makes_record` is true make records; the
/// others join one of these or are `left_out`. Pictures with one stem are one record, unless each makes a record
/// `each_alone`.
pub(super) fn group(
    files: &Listing,
    neighbours: Range<usize>,
    makes_record: impl Fn(&str) -> bool,
    each_alone: bool,
    mut left_out: impl FnMut(&str, LeftOutReason),
) -> Vec<ListedRecord> {
    let stems: HashSet<&str> = neighbours
        .clone()
        .map(|number| files.get(number).name)
        .filter(|path| makes_record(path))
        .filter_map(|path| Some(&path[..last_dot(path)?]))
        .collect();
    let mut records: Vec<ListedRecord> = Vec::new();
    let mut by_stem: HashMap<&str, usize> = HashMap::new();
    let mut others: Vec<(usize, usize)> = Vec::new();
    for number in neighbours {
        let path = files.get(number).name;
        let name = name_at(path);
        let dots = path[name..].char_indices().filter(|(_, c)| *c == '.').map(|(dot, _)| name + dot);
        let Some(dot) = dots.into_iter().find(|dot| stems.contains(&path[..*dot])) else {
            left_out(path, LeftOutReason::NoPicture);
            continue;
        };
        if !(makes_record(path) && last_dot(path) == Some(dot)) {
            others.push((number, dot));
            continue;
        }
        let field = field_name(&path[dot + 1..]);
        let twin = by_stem.get(&path[..dot]).map(|record: &usize| &records[*record].files);
        match twin {
            // Two pictures that differ in the spelling of their extension are two records.
            Some(files) if each_alone || files.iter().any(|(_, other)| *other == field) => {
                records.push(ListedRecord { key_bytes: path.len(), files: vec![(number, field)] });
            }
            Some(_) => others.push((number, dot)),
            None => {
                by_stem.insert(&path[..dot], records.len());
                records.push(ListedRecord { key_bytes: dot, files: vec![(number, field)] });
            }
        }
    }
    for (number, dot) in others {
        let path = files.get(number).name;
        let (record, field) = (by_stem[&path[..dot]], field_name(&path[dot + 1..]));
        let files = &mut records[record].files;
        if files.iter().any(|(_, other)| *other == field) {
            left_out(path, LeftOutReason::FieldTwice);
        } else {
            files.push((number, field));
        }
    }
    records
}

/// Returns where the file's name begins in its path.
pub(super) fn name_at(path: &str) -> usize {
    path.rfind('/').map_or(0, |slash| slash + 1)
}

/// Returns the last dot of the file's name, if something is before it.
pub(super) fn last_dot(path: &str) -> Option<usize> {
    path.rfind('.').filter(|dot| *dot > name_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(paths: &[&str]) -> (Vec<(String, Vec<String>)>, Vec<String>) {
        let mut files = Listing::default();
        paths.iter().for_each(|path| files.push(path, 1, None));
        files.sort_by(by_folder);
        let (mut found, mut left_out, mut next) = (Vec::new(), Vec::new(), 0);
        while next < files.len() {
            let neighbours = neighbours(&files, next);
            next = neighbours.end;
            for record in group(&files, neighbours, is_picture_file, false, |path, _| left_out.push(path.to_owned())) {
                let key = &files.get(record.files[0].0).name[..record.key_bytes];
                found.push((key.to_owned(), record.files.into_iter().map(|(_, field)| field).collect()));
            }
        }
        (found, left_out)
    }

    fn record(key: &str, fields: &[&str]) -> (String, Vec<String>) {
        (key.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect())
    }

    #[test]
    fn files_with_one_stem_are_one_record_with_the_picture_first() {
        let (found, left_out) =
            grouped(&["d/b.json", "d/b.png", "a.txt", "a.JPEG", "a.seg.png", "a.d/x.jpg", "a-1.jpg"]);
        let expected = [record("a", &["jpg", "seg.png", "txt"]), record("a-1", &["jpg"]), record("a.d/x", &["jpg"])];
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted[..3], expected);
        assert_eq!(sorted[3], record("d/b", &["png", "json"]));
        assert!(left_out.is_empty(), "{left_out:?}");
    }

    #[test]
    fn a_name_with_more_dots_keeps_them_unless_its_first_part_is_a_picture() {
        let (found, left_out) = grouped(&["grace.hopper.jpg", "grace.hopper.txt", "grace.kelly.jpg", "grace.txt"]);
        assert_eq!(found, [record("grace.hopper", &["jpg", "txt"]), record("grace.kelly", &["jpg"])]);
        assert_eq!(left_out, ["grace.txt"]);
    }

    #[test]
    fn pictures_that_differ_in_their_extension_only_are_two_records_and_other_twins_are_left_out() {
        let (found, left_out) = grouped(&["a.jpg", "a.jpeg", "a.png", "a.txt", "a.TXT"]);
        assert_eq!(found, [record("a", &["jpg", "txt", "png"]), record("a.jpg", &["jpg"])]);
        assert_eq!(left_out, ["a.txt"]);
    }
}
