//! A table about members of tars: which rows a record has, and the values that they give it.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::files::{FileTable, RowFields, class_numbers};
use crate::{DatasetError, Scan, ShardList, Splits, tar::ScannedRecord};

/// A table about members of tars.
#[derive(Debug)]
pub(crate) struct MemberTable {
    table: Arc<FileTable>,
    /// The classes that rows give, with their numbers.
    classes: BTreeMap<String, String>,
    /// Whether the member of each row was met.
    met: Vec<AtomicBool>,
    /// Whether each row has to have a member.
    is_complete: bool,
}

/// What a row says of a record.
#[derive(Debug)]
pub(crate) struct MemberRow {
    /// The key of its record.
    pub(crate) key: String,
    /// Number of the record's field that it names.
    pub(crate) member: usize,
    pub(crate) values: RowFields,
}

impl MemberTable {
    /// Of the tars of a scan, whose table this is.
    pub(super) fn new(scan: &Scan<'_>, table: Arc<FileTable>) -> Result<Self, DatasetError> {
        if scan.options.boxes.is_some() {
            let problem = "is for tars without a table: its rows are what makes samples".to_owned();
            return Err(DatasetError::Option { option: "boxes", problem });
        }
        let options = scan.options;
        let is_complete =
            options.shards == ShardList::All && options.splits == Splits::One && options.skip_bad_shards == 0;
        let classes = class_numbers(scan, table.classes()?)?;
        let met = table.files().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { table, classes, met, is_complete })
    }

    /// Returns the classes that rows give.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &String> {
        self.classes.keys()
    }

    /// Returns the rows of a record in their order; none if no row names it.
    pub(crate) fn rows(&self, record: &ScannedRecord) -> Result<Vec<MemberRow>, DatasetError> {
        let mut found: Vec<(usize, usize, String)> = Vec::new();
        let key = &record.key;
        let sound = record.fields.iter().position(|field| field.name != "json").unwrap_or(0);
        self.add(&mut found, self.table.rows(key), sound, key);
        for (member, field) in record.fields.iter().enumerate() {
            for rows in self.of_file(key, &field.name) {
                self.add(&mut found, rows, member, key);
            }
            for stem in self.parts(key) {
                for rows in self.of_file(&stem, &field.name) {
                    self.add(&mut found, rows, member, &stem);
                }
            }
        }
        found.iter().map(|(row, member, key)| self.row(record, *row, *member, key, found[0].1)).collect()
    }

    /// Returns the rows of the path that is `stem` with the ending `field`, in lower case or not.
    fn of_file(&self, stem: &str, field: &str) -> Vec<Range<usize>> {
        let is_one = |rows: &Range<usize>| self.table.path_of(rows.start)[stem.len() + 1..].to_lowercase() == field;
        self.table.paths_from(format!("{stem}.")).filter(is_one).collect()
    }

    /// Returns the paths without their endings by which NeMo names other parts of the member `stem`, in their order.
    fn parts(&self, stem: &str) -> Vec<String> {
        let start = format!("{stem}{PART_MARK}");
        let number = |rows: Range<usize>| self.table.path_of(rows.start)[start.len()..].split_once('.')?.0.parse().ok();
        let mut numbers: Vec<u32> = self.table.paths_from(start.clone()).filter_map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.iter().map(|number| format!("{start}{number}")).collect()
    }

    /// Adds rows of one member, whose path without its ending is `stem`.
    fn add(&self, found: &mut Vec<(usize, usize, String)>, rows: std::ops::Range<usize>, member: usize, stem: &str) {
        let has_key = rows.len() > 1;
        let key = |row| if has_key { self.table.key(row, stem) } else { stem.to_owned() };
        found.extend(rows.map(|row| (row, member, key(row))));
    }

    fn row(
        &self,
        record: &ScannedRecord,
        row: usize,
        member: usize,
        key: &str,
        first: usize,
    ) -> Result<MemberRow, DatasetError> {
        let path = self.table.path_of(row);
        if self.met[row].swap(true, Ordering::Relaxed) {
            return Err(self.table.error(row, &format!("names `{path}`, which the tars have more than once")));
        }
        if member != first {
            let problem = format!(
                "names `{path}`, which is in one record with another member that the table names, `{}`; with `--key-ends-at last-dot`, \
                 each is a record",
                record.key
            );
            return Err(self.table.error(row, &problem));
        }
        Ok(MemberRow { key: key.to_owned(), member, values: self.table.values(row, &self.classes)? })
    }

    /// Checks that each row has met its member.
    pub(super) fn check(&self) -> Result<(), DatasetError> {
        let missing = self.met.iter().position(|met| !met.load(Ordering::Relaxed)).filter(|_| self.is_complete);
        missing.map_or(Ok(()), |row| {
            let problem = format!("names `{}`, which is in none of the tars", self.table.path_of(row));
            Err(self.table.error(row, &problem))
        })
    }
}

/// What NeMo writes between the name of a member and the number of another line about a part of it.
const PART_MARK: &str = "-sub";
