//! Reads a text file that lists files. It is read several times, a line at a time, so that it may have any length.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use spdl_store::TemporaryFolder;

use super::{
    super::hidden::is_hidden_in_list,
    DatasetError, ListOptions, at_line,
    collect::{Collected, FileCollector},
    extension,
    file::{open_text, text_of},
    left_out::{LeftOutReason, LeftOutTally},
    stems::Rules,
    wrong,
};

/// Size of the longest line that is read, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Reads the list at `list`.
pub(super) fn read(list: &Path, how: &ListOptions<'_>, temporary: &TemporaryFolder) -> Result<Collected, DatasetError> {
    let labels = Labels::of(list, how)?;
    let taken = how.taken(labels.exist);
    let rules = Rules { choice: how.fields, all_make_records: how.fields.is_none(), taken: &taken };
    let mut files = FileCollector::new(rules, temporary);
    let mut lines = ListLines::open(list)?;
    while let Some(line) = lines.next()? {
        let label =
            line.label.map(|label| labels.number(label).map_err(|problem| at_line(list, line.number, &problem)));
        let number = u32::try_from(line.number).map_err(|_| at_line(list, line.number, "is beyond 4 billion lines"))?;
        files.add(label.transpose()?, line.path, number)?;
    }
    files.left_out.join(lines.hidden);
    let by_line = |found: &mut super::stems::FoundRecord| found.first.line.to_be_bytes().to_vec();
    let mut found = files.records(by_line, |_| ())?;
    found.classes = labels.classes;
    Ok(found)
}

/// A line: its number, the file's path, and the label.
struct ListLine<'l> {
    number: usize,
    path: &'l str,
    label: Option<&'l str>,
}

/// Reads the lines of a list that name files, and checks each.
struct ListLines<'l> {
    list: &'l Path,
    reader: BufReader<File>,
    line: String,
    number: usize,
    /// Whether lines have labels. The first line decides it for all.
    has_labels: Option<bool>,
    /// The files of lines that are skipped, because the files are hidden.
    hidden: LeftOutTally,
}

impl<'l> ListLines<'l> {
    fn open(list: &'l Path) -> Result<Self, DatasetError> {
        let hidden = LeftOutTally::default();
        Ok(Self { list, reader: open_text(list)?, line: String::new(), number: 0, has_labels: None, hidden })
    }

    fn next(&mut self) -> Result<Option<ListLine<'_>>, DatasetError> {
        while self.read_line()? {
            let (path, _) = path_and_label(&self.line);
            if self.line.trim().is_empty() || self.line.starts_with('#') {
                continue;
            }
            if is_hidden_in_list(path) {
                self.hidden.add(path, LeftOutReason::Hidden);
                continue;
            }
            return self.check().map(Some);
        }
        Ok(None)
    }

    /// Reads the next line; returns whether there is one.
    fn read_line(&mut self) -> Result<bool, DatasetError> {
        let mut line = std::mem::take(&mut self.line).into_bytes();
        line.clear();
        let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        read.map_err(|error| wrong(self.list, &format!("cannot be read: {error}")))?;
        let is_over = line.is_empty();
        self.number += 1;
        if line.len() as u64 == MAX_LINE_BYTES {
            return Err(at_line(self.list, self.number, &format!("is longer than {} KiB", MAX_LINE_BYTES >> 10)));
        }
        self.line = text_of(self.list, line, self.number)?;
        Ok(!is_over)
    }

    fn check(&mut self) -> Result<ListLine<'_>, DatasetError> {
        let Self { list, line, number, has_labels, .. } = self;
        let line = line.strip_suffix('\n').map_or(&**line, |line| line.strip_suffix('\r').unwrap_or(line));
        let (path, label) = path_and_label(line);
        if line.contains(',') && extension(path).is_none_or(|extension| extension.contains(',')) {
            let problem = "has commas; a list has a path on each line, and a label behind a tab. A table with columns is read by \
                           `spdl-ctl index FOLDER --table TABLE.tsv`, with tabs between the columns";
            return Err(at_line(list, *number, problem));
        }
        if extension(path).is_some_and(|extension| extension.contains(' ')) && !list_has_file(list, path) {
            let problem = format!("names `{path}`; if that is a path and a label, divide them by a tab");
            return Err(at_line(list, *number, &problem));
        }
        if extension(path).is_none() || path.contains('\0') {
            let problem = format!("names `{path}`, which has no extension that would name its type");
            return Err(at_line(list, *number, &problem));
        }
        let unlike_the_first = *has_labels.get_or_insert(label.is_some()) != label.is_some();
        if unlike_the_first || label.is_some_and(str::is_empty) {
            let problem = "has no label, or is the first with one; give one on each line or on none";
            return Err(at_line(list, *number, problem));
        }
        Ok(ListLine { number: *number, path, label })
    }
}

/// Splits a line at its tab; without a tab, at a space before a whole number, as in lists of ImageNet and Caffe.
fn path_and_label(line: &str) -> (&str, Option<&str>) {
    let line = line.trim_end_matches(['\n', '\r']);
    if let Some((path, label)) = line.split_once('\t') {
        return (path.trim(), Some(label.trim()));
    }
    let line = line.trim();
    match line.rsplit_once(' ') {
        Some((path, label)) if label.parse::<i64>().is_ok() && extension(path.trim_end()).is_some() => {
            (path.trim_end(), Some(label))
        }
        _ => (line, None),
    }
}

/// Returns whether a list names a file that is there.
fn list_has_file(list: &Path, path: &str) -> bool {
    list.parent().unwrap_or(Path::new("")).join(path).exists()
}

/// The labels of a list: numbers, or names of classes.
struct Labels {
    exist: bool,
    /// The classes in the order of their numbers: the given ones, or those that the labels name.
    classes: Vec<String>,
    /// The numbers of the classes; `None` if labels are numbers.
    numbers: Option<BTreeMap<String, i64>>,
    are_fixed: bool,
}

impl Labels {
    /// Reads the labels of a list.
    fn of(list: &Path, how: &ListOptions<'_>) -> Result<Self, DatasetError> {
        let fixed = how.classes.given();
        let is_fixed: BTreeSet<&str> = fixed.into_iter().flatten().map(String::as_str).collect();
        let (mut exist, mut are_integers) = (false, true);
        let mut lines = ListLines::open(list)?;
        while let Some(ListLine { number, label, .. }) = lines.next()? {
            let Some(label) = label else { continue };
            if let Some(problem) = no_label(label).filter(|_| !is_fixed.contains(label)) {
                return Err(at_line(list, number, &problem));
            }
            exist = true;
            are_integers &= label.parse::<i64>().is_ok();
        }
        let classes = match fixed {
            Some(classes) => classes.to_vec(),
            None if are_integers => Vec::new(),
            None => {
                let mut names = names(list)?;
                how.classes.sort(&mut names)?;
                names
            }
        };
        let numbers = (!are_integers).then(|| classes.iter().cloned().zip(0..).collect());
        Ok(Self { exist, classes, numbers, are_fixed: fixed.is_some() })
    }

    /// Returns the number that stands for a label, or what is wrong with the label.
    fn number(&self, label: &str) -> Result<i64, String> {
        let unknown = || format!("has the class `{label}`, which is not among the given ones");
        let Some(numbers) = &self.numbers else {
            let number = label.parse().map_err(|_| unknown())?;
            let is_class = usize::try_from(number).is_ok_and(|at| at < self.classes.len());
            return if is_class || !self.are_fixed {
                Ok(number)
            } else {
                Err(format!("has the label {number}, which is not the number of a class"))
            };
        };
        numbers.get(label).copied().ok_or_else(unknown)
    }
}

/// Returns the names that are labels, sorted.
fn names(list: &Path) -> Result<Vec<String>, DatasetError> {
    let mut names = BTreeSet::new();
    let mut lines = ListLines::open(list)?;
    while let Some(line) = lines.next()? {
        if let Some(label) = line.label.filter(|label| !names.contains(*label)) {
            names.insert(label.to_owned());
        }
    }
    Ok(names.into_iter().collect())
}

/// Explains why a text that looks like a number is not a valid label: it would be taken for the name of a class.
fn no_label(label: &str) -> Option<String> {
    let is_numeric =
        label.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && label.parse::<f64>().is_ok();
    if !is_numeric || label.parse::<i64>().is_ok() {
        return None;
    }
    let digits = label.trim_start_matches(['+', '-']);
    Some(if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("has the label `{label}`, which is beyond 64 bits; number the classes, or list a file with it instead")
    } else {
        format!(
            "has the label `{label}`; labels are whole numbers or names of classes: put it in a `.json` file of the record"
        )
    })
}
