//! Reads a table of files: values with tabs or commas between them, or JSON lines, with a row for each record and any fields.
//!
//! Rows can name one file: with its parts, if they say where these begin, or with all of it, as several captions of one picture. Parts may
//! begin at one second, as those of two people who speak at once. The table's text stays in memory as it is, with some 40 bytes beside it for each row, because a table has as many
//! rows as the dataset has records.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spdl_shard::json;

use super::{
    coco,
    delimited::Separator,
    kaldi,
    paths::{PathBase, TablePaths},
    records::name_at,
    shar,
};
use crate::{DatasetError, LABEL_FIELD, at_line, read_text, tar::KeyEnd};

/// Names of the column with the files' paths.
const FILE_COLUMNS: [&str; 5] = ["file", "file_name", "filename", "path", NEMO_COLUMN];
/// Name of the column with the files' paths in NeMo's manifests.
const NEMO_COLUMN: &str = "audio_filepath";
/// Name of the key that NeMo's manifests of tars have.
const NEMO_SHARD: &str = "shard_id";
/// Names of columns that tables of Common Voice have.
const COMMON_VOICE_COLUMNS: [&str; 3] = ["client_id", "path", "sentence"];
/// Names of the column that says where a row's part of its file begins, in seconds.
const START_COLUMNS: [&str; 2] = ["offset", "start"];
/// Name of the column with names of classes, which become the numbers of the field `cls`.
const CLASS_COLUMN: &str = "class";

/// A table of files.
#[derive(Debug)]
pub struct FileTable {
    /// Path of the table, for errors.
    origin: PathBuf,
    text: String,
    kind: TableKind,
    from: TablePaths,
    paths: String,
    /// By the files' paths, and where rows begin in these.
    rows: Vec<TableRow>,
    about: TableSubject,
}

/// What the rows of a table are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableSubject {
    /// Files.
    Files,
    /// Members of tars.
    Members,
    /// Cuts of lhotse's, whose sounds are in its tars.
    Cuts,
}

#[derive(Debug)]
enum TableKind {
    /// Cells of these columns; column number `file` has the files' paths, and `has_start` is whether one says where rows begin.
    Cells { separator: Separator, columns: Vec<String>, file: usize, has_start: bool },
    /// JSON objects, whose key `file` has the files' paths; `start` is the key of some that says where their parts begin.
    JsonLines { file: &'static str, start: Option<&'static str> },
}

#[derive(Clone, Copy, Debug)]
struct TableRow {
    /// Offset of the line in the text.
    line_at: usize,
    path_at: usize,
    line_bytes: u32,
    path_bytes: u32,
    line: u32,
    /// How many rows before it have its file and start.
    twins: u32,
    /// Where its part of the file begins, in seconds; NaN if what the row says is no number.
    start: f64,
}

/// A row as it is read.
struct ReadRow<'t> {
    line: usize,
    line_at: usize,
    text: &'t str,
    path: &'t str,
    start: f64,
}

/// The fields of a row: names and values.
pub(in crate::format) type RowFields = Vec<(String, String)>;

impl FileTable {
    /// Reads the table at `path`, for the dataset at the path or URL `dataset`: JSON lines or a document like COCO's if the name ends
    /// in `.jsonl`, `.ndjson` or `.json`, values with commas between them if it ends in `.csv`, and with tabs otherwise; a folder is
    /// one of Kaldi's, or one of lhotse's Shar.
    ///
    /// # Errors
    /// If it cannot be read, a row has the wrong number of columns or is no JSON object, two rows are the same, or a row of one file would
    /// have the key of another file.
    pub fn read(path: &Path, dataset: &str) -> Result<Self, DatasetError> {
        let is_csv = path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("csv"));
        let (is_folder, is_shar) = (path.is_dir(), shar::is_one(path));
        let (origin, text) = match is_folder {
            true if is_shar => shar::to_lines(path)?,
            true => kaldi::to_lines(path)?,
            false => (path.to_owned(), read_text(path)?),
        };
        let is_json = is_folder
            || path.extension().is_some_and(|suffix| suffix == "jsonl" || suffix == "ndjson" || suffix == "json");
        let mut table = Self {
            origin,
            text,
            kind: TableKind::JsonLines { file: "", start: None },
            from: TablePaths::new(path.parent().unwrap_or(Path::new("")), dataset),
            paths: String::new(),
            rows: vec![],
            about: if is_shar { TableSubject::Cuts } else { TableSubject::Files },
        };
        if is_json {
            if coco::is_coco(&table.text) {
                table.text = coco::to_lines(path, &table.text)?;
            }
            table.read_json()?
        } else {
            table.read_cells(if is_csv { Separator::Comma } else { Separator::Tab })?
        }
        if table.rows.is_empty() {
            let problem = "a row with the path of a file is expected".to_owned();
            return Err(DatasetError::Nothing { origin: table.origin.display().to_string(), problem });
        }
        table.sort()?;
        table.check_twins()?;
        Ok(table)
    }

    /// Returns whether the table is about files, and not about members of tars, as far as it says.
    pub(crate) fn is_of_files(&self) -> bool {
        self.about == TableSubject::Files
    }

    /// Returns where keys end in the tars that the table is about, if it says so.
    pub(in crate::format) fn key_end(&self) -> Option<KeyEnd> {
        (self.about == TableSubject::Cuts).then_some(KeyEnd::LastDot)
    }

    /// Returns how the names of the tars begin that have the members of rows, if the table says so.
    pub(in crate::format) fn names_of_tars(&self) -> Option<&'static str> {
        (self.about == TableSubject::Cuts).then_some(shar::RECORDINGS)
    }

    /// Iterates over the rows of each path that begins with `start`.
    pub(in crate::format) fn paths_from(&self, start: String) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut next = self.rows.partition_point(|row| self.path(row) < start.as_str());
        std::iter::from_fn(move || {
            let row = self.rows.get(next).filter(|row| self.path(row).starts_with(&start))?;
            let rows = self.rows(self.path(row));
            next = rows.end;
            Some(rows)
        })
    }

    /// Returns the path in row `row`.
    pub(in crate::format) fn path_of(&self, row: usize) -> &str {
        self.path(&self.rows[row])
    }

    /// Iterates over the paths of the files of rows, by name: a path is repeated for each row that has it.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &str> {
        self.rows.iter().map(|row| self.path(row))
    }

    /// Returns the rows of the file at `path`, in the order of their places in it.
    pub(in crate::format) fn rows(&self, path: &str) -> Range<usize> {
        let start = self.rows.partition_point(|row| self.path(row) < path);
        start..start + self.rows[start..].partition_point(|row| self.path(row) == path)
    }

    /// Returns the key of row `row`, of a file whose path without its ending is `stem`, among other rows of the file: with where it
    /// begins, if rows say that. Where several begin at one second, all but the first also have a number, from 2.
    pub(in crate::format) fn key(&self, row: usize, stem: &str) -> String {
        let TableRow { start, twins, .. } = self.rows[row];
        let place = if self.has_starts() { format!("@{start}") } else { String::new() };
        let number = if twins > 0 { format!("-{}", u64::from(twins) + 1) } else { String::new() };
        format!("{stem}{place}{number}")
    }

    /// Returns the fields of row `row` other than its file, with the numbers of `classes` in the place of the class.
    pub(in crate::format) fn values(
        &self,
        row: usize,
        classes: &BTreeMap<String, String>,
    ) -> Result<RowFields, DatasetError> {
        let mut fields = self.fields(row)?;
        for (name, value) in &mut fields {
            if name == CLASS_COLUMN {
                (*name, *value) = (LABEL_FIELD.to_owned(), classes[value].clone());
            }
        }
        if fields.iter().filter(|(name, _)| name == LABEL_FIELD).count() > 1 {
            let problem = format!("has both `{CLASS_COLUMN}` and `{LABEL_FIELD}`; give one of them");
            return Err(self.error(row, &problem));
        }
        Ok(fields)
    }

    /// Returns the fields of row `row` other than its file. A value that is null is left out.
    fn fields(&self, row: usize) -> Result<RowFields, DatasetError> {
        let row = &self.rows[row];
        let line = self.line(row);
        match &self.kind {
            TableKind::Cells { separator, columns, file, .. } => {
                let cells = separator.cells(line).expect("read when the table was opened");
                // pandas writes the numbers of rows as a column without a name.
                let is_field = |(number, (column, _)): &(usize, (&String, _))| number != file && !column.is_empty();
                let cells = columns.iter().zip(cells).enumerate().filter(is_field);
                Ok(cells.map(|(_, (column, cell))| (column.clone(), cell.into_owned())).collect())
            }
            TableKind::JsonLines { file, start } => {
                let members: serde_json::Map<String, Value> = json::read(line.as_bytes())
                    .map_err(|error| at_line(&self.origin, row.line as usize, &no_object(&error)))?;
                let mut fields = RowFields::new();
                for (name, value) in members.into_iter().filter(|(name, value)| name != file && !value.is_null()) {
                    let field = self.json_field(row, &name, value)?;
                    if fields.iter().any(|(other, _)| *other == field.0) {
                        let problem = format!("has the key `{name}` twice, in upper and lower case");
                        return Err(at_line(&self.origin, row.line as usize, &problem));
                    }
                    fields.push(field);
                }
                // NeMo's manifests leave out where a whole file begins.
                if let Some(start) = start.filter(|start| !fields.iter().any(|(name, _)| name == start)) {
                    fields.push((start.to_owned(), "0".to_owned()));
                }
                Ok(fields)
            }
        }
    }

    /// Returns the names of the classes that rows give.
    pub(in crate::format) fn classes(&self) -> Result<BTreeSet<String>, DatasetError> {
        let mut classes = BTreeSet::new();
        if let TableKind::Cells { columns, .. } = &self.kind
            && !columns.iter().any(|column| column == CLASS_COLUMN)
        {
            return Ok(classes);
        }
        for row in 0..self.rows.len() {
            let class = self.fields(row)?.into_iter().find(|(name, _)| name == CLASS_COLUMN);
            classes.extend(class.map(|(_, class)| class));
        }
        Ok(classes)
    }

    /// Returns the error for row `row`.
    pub(in crate::format) fn error(&self, row: usize, problem: &str) -> DatasetError {
        at_line(&self.origin, self.rows[row].line as usize, problem)
    }

    fn path(&self, row: &TableRow) -> &str {
        &self.paths[row.path_at..row.path_at + row.path_bytes as usize]
    }

    fn json_field(&self, row: &TableRow, name: &str, value: Value) -> Result<(String, String), DatasetError> {
        if !is_field_name(name) {
            let problem = format!("has the key `{}`, which cannot be the name of a field", name.escape_debug());
            return Err(at_line(&self.origin, row.line as usize, &problem));
        }
        match json::text(value) {
            Ok(text) => Ok((name.to_lowercase(), text)),
            Err(problem) => {
                Err(at_line(&self.origin, row.line as usize, &format!("has the key `{name}`, which {problem}")))
            }
        }
    }

    fn read_cells(&mut self, separator: Separator) -> Result<(), DatasetError> {
        let mut header: Option<(Vec<String>, usize)> = None;
        let (mut start, mut base) = (None, PathBase::Dataset);
        let text = std::mem::take(&mut self.text);
        for (number, line_at, line) in separator.rows(&text) {
            let is_list = header.as_ref().is_none_or(|(columns, _)| columns.len() == 1);
            if is_list && line.starts_with('#') {
                continue;
            }
            let cells = separator.cells(line);
            let cells = cells.ok_or_else(|| at_line(&self.origin, number, "has a quote that is not closed"))?;
            let (columns, file) = match &header {
                Some(header) => header,
                None => {
                    let columns: Vec<String> = cells.iter().map(|column| column.trim().to_lowercase()).collect();
                    let file = columns.iter().position(|column| FILE_COLUMNS.contains(&column.as_str()));
                    let is_list = file.is_none() && columns.len() == 1;
                    if file.is_none() && !is_list {
                        let problem = format!(
                            "has several columns; name them in the first line, one of them `{}`",
                            FILE_COLUMNS.join("`, `")
                        );
                        return Err(at_line(&self.origin, number, &problem));
                    }
                    let file = file.unwrap_or(0);
                    self.check_columns(number, &columns, file)?;
                    let place = |name: &&str| columns.iter().position(|column| column == name);
                    start = START_COLUMNS.iter().find_map(place);
                    base = match columns[file].as_str() {
                        NEMO_COLUMN => PathBase::Table,
                        _ if COMMON_VOICE_COLUMNS.iter().all(|name| place(name).is_some()) => PathBase::Clips,
                        _ => PathBase::Dataset,
                    };
                    header = Some((if is_list { vec!["file".to_owned()] } else { columns }, file));
                    if !is_list {
                        continue;
                    }
                    header.as_ref().expect("set above")
                }
            };
            let found = cells.len();
            if found != columns.len() {
                let problem = format!("has {found} columns where the table has {}", columns.len());
                return Err(at_line(&self.origin, number, &problem));
            }
            let start = start.map_or(0.0, |start: usize| seconds(&cells[start]));
            self.push(base, &ReadRow { line: number, line_at, text: line, path: cells[*file].trim(), start })?;
        }
        let ((columns, file), has_start) = (header.unwrap_or_default(), start.is_some());
        (self.text, self.kind) = (text, TableKind::Cells { separator, columns, file, has_start });
        Ok(())
    }

    fn check_columns(&self, line: usize, columns: &[String], file: usize) -> Result<(), DatasetError> {
        for (number, column) in columns.iter().enumerate().filter(|(number, _)| *number != file) {
            if !column.is_empty() && (!is_field_name(column) || columns[..number].contains(column)) {
                let problem = format!("names the column `{column}` twice, or it cannot be the name of a field");
                return Err(at_line(&self.origin, line, &problem));
            }
        }
        Ok(())
    }

    fn read_json(&mut self) -> Result<(), DatasetError> {
        let text = std::mem::take(&mut self.text);
        let (mut file, mut starts): (Option<&'static str>, Option<&'static str>) = (None, None);
        for (number, line_at, line) in Separator::Tab.rows(&text) {
            let members: serde_json::Map<String, Value> =
                json::read(line.as_bytes()).map_err(|error| at_line(&self.origin, number, &no_object(&error)))?;
            let key = file.or_else(|| FILE_COLUMNS.into_iter().find(|name| members.contains_key(*name)));
            let path = key.and_then(|key| members.get(key)).and_then(Value::as_str);
            let Some((key, path)) = key.zip(path) else {
                return Err(at_line(&self.origin, number, "has no text `file`, the path of a file"));
            };
            file = Some(key);
            let begins = START_COLUMNS.into_iter().find_map(|name| Some((name, members.get(name)?)));
            let start = begins.filter(|(_, start)| !start.is_null()).map_or(0.0, |(name, start)| {
                starts.get_or_insert(name);
                match start {
                    Value::String(text) => seconds(text),
                    start => start.as_f64().unwrap_or(f64::NAN),
                }
            });
            let base = match key {
                NEMO_COLUMN if members.contains_key(NEMO_SHARD) => {
                    self.about = TableSubject::Members;
                    PathBase::Dataset
                }
                NEMO_COLUMN => PathBase::Table,
                _ => PathBase::Dataset,
            };
            self.push(base, &ReadRow { line: number, line_at, text: line, path, start })?;
        }
        (self.text, self.kind) = (text, TableKind::JsonLines { file: file.unwrap_or(FILE_COLUMNS[0]), start: starts });
        Ok(())
    }

    fn push(&mut self, base: PathBase, row: &ReadRow<'_>) -> Result<(), DatasetError> {
        let &ReadRow { line, line_at, text, path, start } = row;
        let path = self.from.resolve(base, path).map_err(|problem| at_line(&self.origin, line, &problem))?;
        let too_long = |_| at_line(&self.origin, line, "is longer than 4 GiB");
        let (path_at, path_bytes) = (self.paths.len(), path.len() as u32);
        let line_bytes = u32::try_from(text.len()).map_err(too_long)?;
        let line = u32::try_from(line).map_err(too_long)?;
        self.paths.push_str(&path);
        self.rows.push(TableRow { line_at, path_at, line_bytes, path_bytes, line, twins: 0, start });
        Ok(())
    }

    /// Sorts the rows by their files, where they begin in these, and what they say, so that the order of the lines decides nothing.
    /// Refuses rows of one file that begin at no number of seconds.
    fn sort(&mut self) -> Result<(), DatasetError> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable_by(|a, b| {
            let by_place = self.path(a).cmp(self.path(b)).then(a.start.total_cmp(&b.start));
            by_place.then_with(|| self.line(a).cmp(self.line(b))).then(a.line.cmp(&b.line))
        });
        for next in 1..rows.len() {
            let (before, row) = (rows[next - 1], rows[next]);
            if self.path(&before) != self.path(&row) {
                continue;
            }
            if let Some(row) = [before, row].into_iter().find(|row| !row.start.is_finite()) {
                let problem =
                    format!("names `{}`, as other lines do, and begins at no number of seconds", self.path(&row));
                return Err(at_line(&self.origin, row.line as usize, &problem));
            }
            if before.start.total_cmp(&row.start).is_ne() {
                continue;
            }
            rows[next].twins = before.twins + 1;
        }
        self.rows = rows;
        Ok(())
    }

    /// Refuses rows of one file that say the same, and, where nothing says where rows begin, those whose key would be another file's.
    fn check_twins(&self) -> Result<(), DatasetError> {
        for row in (1..self.rows.len()).filter(|row| self.rows[*row].twins > 0) {
            let [before, this] = [&self.rows[row - 1], &self.rows[row]];
            let [first, last] = [before.line.min(this.line), before.line.max(this.line)];
            let path = self.path(this);
            let refuse = |problem: String| Err(at_line(&self.origin, last as usize, &problem));
            if self.line(before) == self.line(this) {
                return refuse(format!("is the same as line {first}; leave one of them out"));
            }
            if self.has_starts() {
                continue;
            }
            if self.about != TableSubject::Files || self.fields(row - 1)? == self.fields(row)? {
                return refuse(format!(
                    "names `{path}`, which line {first} names already; lines of one file differ in a field, or have a `{}`, the second \
                     at which each begins",
                    START_COLUMNS[0]
                ));
            }
            // A key ends at one of the dots of its file's name.
            let name = name_at(path);
            for (dot, _) in path[name..].match_indices('.') {
                let stem = format!("{}.", self.key(row, &path[..name + dot]));
                if let Some(other) = self.paths_from(stem).next() {
                    let (other, line) = (self.path_of(other.start), self.rows[other.start].line);
                    let problem = format!(
                        "is one of several of `{path}`, and would have the key of `{other}` in line {line}; give one of the files \
                         another name"
                    );
                    return Err(self.error(row, &problem));
                }
            }
        }
        Ok(())
    }

    /// Returns whether rows say where their parts of files begin.
    fn has_starts(&self) -> bool {
        match &self.kind {
            TableKind::Cells { has_start, .. } => *has_start,
            TableKind::JsonLines { start, .. } => start.is_some(),
        }
    }

    fn line(&self, row: &TableRow) -> &str {
        &self.text[row.line_at..row.line_at + row.line_bytes as usize]
    }
}

/// Reads where a row begins; nothing is the beginning of the file.
fn seconds(text: &str) -> f64 {
    match text.trim() {
        "" => 0.0,
        text => text.parse().unwrap_or(f64::NAN),
    }
}

/// Returns whether a column's name can be the name of a field.
fn is_field_name(name: &str) -> bool {
    (1..=256).contains(&name.len()) && !name.contains('/') && !name.contains(char::is_control)
}

fn no_object(error: &serde_json::Error) -> String {
    format!("is not a JSON object, as each line of JSON lines is: {error}")
}
