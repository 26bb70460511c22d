//! Reads texts of Parquet files: a column, of which only the chunks are read, or whole rows.

use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, ByteArrayType},
    errors::ParquetError,
    file::{reader::FileReader as _, serialized_reader::SerializedFileReader},
};
use spdl_dataset::DatasetError;

use super::{
    EachText, RecordText,
    file::{FileReader, TextFile},
    rows::group_rows,
    windows::{ColumnWindows, caught, unusable},
};

/// Number of rows that are decoded at once.
const ROWS_AT_ONCE: usize = 256;
/// Number of columns that an error names.
const NAMED_COLUMNS: usize = 20;

/// Reads the texts of the row groups that begin in a range of the file.
pub(super) fn texts(
    file: &TextFile,
    reader: FileReader,
    from: &RecordText,
    (first, end): (u64, u64),
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let windows = ColumnWindows::new(reader);
    let opened = caught(|| SerializedFileReader::new(windows.clone())).map_err(|error| unusable(file, error))?;
    let columns = match from {
        RecordText::Fields(fields) => Some(columns(file, &opened, fields)?),
        RecordText::Whole => None,
    };
    let all = || opened.metadata().file_metadata().schema_descr().num_columns();
    windows.set_count(columns.as_ref().map_or_else(all, Vec::len));
    let mut row = 0;
    for (number, group) in opened.metadata().row_groups().iter().enumerate() {
        let rows = group.num_rows().max(0) as u64;
        let start = group.columns().iter().map(|column| column.byte_range().0).min().unwrap_or_default();
        if (first..end).contains(&start) {
            match &columns {
                Some(columns) => group_texts(file, &opened, number, columns, (row, rows), each)?,
                None => group_rows(file, &opened, number, (row, rows), each)?,
            }
        }
        row += rows;
    }
    Ok(())
}

/// A column of texts.
struct ParquetTexts {
    number: usize,
    /// The level at which it has a value.
    level: i16,
}

/// Returns the columns with these names that have texts, in the order of the names.
fn columns(
    file: &TextFile,
    opened: &SerializedFileReader<ColumnWindows>,
    fields: &[String],
) -> Result<Vec<ParquetTexts>, DatasetError> {
    let schema = opened.metadata().file_metadata().schema_descr();
    let named = |name: &String| schema.columns().iter().position(|column| column.path().string() == *name);
    let mut found = Vec::new();
    for (name, number) in fields.iter().filter_map(|name| Some((name, named(name)?))) {
        let column = schema.column(number);
        if column.physical_type() != parquet::basic::Type::BYTE_ARRAY || column.max_rep_level() > 0 {
            return Err(file.wrong(format!("has no text in column `{name}`: choose another with --from")));
        }
        found.push(ParquetTexts { number, level: column.max_def_level() });
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let names = schema.columns().iter().take(NAMED_COLUMNS).map(|column| format!("`{}`", column.path().string()));
    let names: Vec<String> = names.collect();
    Err(file.wrong(format!(
        "has no column `{}`; its columns are {}: choose with --from",
        fields.join("` or `"),
        names.join(", ")
    )))
}

/// Reads the texts of row group `number`, whose rows begin at `first_row` in the file.
fn group_texts(
    file: &TextFile,
    opened: &SerializedFileReader<ColumnWindows>,
    number: usize,
    columns: &[ParquetTexts],
    (first_row, rows): (u64, u64),
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let fail = |error| unusable(file, error);
    let mut readers = Vec::new();
    for column in columns {
        // One reader for each column of the group: their pages are read side by side.
        let reader = caught(|| match opened.get_row_group(number)?.get_column_reader(column.number)? {
            ColumnReader::ByteArrayColumnReader(reader) => Ok(reader),
            _ => Err(ParquetError::General("a column has another type than the file".to_owned())),
        });
        readers.push(RowReader { reader: reader.map_err(fail)?, level: column.level, values: Vec::new().into_iter() });
    }
    for row in first_row..first_row + rows {
        let mut text = None;
        for reader in &mut readers {
            let value = reader.next().map_err(fail)?;
            text = text.or(value);
        }
        let place = |problem: String| file.wrong_in_row(row, problem);
        let text = match &text {
            Some(text) => str::from_utf8(text.data()).map_err(|_| "is not UTF-8".to_owned()),
            None => Err("has no value: choose another column with --from".to_owned()),
        };
        each(text, &place)?;
    }
    Ok(())
}

/// Reads the values of a column one by one.
struct RowReader {
    reader: ColumnReaderImpl<ByteArrayType>,
    level: i16,
    values: std::vec::IntoIter<Option<ByteArray>>,
}

impl RowReader {
    /// Returns the next row's value; `None` if it is null.
    fn next(&mut self) -> Result<Option<ByteArray>, ParquetError> {
        if self.values.len() == 0 {
            let Self { reader, level, .. } = self;
            let values = caught(|| {
                let (mut levels, mut values) = (Vec::new(), Vec::new());
                let (rows, ..) = reader.read_records(ROWS_AT_ONCE, Some(&mut levels), None, &mut values)?;
                let mut values = values.into_iter();
                if *level == 0 {
                    return Ok(values.map(Some).collect::<Vec<_>>());
                }
                Ok(levels.iter().take(rows).map(|at| if at == level { values.next() } else { None }).collect())
            })?;
            if values.is_empty() {
                return Err(ParquetError::EOF("a column has fewer rows than its row group".to_owned()));
            }
            self.values = values.into_iter();
        }
        Ok(self.values.next().flatten())
    }
}
