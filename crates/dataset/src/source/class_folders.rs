//! The folders of a source that may be classes. Until all files are known, a class has no number of its own.

use std::collections::{BTreeMap, HashMap};

use super::{DatasetError, ListOptions, stems::FoundRecord};

/// The folders that were found so far.
#[derive(Default)]
pub(super) struct ClassFolders {
    /// Their provisional numbers, which their files have as labels at first.
    numbers: HashMap<String, i64>,
    /// Whether a file of each makes a record.
    have_records: Vec<bool>,
}

/// The classes, and what the folders are.
pub(super) struct DecidedClasses {
    pub(super) classes: Vec<String>,
    /// What is odd about them.
    pub(super) notes: Vec<String>,
    /// The number of the class that each folder is; `None` for those without a record.
    labels: Vec<Option<i64>>,
}

impl ClassFolders {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns a folder's provisional number, if it was found before.
    pub(super) fn find(&self, folder: &str) -> Option<i64> {
        self.numbers.get(folder).copied()
    }

    /// Returns the provisional number of a folder that was not found before.
    pub(super) fn add(&mut self, folder: &str) -> i64 {
        let number = self.numbers.len() as i64;
        self.numbers.insert(folder.to_owned(), number);
        self.have_records.push(false);
        number
    }

    /// Notes that a file of a folder makes a record.
    pub(super) fn has_record(&mut self, number: i64) {
        self.have_records[number as usize] = true;
    }

    /// Decides which folders are classes, and numbers these: the given ones, or those with a record.
    pub(super) fn decide(self, url: &str, how: &ListOptions<'_>) -> Result<DecidedClasses, DatasetError> {
        let folders: BTreeMap<String, usize> =
            self.numbers.into_iter().map(|(folder, number)| (folder, number as usize)).collect();
        let (used, empty): (Vec<_>, Vec<_>) = folders.iter().partition(|(_, number)| self.have_records[**number]);
        let classes = how.classes_of(url, used.iter().map(|(folder, _)| (*folder).clone()).collect())?;
        let are_given = how.classes.given().is_some();
        let no_picture = |(folder, _): &(&String, &usize)| match are_given {
            true => format!("class `{folder}` has no picture"),
            false => format!("folder `{folder}` has no picture, and is no class; `--classes` gives it a number"),
        };
        let notes = empty.iter().map(no_picture).chain(how.classes.note(&classes)).collect();
        let numbers: BTreeMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
        let mut labels = vec![None; folders.len()];
        for (folder, number) in used {
            labels[*number] = numbers.get(folder.as_str()).copied();
        }
        Ok(DecidedClasses { classes, notes, labels })
    }
}

impl DecidedClasses {
    /// Gives a record the number of its class.
    pub(super) fn label(&self, found: &mut FoundRecord) {
        let folder = found.record.label.and_then(|number| self.labels[number as usize]);
        found.record.label = Some(folder.expect("a folder with a record is a class"));
    }
}
