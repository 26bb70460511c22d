//! Groups files into records: files with one stem form one record.
//!
//! As in WebDataset, a stem ends at the first dot of a file's name, within its folder: `0.jpg`, `0.txt` and `0.seg.png`
//! form one record. A name that contains more dots (`grace.hopper.jpeg`) keeps them if its first part alone is not the
//! stem of a picture: its stem ends at the first dot where the stem of a picture ends.
//!
//! Sorted names that are the same up to a dot follow each other. So one pass over them finds the records, and needs no
//! memory but for the files of one stem.

use super::{
    DatasetError, FieldChoice, SourceRecord,
    fields::{field_name, makes_a_record},
    left_out::{LeftOutReason, LeftOutTally},
};

/// Files of a folder that have one label. Each has a number.
pub(super) struct FolderFiles<'f> {
    /// The folder's path as the source gives it, with a `/` at its end; empty for the source's own folder.
    pub(super) folder: &'f str,
    pub(super) label: Option<i64>,
    /// Returns the name of a file.
    pub(super) name: &'f dyn Fn(u32) -> &'f str,
}

impl FolderFiles<'_> {
    fn path(&self, file: u32) -> String {
        format!("{}{}", self.folder, (self.name)(file))
    }
}

/// Takes a record, with the number of its first file.
pub(super) type TakeRecord<'t> = dyn FnMut(u32, SourceRecord) -> Result<(), DatasetError> + 't;

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
    /// Groups files, whose names are sorted, into records. Of each stem, the records come in the order of their first files'
    /// numbers.
    pub(super) fn records(
        &self,
        of: &FolderFiles<'_>,
        files: &[u32],
        left_out: &mut LeftOutTally,
        take: &mut TakeRecord<'_>,
    ) -> Result<(), DatasetError> {
        self.after(0, of, files, left_out, take)
    }

    /// Groups files whose names are the same up to byte `same`, and whose stems end behind it.
    fn after(
        &self,
        same: usize,
        of: &FolderFiles<'_>,
        files: &[u32],
        left_out: &mut LeftOutTally,
        take: &mut TakeRecord<'_>,
    ) -> Result<(), DatasetError> {
        let beginning = |file: u32| {
            let name = (of.name)(file);
            next_dot(name, same).map_or(name, |dot| &name[..=dot])
        };
        for files in files.chunk_by(|one, other| beginning(*one) == beginning(*other)) {
            match next_dot((of.name)(files[0]), same) {
                Some(dot) if files.iter().any(|file| self.ends_at(dot, (of.name)(*file))) => {
                    self.of_stem(dot, of, files, left_out)
                        .into_iter()
                        .try_for_each(|(first, record)| take(first, record))?;
                }
                Some(dot) => self.after(dot + 1, of, files, left_out, take)?,
                None => files.iter().for_each(|file| left_out.add(&of.path(*file), self.no_record())),
            }
        }
        Ok(())
    }

    /// Returns whether a file makes a record whose stem ends at this byte of its name.
    fn ends_at(&self, dot: usize, name: &str) -> bool {
        last_dot(name) == Some(dot) && self.makes_a_record(&field_name(&name[dot + 1..]))
    }

    /// Makes records of the files whose stem ends at this byte of their names.
    fn of_stem(
        &self,
        dot: usize,
        of: &FolderFiles<'_>,
        files: &[u32],
        left_out: &mut LeftOutTally,
    ) -> Vec<(u32, SourceRecord)> {
        let mut files = files.to_vec();
        files.sort_unstable();
        // Those that make a record come first.
        files.sort_by_key(|file| !self.ends_at(dot, (of.name)(*file)));
        let mut records: Vec<Gathered> = Vec::new();
        for file in files {
            let name = (of.name)(file);
            let field = match self.field(&name[dot + 1..]) {
                Ok(field) => field,
                Err(why) => {
                    left_out.add(&of.path(file), why);
                    continue;
                }
            };
            let has_record = !records.is_empty();
            match records.first_mut().filter(|record| record.fields.iter().all(|(name, _)| *name != field)) {
                Some(record) => record.fields.push((field, file)),
                // Two pictures whose names differ only in the spelling of their extension are two records.
                None if self.ends_at(dot, name) => records.push(Gathered { fields: vec![(field, file)] }),
                None if has_record => left_out.add(&of.path(file), LeftOutReason::FieldTwice),
                None => left_out.add(&of.path(file), self.no_record()),
            }
        }
        records.into_iter().map(|record| record.record(dot, of)).collect()
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

/// A record's fields and their files.
struct Gathered {
    fields: Vec<(String, u32)>,
}

impl Gathered {
    fn record(self, dot: usize, of: &FolderFiles<'_>) -> (u32, SourceRecord) {
        let paths: Vec<String> = self.fields.iter().map(|(_, file)| of.path(*file)).collect();
        let stem_bytes = (of.folder.len() + dot) as u32;
        let files = paths.join("\0").into();
        (self.fields[0].1, SourceRecord { files, stem_bytes, twin: 0, label: of.label })
    }
}

/// Returns where the next dot is from byte `from` of a file's name on; `None` if there is none that can end a stem.
fn next_dot(name: &str, from: usize) -> Option<usize> {
    let from = from.max(1);
    let dot = from + name.get(from..)?.find('.')?;
    (dot + 1 < name.len()).then_some(dot)
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

    fn folder(path: &str) -> &str {
        path.rfind('/').map_or("", |slash| &path[..=slash])
    }

    fn records(paths: &[&str], choice: Option<&str>) -> (Vec<String>, Vec<(String, LeftOutReason)>) {
        let choice = choice.map(|text| FieldChoice::parse(text).unwrap());
        let rules = Rules { choice: choice.as_ref(), all_make_records: false, taken: &["cls"] };
        let mut left_out = LeftOutTally::default();
        let mut records = Vec::new();
        let mut take = |_, record: SourceRecord| {
            records.push(record);
            Ok(())
        };
        for paths in paths.chunk_by(|one, other| folder(one) == folder(other)) {
            let mut files: Vec<u32> = (0..).take(paths.len()).collect();
            let name = |file: u32| paths[file as usize].strip_prefix(folder(paths[0])).unwrap();
            files.sort_by_key(|file| name(*file));
            let of = FolderFiles { folder: folder(paths[0]), label: Some(0), name: &name };
            rules.records(&of, &files, &mut left_out, &mut take).unwrap();
        }
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
        let paths = ["grace.hopper.jpeg", "img_0.5.jpg", "img_0.5.txt", "img_0.7.jpg"];
        let expected = ["grace_hopper: jpg", "img_0_5: jpg txt", "img_0_7: jpg"];
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
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let rules = Rules { choice: None, all_make_records: false, taken: &[] };
            let name = |file: u32| names[file as usize];
            let of = FolderFiles { folder: "c/", label: None, name: &name };
            let files: Vec<u32> = (0..).take(names.len()).collect();
            let (mut left_out, mut seen, mut before) = (LeftOutTally::default(), BTreeSet::new(), None);
            rules.records(&of, &files, &mut left_out, &mut |first, record| {
                assert!(before < Some(first), "records come in the order of their first files");
                before = Some(first);
                for path in record.files() {
                    assert_eq!(Some(record.stem()), stem(&path[2..]).map(|stem| format!("c/{stem}")).as_deref());
                    assert!(seen.insert(path.to_owned()), "{path} comes twice");
                }
                Ok(())
            }).unwrap();
            let without_stem = names.iter().filter(|name| stem(name).is_none()).count() as u64;
            let left_out = left_out.list();
            let count = |why| left_out.iter().filter(|entry| entry.why == why).map(|entry| entry.files).sum::<u64>();
            prop_assert_eq!(count(LeftOutReason::NoPicture), without_stem);
            prop_assert_eq!(seen.len() as u64 + without_stem + count(LeftOutReason::FieldTwice), names.len() as u64);
        }
    }
}
