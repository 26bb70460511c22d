//! Reads a column of texts of Parquet files. Only the chunks of that column are read.

use std::{
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use bytes::{Buf, Bytes};
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, ByteArrayType},
    errors::ParquetError,
    file::{
        reader::{ChunkReader, FileReader as _, Length},
        serialized_reader::SerializedFileReader,
    },
};
use spdl_dataset::DatasetError;
use spdl_store::StoreError;

use super::{
    EachText,
    file::{FileReader, TextFile},
};

/// Number of rows that are decoded at once.
const ROWS_AT_ONCE: usize = 256;
/// Bytes of a column that are read at once.
const WINDOW_BYTES: u64 = 8 << 20;
/// The fewest bytes that are taken of it at once.
const MIN_PIECE_BYTES: usize = 4 << 10;
/// Number of columns that an error names.
const NAMED_COLUMNS: usize = 20;

/// A file whose parts are read through a window, which moves forward over a column.
#[derive(Clone)]
struct ColumnWindow(Arc<OpenColumnWindow>);

struct OpenColumnWindow {
    reader: FileReader,
    /// Where the window begins, and its bytes.
    read: Mutex<(u64, Bytes)>,
}

/// The bytes of a file from a place on.
struct WindowBytes {
    window: ColumnWindow,
    at: u64,
    piece: Bytes,
}

impl ColumnWindow {
    fn part(&self, first: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let mut read = self.0.read.lock().expect("nothing panics with it");
        let (start, window) = &mut *read;
        let is_inside = *start <= first && first + bytes <= *start + window.len() as u64;
        if !is_inside {
            (*start, *window) = (first, self.0.reader.range(first, bytes.max(WINDOW_BYTES))?);
        }
        let from = (first - *start) as usize;
        Ok(window.slice(from..(from + bytes as usize).min(window.len())))
    }
}

impl Length for ColumnWindow {
    fn len(&self) -> u64 {
        self.0.reader.file_bytes()
    }
}

impl ChunkReader for ColumnWindow {
    type T = WindowBytes;

    fn get_read(&self, start: u64) -> Result<WindowBytes, ParquetError> {
        Ok(WindowBytes { window: self.clone(), at: start, piece: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} of {}", self.len())));
        }
        self.part(start, length as u64).map_err(|error| ParquetError::External(error.into()))
    }
}

impl Read for WindowBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.window.len().saturating_sub(self.at);
        if self.piece.is_empty() && left > 0 {
            let bytes = left.min(into.len().max(MIN_PIECE_BYTES) as u64);
            self.piece = self.window.part(self.at, bytes).map_err(io::Error::other)?;
            self.at += self.piece.len() as u64;
        }
        let bytes = self.piece.len().min(into.len());
        self.piece.copy_to_slice(&mut into[..bytes]);
        Ok(bytes)
    }
}

/// Reads the texts of the row groups that begin in a range of the file.
pub(super) fn texts(
    file: &TextFile,
    reader: FileReader,
    fields: &[String],
    (first, end): (u64, u64),
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let window = ColumnWindow(Arc::new(OpenColumnWindow { reader, read: Mutex::default() }));
    let opened = caught(|| SerializedFileReader::new(window)).map_err(|error| unusable(file, error))?;
    let columns = columns(file, &opened, fields)?;
    let mut row = 0;
    for (number, group) in opened.metadata().row_groups().iter().enumerate() {
        let rows = group.num_rows().max(0) as u64;
        let start = group.columns().iter().map(|column| column.byte_range().0).min().unwrap_or_default();
        if (first..end).contains(&start) {
            group_texts(file, &opened, number, &columns, (row, rows), each)?;
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
    opened: &SerializedFileReader<ColumnWindow>,
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
    opened: &SerializedFileReader<ColumnWindow>,
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
        let text = text.ok_or_else(|| place("has no value: choose another column with --from".to_owned()))?;
        let text = str::from_utf8(text.data()).map_err(|_| place("is not UTF-8".to_owned()))?;
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

/// Calls `work`, and returns an error if it panics, as the crate does for some damaged files.
fn caught<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(ParquetError::General("it is damaged".to_owned())))
}

fn unusable(file: &TextFile, error: ParquetError) -> DatasetError {
    match error {
        ParquetError::External(error) => {
            let error = match error.downcast::<StoreError>() {
                Ok(error) => return (*error).into(),
                Err(error) => error,
            };
            match error.downcast::<io::Error>() {
                Ok(error) => file.unreadable(*error),
                Err(error) => file.wrong(format!("cannot be read as Parquet: {error}")),
            }
        }
        error => file.wrong(format!("cannot be read as Parquet: {error}")),
    }
}
