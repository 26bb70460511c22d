//! Groups files into records: files with one stem form one record.
//!
//! As in WebDataset, a stem ends at the first dot of a file's name, within its folder: `0.jpg`, `0.txt` and `0.seg.png`
//! form one record. A name that contains more dots (`grace.hopper.jpeg`) keeps them if its first part alone is not the
//! stem of a picture: its stem ends at the first dot where the stem of a picture ends.
//!
//! Files are sorted by keys in which those of one stem follow each other, and the picture that has the stem comes before
//! the others. So one pass finds the records, and needs no memory but for the files of one stem.

use super::{
    DatasetError, FieldChoice, SourceRecord,
    fields::{field_name, is_unread_picture, makes_a_record},
    left_out::{LeftOutReason, LeftOutTally},
};

/// Follows a dot of a name in its key if the stem of a record ends there, for certain.
const STEM_ENDS: u8 = 1;
/// Follows all other dots.
const NAME_GOES_ON: u8 = 2;
/// Bytes of a label in a key: whether there is one, and its number.
const LABEL_BYTES: usize = 9;

/// A file of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceFile {
    /// The number of its line in a list, by which the files of a record are ordered. In a folder it is 0, and they are
    /// ordered by name.
    pub(super) line: u32,
    /// Its path as the source gives it.
    pub(super) path: String,
    pub(super) label: Option<i64>,
    /// Its size in bytes, if the source's list has it.
    pub(super) bytes: Option<u64>,
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

impl Rules<'_> {
    /// Writes the key by which files are sorted: the label, the length of the folder's path, the folder and the name.
    pub(super) fn key(&self, label: Option<i64>, path: &str, key: &mut Vec<u8>) {
        key.clear();
        key.push(label.is_some().into());
        key.extend(label.unwrap_or_default().to_be_bytes());
        let (folder, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        key.extend((folder.len() as u32).to_be_bytes());
        key.extend(folder.bytes());
        let end = last_dot(path).filter(|dot| self.ends_at(*dot, path)).map(|dot| dot - folder.len());
        for (at, byte) in name.bytes().enumerate() {
            key.push(byte);
            if byte == b'.' {
                key.push(if end == Some(at) { STEM_ENDS } else { NAME_GOES_ON });
            }
        }
    }

    /// Returns whether a file makes a record whose stem ends at this byte of its path.
    pub(super) fn ends_at(&self, dot: usize, path: &str) -> bool {
        last_dot(path) == Some(dot) && self.makes_a_record(&field_name(&path[dot + 1..]))
    }

    /// Makes records of the files whose stem ends at this byte of their paths, in the order of their first files.
    fn of_stem(&self, dot: usize, mut files: Vec<SourceFile>, left_out: &mut LeftOutTally) -> Vec<FoundRecord> {
        files.sort_unstable();
        // Those that make a record come first.
        files.sort_by_key(|file| !self.ends_at(dot, &file.path));
        let mut records: Vec<GatheredFiles> = Vec::new();
        for file in files {
            let suffix = &file.path[dot + 1..];
            let field = if suffix.is_empty() { Err(self.no_record(&file.path)) } else { self.field(suffix) };
            let field = match field {
                Ok(field) => field,
                Err(why) => {
                    left_out.add(&file.path, why);
                    continue;
                }
            };
            let has_record = !records.is_empty();
            match records.first_mut().filter(|record| record.iter().all(|(name, _)| *name != field)) {
                Some(record) => record.push((field, file)),
                // Two pictures whose names differ only in the spelling of their extension are two records.
                None if self.ends_at(dot, &file.path) => records.push(vec![(field, file)]),
                None if has_record => left_out.add(&file.path, LeftOutReason::FieldTwice),
                None => left_out.add(&file.path, self.no_record(&file.path)),
            }
        }
        records.into_iter().map(|files| FoundRecord::of(dot, files)).collect()
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
    fn no_record(&self, path: &str) -> LeftOutReason {
        match self.all_make_records {
            true => LeftOutReason::NotChosen,
            false if is_unread_picture(path) => LeftOutReason::UnreadPicture,
            false => LeftOutReason::NoPicture,
        }
    }
}

/// A record's fields and their files.
type GatheredFiles = Vec<(String, SourceFile)>;

/// A record, with its first file.
pub(super) struct FoundRecord {
    pub(super) first: SourceFile,
    pub(super) record: SourceRecord,
}

impl FoundRecord {
    fn of(dot: usize, files: GatheredFiles) -> Self {
        let paths: Vec<&str> = files.iter().map(|(_, file)| file.path.as_str()).collect();
        let (files_text, first) = (paths.join("\0").into(), files[0].1.clone());
        let sizes = files.iter().filter_map(|(_, file)| file.bytes).collect();
        let record = SourceRecord { files: files_text, sizes, stem_bytes: dot as u32, twin: 0, label: first.label };
        Self { first, record }
    }
}

/// Groups files, which arrive in the order of their keys, into records.
pub(super) struct StemGroups<'g> {
    rules: &'g Rules<'g>,
    /// The dot at which the stem of `files` ends, in bytes of their paths.
    dot: usize,
    /// Files of one stem; the first one makes a record.
    files: Vec<SourceFile>,
}

impl<'g> StemGroups<'g> {
    pub(super) const fn new(rules: &'g Rules<'g>) -> Self {
        Self { rules, dot: 0, files: Vec::new() }
    }

    /// Adds the next file. Passes the records of the stem before it to `take` if it has another one.
    pub(super) fn add(
        &mut self,
        file: SourceFile,
        left_out: &mut LeftOutTally,
        take: &mut TakeRecord<'_>,
    ) -> Result<(), DatasetError> {
        let has_stem = |first: &SourceFile| {
            let rest = file.path.strip_prefix(&first.path[..=self.dot]);
            first.label == file.label && rest.is_some_and(|suffix| !suffix.contains('/'))
        };
        if !self.files.first().is_some_and(has_stem) {
            self.finish(left_out, take)?;
            match last_dot(&file.path).filter(|dot| self.rules.ends_at(*dot, &file.path)) {
                Some(dot) => self.dot = dot,
                None => {
                    left_out.add(&file.path, self.rules.no_record(&file.path));
                    return Ok(());
                }
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Passes the records of the last stem to `take`.
    pub(super) fn finish(
        &mut self,
        left_out: &mut LeftOutTally,
        take: &mut TakeRecord<'_>,
    ) -> Result<(), DatasetError> {
        let files = std::mem::take(&mut self.files);
        self.rules.of_stem(self.dot, files, left_out).into_iter().try_for_each(take)
    }
}

/// Takes a record.
pub(super) type TakeRecord<'t> = dyn FnMut(FoundRecord) -> Result<(), DatasetError> + 't;

impl SourceFile {
    /// Reads the key that [`Rules::key`] wrote.
    pub(super) fn of_key(key: &[u8], line: u32, bytes: Option<u64>) -> Self {
        let (label, rest) = key.split_at(LABEL_BYTES);
        let (folder_bytes, rest) = rest.split_first_chunk().expect("4 bytes");
        let (folder, name) = rest.split_at(u32::from_be_bytes(*folder_bytes) as usize);
        let label = (label[0] == 1).then(|| i64::from_be_bytes(*label[1..].first_chunk().expect("8 bytes")));
        let mut path = folder.to_vec();
        let mut is_mark = false;
        for byte in name {
            if !is_mark {
                path.push(*byte);
            }
            is_mark = !is_mark && *byte == b'.';
        }
        let path = String::from_utf8(path).expect("a key is made of a text");
        Self { line, path, label, bytes }
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
    use std::collections::BTreeSet;

    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn grouped(paths: &[&str], rules: &Rules<'_>) -> (Vec<FoundRecord>, LeftOutTally) {
        let (mut left_out, mut records) = (LeftOutTally::default(), Vec::new());
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for path in paths {
            keys.push(Vec::new());
            rules.key(Some(0), path, keys.last_mut().unwrap());
            let file = SourceFile { line: 7, path: (*path).to_owned(), label: Some(0), bytes: None };
            assert_eq!(SourceFile::of_key(keys.last().unwrap(), 7, None), file);
        }
        keys.sort();
        let mut take = |record| {
            records.push(record);
            Ok(())
        };
        let mut groups = StemGroups::new(rules);
        for key in keys {
            groups.add(SourceFile::of_key(&key, 0, None), &mut left_out, &mut take).unwrap();
        }
        groups.finish(&mut left_out, &mut take).unwrap();
        (records, left_out)
    }

    fn records(paths: &[&str], choice: Option<&str>) -> (Vec<String>, Vec<(String, LeftOutReason)>) {
        let choice = choice.map(|text| FieldChoice::parse(text).unwrap());
        let rules = Rules { choice: choice.as_ref(), all_make_records: false, taken: &["cls"] };
        let (mut records, left_out) = grouped(paths, &rules);
        records.sort_by(|a, b| a.first.path.cmp(&b.first.path));
        let shown = records.iter().map(|FoundRecord { record, .. }| {
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
        let paths = ["grace.hopper.jpeg", "img_0.5.jpg", "img_0.5.txt", "img_0.7.jpg"];
        let expected = ["grace_hopper: jpg", "img_0_5: jpg txt", "img_0_7: jpg"];
        assert_eq!(records(&paths, None), (expected.map(String::from).to_vec(), vec![]));
    }

    #[test]
    fn a_stem_may_begin_with_any_letter() {
        let (found, left_out) = records(&["c/é.jpg", "c/é.txt", "c/猫.jpg", "c/.猫.jpg"], None);
        assert_eq!((found, left_out), (["c/_猫: jpg", "c/é: jpg txt", "c/猫: jpg"].map(String::from).to_vec(), vec![]));
    }

    #[test]
    fn files_of_other_folders_are_in_no_record_of_this_one() {
        let paths = ["c/0.jpg", "c/0./x.jpg", "c/0.\u{1}a/x.jpg", "c/0.txt", "c/0.a/0.jpg", "c//0.txt", "c/0."];
        let expected = ["c/0: jpg txt", "c/0_/x: jpg"];
        let (found, left_out) = records(&paths, None);
        assert_eq!(found.len(), 4);
        assert!(found.iter().any(|record| record == expected[0]), "{found:?}");
        assert_eq!(left_out.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["c/0.", "c//0.txt"]);
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

    proptest! {
        #[test]
        fn each_file_is_in_the_record_of_its_stem_or_left_out(
            names in btree_set("[ab]{1,2}([.][ab]{0,2}){0,2}[.](jpg|JPG|png|txt)", 0..16),
        ) {
            let bases: Vec<&str> =
                names.iter().filter(|name| !name.ends_with(".txt")).map(|name| &name[..last_dot(name).unwrap()]).collect();
            let stem = |name: &str| {
                let dots = name.match_indices('.').map(|(dot, _)| dot);
                dots.map(|dot| name[..dot].to_owned()).find(|stem| bases.contains(&stem.as_str()))
            };
            let paths: Vec<String> = names.iter().map(|name| format!("c/{name}")).collect();
            let rules = Rules { choice: None, all_make_records: false, taken: &[] };
            let (found, left_out) = grouped(&paths.iter().map(String::as_str).collect::<Vec<_>>(), &rules);
            let mut seen = BTreeSet::new();
            for FoundRecord { first, record } in found {
                prop_assert_eq!(record.files().next(), Some(first.path.as_str()));
                for path in record.files() {
                    let stem = stem(&path[2..]).map(|stem| format!("c/{stem}"));
                    prop_assert_eq!(Some(record.stem()), stem.as_deref());
                    prop_assert!(seen.insert(path.to_owned()), "{} comes twice", path);
                }
            }
            let without_stem = names.iter().filter(|name| stem(name).is_none()).count() as u64;
            let left_out = left_out.list();
            let count = |why| left_out.iter().filter(|entry| entry.why == why).map(|entry| entry.files).sum::<u64>();
            prop_assert_eq!(count(LeftOutReason::NoPicture), without_stem);
            prop_assert_eq!(seen.len() as u64 + without_stem + count(LeftOutReason::FieldTwice), names.len() as u64);
        }
    }
}
