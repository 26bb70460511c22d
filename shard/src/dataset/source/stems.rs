//! Groups files into records: files with one stem form one record.
//!
//! As in WebDataset, a stem ends at the first dot of a file's name, within its folder: `0.jpg`, `0.txt` and `0.seg.png`
//! form one record. A name that contains more dots (`grace.hopper.jpeg`) keeps them if its first part alone is not the
//! stem of a picture: its stem ends at the first dot where the stem of a picture ends.

use std::collections::{HashMap, HashSet};

use super::{
    FieldChoice, SourceRecord,
    fields::{field_name, makes_a_record},
    left_out::{LeftOutReason, LeftOutTally},
};

/// A file of a source, with its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    /// Its path as the source gives it, with `/` between parts.
    pub(super) path: Box<str>,
    pub(super) label: Option<i64>,
}

/// The rules by which files become records.
pub(super) struct Rules<'r> {
    /// The fields that are wanted; `None` for all.
    pub(super) choice: Option<&'r FieldChoice>,
    /// Whether every file makes a record, as in a list, and not only pictures.
    pub(super) all_make_records: bool,
    /// Fields that labels and annotations use.
    pub(super) taken: &'r [&'static str],
}

/// Where a file's stem ends, and whether the file makes a record.
struct StemPlace {
    stem_bytes: usize,
    makes_a_record: bool,
}

impl Rules<'_> {
    /// Groups `files` into records, in the order of each record's first file that makes one. Files with one stem and
    /// different labels belong to different records.
    pub(super) fn records(&self, files: &[SourceFile], left_out: &mut LeftOutTally) -> Vec<SourceRecord> {
        let bases: HashSet<(&str, Option<i64>)> = files
            .iter()
            .filter_map(|file| {
                let dot = last_dot(&file.path)?;
                self.makes_a_record(&field_name(&file.path[dot + 1..])).then_some((&file.path[..dot], file.label))
            })
            .collect();
        let mut records: Vec<Gathered<'_>> = Vec::new();
        let mut by_stem: HashMap<(&str, Option<i64>), usize> = HashMap::with_capacity(bases.len());
        let places: Vec<Option<StemPlace>> = files.iter().map(|file| self.place(file, &bases)).collect();
        for makes_a_record in [true, false] {
            for (file, place) in files.iter().zip(&places) {
                let Some(place) = place.as_ref().filter(|place| place.makes_a_record == makes_a_record) else {
                    continue;
                };
                let (stem, suffix) = (&file.path[..place.stem_bytes], &file.path[place.stem_bytes + 1..]);
                let field = match self.field(suffix) {
                    Ok(field) => field,
                    Err(why) => {
                        left_out.add(&file.path, why);
                        continue;
                    }
                };
                let number = by_stem.get(&(stem, file.label)).copied();
                let has_it = |number: usize| records[number].files.iter().any(|(name, _)| *name == field);
                match number.filter(|number| !has_it(*number)) {
                    Some(number) => records[number].files.push((field, &file.path)),
                    // Two pictures whose names differ only in the spelling of their extension are two records.
                    None if makes_a_record => {
                        by_stem.entry((stem, file.label)).or_insert(records.len());
                        let stem_bytes = place.stem_bytes;
                        records.push(Gathered { files: vec![(field, &file.path)], stem_bytes, label: file.label });
                    }
                    None if number.is_some() => left_out.add(&file.path, LeftOutReason::FieldTwice),
                    None => left_out.add(&file.path, self.no_record()),
                }
            }
        }
        for file in files.iter().zip(&places).filter(|(_, place)| place.is_none()).map(|(file, _)| file) {
            left_out.add(&file.path, self.no_record());
        }
        records.into_iter().map(Gathered::record).collect()
    }

    fn place(&self, file: &SourceFile, bases: &HashSet<(&str, Option<i64>)>) -> Option<StemPlace> {
        let name = file.path.rfind('/').map_or(0, |slash| slash + 1);
        let dots = file.path[name..].match_indices('.').map(|(dot, _)| name + dot);
        let stem_bytes = dots
            .filter(|dot| *dot > name && dot + 1 < file.path.len())
            .find(|dot| bases.contains(&(&file.path[..*dot], file.label)))?;
        let is_plain = last_dot(&file.path) == Some(stem_bytes);
        let makes_a_record = is_plain && self.makes_a_record(&field_name(&file.path[stem_bytes + 1..]));
        Some(StemPlace { stem_bytes, makes_a_record })
    }

    fn makes_a_record(&self, field: &str) -> bool {
        match self.choice {
            None if self.all_make_records => true,
            choice => makes_a_record(field, choice),
        }
    }

    /// Returns the field of a file with this suffix.
    fn field(&self, suffix: &str) -> Result<String, LeftOutReason> {
        let field = field_name(suffix);
        let field = match self.choice {
            None => field,
            Some(choice) => choice.name_of(&field).ok_or(LeftOutReason::NotChosen)?.to_owned(),
        };
        if self.taken.contains(&field.as_str()) { Err(LeftOutReason::FieldTaken) } else { Ok(field) }
    }

    /// Returns the reason for a file without a record.
    const fn no_record(&self) -> LeftOutReason {
        if self.all_make_records { LeftOutReason::NotChosen } else { LeftOutReason::NoPicture }
    }
}

struct Gathered<'f> {
    files: Vec<(String, &'f str)>,
    stem_bytes: usize,
    label: Option<i64>,
}

impl Gathered<'_> {
    fn record(self) -> SourceRecord {
        let paths: Vec<&str> = self.files.iter().map(|(_, path)| *path).collect();
        SourceRecord { files: paths.join("\0").into(), stem_bytes: self.stem_bytes as u32, twin: 0, label: self.label }
    }
}

/// Returns where the extension of the file at `path` begins, with its dot; `None` for files without an extension and
/// for hidden files.
pub(super) fn last_dot(path: &str) -> Option<usize> {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name + path[name..].rfind('.')?;
    (dot > name && dot + 1 < path.len()).then_some(dot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(paths: &[&str], choice: Option<&str>) -> (Vec<String>, Vec<(String, LeftOutReason)>) {
        let choice = choice.map(|text| FieldChoice::parse(text).unwrap());
        let rules = Rules { choice: choice.as_ref(), all_make_records: false, taken: &["cls"] };
        let files: Vec<SourceFile> =
            paths.iter().map(|path| SourceFile { path: (*path).into(), label: Some(0) }).collect();
        let mut left_out = LeftOutTally::default();
        let records = rules.records(&files, &mut left_out);
        let shown = records.iter().map(|record| {
            let fields: Vec<String> = record.files().map(|path| record.field(path, choice.as_ref())).collect();
            format!("{}: {}", record.key(), fields.join(" "))
        });
        (shown.collect(), left_out.list().into_iter().map(|entry| (entry.example, entry.why)).collect())
    }

    #[test]
    fn files_with_one_stem_are_one_record() {
        let paths = ["c/0.jpg", "c/0.json", "c/0.png", "c/0.seg.PNG", "c/0.txt", "c/1.jpg", "d/0.jpg"];
        let expected = ["c/0: jpg png json seg.png txt", "c/1: jpg", "d/0: jpg"];
        assert_eq!(records(&paths, None), (expected.map(String::from).to_vec(), vec![]));
    }

    #[test]
    fn names_with_dots_are_distinguished_unless_a_picture_has_the_first_part() {
        let paths = ["img_0.5.jpg", "img_0.5.txt", "img_0.7.jpg", "grace.hopper.jpeg"];
        let expected = ["img_0_5: jpg txt", "img_0_7: jpg", "grace_hopper: jpg"];
        assert_eq!(records(&paths, None), (expected.map(String::from).to_vec(), vec![]));
    }

    #[test]
    fn what_is_in_no_record_is_counted_with_its_reason() {
        let paths = ["0.JPG", "0.jpg", "0.cls", "0.TXT", "0.txt", "notes.txt", "README"];
        let (found, left_out) = records(&paths, None);
        assert_eq!(found, ["0: jpg txt", "0: jpg"], "the second one gets another key later");
        let expected = [
            ("notes.txt", LeftOutReason::NoPicture),
            ("0.cls", LeftOutReason::FieldTaken),
            ("0.txt", LeftOutReason::FieldTwice),
            ("README", LeftOutReason::NoPicture),
        ];
        let mut left_out: Vec<_> = left_out.iter().map(|(path, why)| (path.as_str(), *why)).collect();
        left_out.sort_by_key(|(path, _)| expected.iter().position(|(expected, _)| expected == path));
        assert_eq!(left_out, expected);
    }

    #[test]
    fn chosen_fields_are_kept_and_renamed() {
        let paths = ["0.jpg", "0.png", "0.txt", "1.jpg", "2.png", "2.txt"];
        let (found, left_out) = records(&paths, Some("jpg,png=mask"));
        assert_eq!(found, ["0: jpg mask", "1: jpg", "2: mask"]);
        assert_eq!(left_out, [("0.txt".to_owned(), LeftOutReason::NotChosen)]);
    }
}
