//! Decodes the pages of some rows to the values of their fields.

use std::{
    collections::HashSet,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use parquet::{
    basic::{BrotliLevel, Compression, GzipLevel, Type, ZstdLevel},
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
    schema::types::{ColumnDescriptor, ColumnPath, Type as SchemaType},
};
use spdl_types::DType;

use super::{
    columns::{ParquetCodec, ParquetColumn, Physical},
    index::{PageRun, ParquetIndex},
    numbers::{decimals, integers, nanoseconds, whole_number},
    pages,
    values::{ColumnValues, ValueData, elements_of},
};
use crate::format::{
    Array, Content, DecodedBlock, Decoding, FetchedBytes, FieldValue, MAX_LIST_FILES, NumberRun, OpenError,
};

/// The pages of a run may decompress to this many bytes more than twice the size that the file states for its rows:
/// pages are shared with the rows around, and a dictionary with all rows.
const MORE_BYTES: u64 = 64 << 20;
/// Bytes in memory of the place of a value, which values of different lengths have.
const PLACE_BYTES: u64 = 8;
/// Bytes in memory, in the library and here, beside a value while its run is decoded: where it lies, its levels, its
/// place.
const MEANWHILE_BYTES: u64 = 64;
/// Upper limit of the bytes of values between two checks of their total, where values leave out the beginning that they
/// share with the value before. No value is longer than all that is written of the values.
const LOOK_BYTES: u64 = 16 << 20;

/// The decoded values of some rows, by column.
#[derive(Debug)]
pub(super) struct DecodedRows {
    columns: Vec<DecodedColumn>,
    bytes: u64,
}

/// The values of a column, as runs of rows in order.
#[derive(Debug)]
struct DecodedColumn {
    runs: Vec<DecodedPageRun>,
    elements: Option<DType>,
    is_list: bool,
}

/// The values of neighbouring rows of a column.
#[derive(Debug)]
struct DecodedPageRun {
    rows: Range<u32>,
    values: Result<ColumnValues, Damage>,
}

#[derive(Debug)]
struct Damage {
    problem: Arc<str>,
    checksum: u32,
}

impl DecodedRows {
    fn of(columns: Vec<DecodedColumn>) -> Self {
        let runs = columns.iter().flat_map(|column| &column.runs);
        let bytes = runs.filter_map(|run| run.values.as_ref().ok()).map(ColumnValues::bytes).sum();
        Self { columns, bytes }
    }
}

impl DecodedBlock for DecodedRows {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn only(&self, records: &[u32]) -> Arc<dyn DecodedBlock> {
        let only = |column: &DecodedColumn| {
            let runs = records.iter().filter_map(|record| Some(column.run(*record)?.only(*record))).collect();
            DecodedColumn { runs, ..*column }
        };
        Arc::new(Self::of(self.columns.iter().map(only).collect()))
    }

    fn open(&self, record: u32, nth: u32) -> Result<Option<FieldValue>, OpenError> {
        let column = self.columns.get(nth as usize).ok_or(OpenError::Missing)?;
        let run = column.run(record).ok_or(OpenError::Missing)?;
        let values = run.values.as_ref().map_err(|Damage { problem, checksum }| OpenError::Damaged {
            problem: problem.clone(),
            checksum: *checksum,
        })?;
        let row = (record - run.rows.start) as usize;
        if values.is_unfit(row) {
            let dtype = column.elements.map_or("", DType::name);
            return Err(OpenError::Malformed(format!("has a number outside the range of {dtype}")));
        }
        if let Some(value) = values.get(row) {
            return Ok(Some(column.content(value, values.lists(row)).into()));
        }
        let list = values.list(row).map_err(|count| {
            OpenError::Malformed(format!(
                "is a list of {count} values; at most {MAX_LIST_FILES} are read: divide the record"
            ))
        })?;
        Ok(list.map(FieldValue::List))
    }

    fn number(&self, record: u32, nth: u32) -> Option<(DType, &[u8])> {
        let column = self.columns.get(nth as usize).filter(|column| !column.is_list)?;
        let run = column.run(record)?;
        let value = run.values.as_ref().ok()?.bytes_of((record - run.rows.start) as usize)?;
        Some((column.elements?, value))
    }

    fn numbers(&self, record: u32, nth: u32) -> Option<NumberRun<'_>> {
        let column = self.columns.get(nth as usize).filter(|column| !column.is_list)?;
        let run = column.run(record)?;
        let elements = run.values.as_ref().ok()?.dense()?;
        Some(NumberRun { dtype: column.elements?, records: run.rows.clone(), elements })
    }
}

impl DecodedPageRun {
    /// Returns one row alone.
    fn only(&self, row: u32) -> Self {
        let values = match &self.values {
            Ok(values) => Ok(values.only((row - self.rows.start) as usize)),
            Err(Damage { problem, checksum }) => Err(Damage { problem: problem.clone(), checksum: *checksum }),
        };
        Self { rows: row..row + 1, values }
    }
}

impl DecodedColumn {
    fn run(&self, record: u32) -> Option<&DecodedPageRun> {
        let at = self.runs.partition_point(|run| run.rows.end <= record);
        self.runs.get(at).filter(|run| run.rows.contains(&record))
    }

    /// Returns the value of a row. `lists` is the number of lists in the row's list, if the column has lists of lists.
    fn content(&self, value: Bytes, lists: Option<u32>) -> Content {
        let Some(dtype) = self.elements else { return value.into() };
        let elements = (value.len() / dtype.bytes()) as u64;
        let shape = match lists.map(u64::from) {
            Some(lists) if lists > 0 => vec![lists, elements / lists],
            _ if self.is_list => vec![elements],
            _ => Vec::new(),
        };
        Array { dtype, shape, elements: value }.into()
    }
}

/// Neighbouring pages of a run whose bytes are there, with the dictionary that they need.
struct PagesThere {
    segment: usize,
    /// Number of the column.
    column: usize,
    /// Numbers of the pages in the run.
    pages: Range<usize>,
}

/// Returns the pages that lie in `ranges` of the shard, which are sorted and do not overlap.
fn pages_in(index: &ParquetIndex, ranges: &[Range<u64>]) -> Vec<PagesThere> {
    let is_there = |wanted: &Range<u64>| {
        let at = ranges.partition_point(|range| range.end < wanted.end);
        ranges.get(at).is_some_and(|range| range.start <= wanted.start && wanted.end <= range.end)
    };
    let (mut found, mut next) = (Vec::new(), 0);
    for range in ranges {
        let segments = index.segments_in(range);
        for segment in segments.start.max(next)..segments.end {
            next = segment + 1;
            for column in 0..index.columns.len() {
                let pages = pages_there(index, index.run(segment, column), &is_there);
                found.extend(pages.into_iter().map(|pages| PagesThere { segment, column, pages }));
            }
        }
    }
    found
}

/// Returns the memory that decoding the pages in `ranges` of the shard takes. While the last run is decoded, the
/// results of all others are in memory.
pub(super) fn decoding(index: &ParquetIndex, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Decoding {
    let (mut kept, mut most, mut groups) = (0_u64, 0, None::<Range<u32>>);
    for there in pages_in(index, ranges) {
        let group = index.segments[there.segment].row_group;
        groups = Some(groups.map_or(group, |groups| groups.start)..group);
        let needs = RunToDecode::of(index, &there, fetched).needs();
        kept += needs.kept_bytes;
        most = most.max(kept + needs.meanwhile_bytes);
    }
    let groups = groups.unwrap_or_default();
    let place = match groups.end == groups.start {
        true => format!("row group {}", groups.start),
        false => format!("row groups {} to {}", groups.start, groups.end),
    };
    Decoding { bytes: most, place }
}

/// Decodes the pages that lie in `ranges` of the shard, which are sorted and do not overlap.
pub(super) fn decode(index: &ParquetIndex, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> DecodedRows {
    let column = |column: &ParquetColumn| DecodedColumn {
        runs: Vec::new(),
        elements: column.elements,
        is_list: !column.lists.is_empty(),
    };
    let mut columns: Vec<DecodedColumn> = index.columns.iter().map(column).collect();
    for there in pages_in(index, ranges) {
        columns[there.column].runs.push(RunToDecode::of(index, &there, fetched).decode());
    }
    DecodedRows::of(columns)
}

/// Returns the runs of neighbouring pages whose bytes are there, with the dictionary that they need.
fn pages_there(index: &ParquetIndex, run: &PageRun, is_there: &dyn Fn(&Range<u64>) -> bool) -> Vec<Range<usize>> {
    let data_at = run.at + u64::from(run.dictionary_bytes);
    if run.dictionary_bytes > 0 && !is_there(&(run.at..data_at)) {
        return Vec::new();
    }
    let (mut found, mut start): (Vec<Range<usize>>, _) = (Vec::new(), data_at);
    for (number, page) in index.pages_of(run).iter().enumerate() {
        let range = start..data_at + u64::from(page.end);
        start = range.end;
        if !is_there(&range) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => found.push(number..number + 1),
        }
    }
    found
}

/// Pages of a run with their bytes.
struct RunToDecode<'i> {
    pages: PageJob<'i>,
    /// The dictionary, if they need it, and the pages.
    bytes: Bytes,
    dictionary_bytes: usize,
    /// Whether the bytes were copied together.
    is_joined: bool,
    rows: Range<u32>,
    row_group: u32,
    /// Offset of the first page in the file.
    file_at: u64,
}

/// The memory that decoding a run takes, in bytes.
struct RunNeeds {
    kept_bytes: u64,
    /// While it is decoded.
    meanwhile_bytes: u64,
}

impl<'i> RunToDecode<'i> {
    fn of(index: &'i ParquetIndex, there: &PagesThere, fetched: &FetchedBytes<'_>) -> Self {
        let PagesThere { segment, column, pages } = there;
        let (run, column) = (index.run(*segment, *column), &index.columns[*column]);
        let (all, of_segment) = (index.pages_of(run), index.rows(*segment));
        let first_row = all[pages.start].first_row;
        let end = all.get(pages.end).map_or(of_segment.end, |next| next.first_row);
        let rows = first_row.max(of_segment.start)..end;
        let data_at = run.at + u64::from(run.dictionary_bytes);
        let start = pages.start.checked_sub(1).map_or(0, |before| u64::from(all[before].end));
        let range = data_at + start..data_at + u64::from(all[pages.end - 1].end);
        let dictionary_bytes = run.dictionary_bytes as usize;
        let is_joined = dictionary_bytes > 0 && start > 0;
        let bytes = match is_joined {
            false => fetched(range.start - u64::from(run.dictionary_bytes)..range.end),
            true => fetched(run.at..data_at).zip(fetched(range)).map(|(dictionary, data)| joined(&dictionary, &data)),
        };
        let pages = PageJob {
            column,
            codec: run.codec,
            skipped: (rows.start - first_row) as usize,
            rows: (rows.end - rows.start) as usize,
            max_bytes: index.segment_bytes(*segment).saturating_mul(2).saturating_add(MORE_BYTES),
        };
        let (bytes, row_group) = (bytes.unwrap_or_default(), index.segments[*segment].row_group);
        Self { pages, bytes, dictionary_bytes, is_joined, rows, row_group, file_at: run.file_at + start }
    }

    /// Returns the memory that [`decode`](Self::decode) takes; what does not decode takes none.
    fn needs(&self) -> RunNeeds {
        let claims = pages::check(&self.bytes, self.pages.column, self.pages.max_bytes).unwrap_or_default();
        let value_bytes = self.pages.column.width().unwrap_or(0) as u64 * claims.values;
        let whole = if claims.are_shortened { self.pages.max_bytes } else { claims.bytes };
        let kept_bytes = whole.max(value_bytes) + PLACE_BYTES * self.pages.rows as u64;
        let decompressed = if self.pages.codec == ParquetCodec::None { 0 } else { claims.bytes };
        let joined = if self.is_joined { self.bytes.len() as u64 } else { 0 };
        RunNeeds { kept_bytes, meanwhile_bytes: decompressed + joined + MEANWHILE_BYTES * claims.values }
    }

    fn decode(self) -> DecodedPageRun {
        // The library is meant to return errors only; a panic is a fault of the library that this file reveals.
        let values = catch_unwind(AssertUnwindSafe(|| self.pages.decode(&self.bytes, self.dictionary_bytes)));
        let values = values.unwrap_or_else(|_| Err("makes the decoder panic".to_owned()));
        let values = values.map_err(|problem| {
            let problem = format!("(row group {}, byte {}): its column {problem}", self.row_group, self.file_at);
            Damage { problem: problem.into(), checksum: crc32c::crc32c(&self.bytes) }
        });
        DecodedPageRun { rows: self.rows, values }
    }
}

fn joined(dictionary: &Bytes, data: &Bytes) -> Bytes {
    let mut joined = BytesMut::with_capacity(dictionary.len() + data.len());
    joined.extend_from_slice(dictionary);
    joined.extend_from_slice(data);
    joined.freeze()
}

/// Pages to decode.
struct PageJob<'a> {
    column: &'a ParquetColumn,
    codec: ParquetCodec,
    /// Rows of the first page that are not wanted.
    skipped: usize,
    rows: usize,
    /// The most bytes that all pages decompress to.
    max_bytes: u64,
}

impl PageJob<'_> {
    /// Decodes the pages in `bytes`, which begin with a dictionary of `dictionary_bytes`.
    fn decode(&self, bytes: &Bytes, dictionary_bytes: usize) -> Result<ColumnValues, String> {
        let claims = pages::check(bytes, self.column, self.max_bytes)?;
        let undecodable = |error: ParquetError| format!("does not decode: {error}");
        let descriptor = Arc::new(descriptor(self.column).map_err(undecodable)?);
        let chunk = ColumnChunkMetaData::builder(descriptor.clone())
            .set_compression(compression(self.codec))
            .set_total_compressed_size(bytes.len() as i64)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(0))
            .set_data_page_offset(dictionary_bytes as i64)
            .build();
        let chunk = chunk.map_err(undecodable)?;
        let pages = SerializedPageReader::new(Arc::new(bytes.clone()), &chunk, self.skipped + self.rows, None);
        let pages = Box::new(pages.map_err(undecodable)?);
        let elements = self.column.elements.unwrap_or(DType::U8);
        if let Some(digits) = self.column.decimal_digits {
            return match get_column_reader(descriptor, pages) {
                ColumnReader::Int32ColumnReader(reader) => {
                    self.read(reader, |values| Some(decimals(values, digits, |value| Some(i128::from(*value)))))
                }
                ColumnReader::Int64ColumnReader(reader) => {
                    self.read(reader, |values| Some(decimals(values, digits, |value| Some(i128::from(*value)))))
                }
                ColumnReader::ByteArrayColumnReader(reader) => {
                    self.read(reader, |values| Some(decimals(values, digits, |value| whole_number(value.data()))))
                }
                ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                    self.read(reader, |values| Some(decimals(values, digits, |value| whole_number(value.data()))))
                }
                _ => Err("has decimals of a type that none have".to_owned()),
            };
        }
        match get_column_reader(descriptor, pages) {
            ColumnReader::BoolColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, |value| [u8::from(value)]))))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let whole = |value: &i32| match elements {
                    DType::U32 => i64::from(value.cast_unsigned()),
                    _ => i64::from(*value),
                };
                self.read(reader, |values| Some(integers(values, elements, |value| Some(whole(value)))))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, i64::to_le_bytes))))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                self.read(reader, |values| Some(integers(values, elements, nanoseconds)))
            }
            ColumnReader::FloatColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, f32::to_le_bytes))))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, f64::to_le_bytes))))
            }
            ColumnReader::ByteArrayColumnReader(reader) if claims.are_shortened => {
                // A value of a dictionary is counted once, because it is in memory once.
                let mut known = HashSet::new();
                let bytes = |values: &[ByteArray]| {
                    let new = values.iter().filter(|value| known.insert(value.data().as_ptr() as usize));
                    new.map(|value| value.len() as u64).sum()
                };
                let rows_at_once = usize::try_from(LOOK_BYTES / claims.bytes.max(1)).unwrap_or(usize::MAX).max(1);
                self.read_watched(reader, rows_at_once, bytes, ValueData::copied)
            }
            ColumnReader::ByteArrayColumnReader(reader) => self.read(reader, ValueData::copied),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => self.read(reader, |values| {
                let is_right = values.iter().all(|value| value.len() == self.column.length as usize);
                is_right.then(|| ValueData::of(values.iter().map(|value| value.data()).collect::<Vec<_>>().concat()))
            }),
        }
    }

    fn read<T: DataType>(
        &self,
        reader: ColumnReaderImpl<T>,
        data: impl Fn(&[T::T]) -> Option<ValueData>,
    ) -> Result<ColumnValues, String> {
        self.read_watched(reader, usize::MAX, |_| 0, data)
    }

    /// Reads the values, at most `rows_at_once` rows at a time, and fails if they become more bytes than the file
    /// states.
    fn read_watched<T: DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        rows_at_once: usize,
        mut bytes_of: impl FnMut(&[T::T]) -> u64,
        data: impl Fn(&[T::T]) -> Option<ValueData>,
    ) -> Result<ColumnValues, String> {
        let undecodable = |error: ParquetError| format!("does not decode: {error}");
        let skipped = reader.skip_records(self.skipped).map_err(undecodable)?;
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut records, mut seen, mut bytes) = (0, 0, 0);
        // The library returns less than all where a page ends.
        while skipped == self.skipped && records < self.rows {
            let wanted = (self.rows - records).min(rows_at_once);
            let read = reader.read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut values);
            match read.map_err(undecodable)?.0 {
                0 => break,
                read => records += read,
            }
            bytes += bytes_of(&values[seen..]);
            seen = values.len();
            if bytes > self.max_bytes {
                return Err(format!(
                    "has values of {bytes} bytes, more than the {} that its file states",
                    self.max_bytes
                ));
            }
        }
        if records != self.rows {
            let rows = self.skipped + self.rows;
            return Err(format!("ends after {} of {rows} rows", skipped + records));
        }
        let data = data(&values).ok_or("has values of other sizes than its type, or of more than 4 GiB")?;
        data.into_rows(self.column, self.rows, &definitions, &repetitions)
    }
}

fn descriptor(column: &ParquetColumn) -> Result<ColumnDescriptor, ParquetError> {
    let physical = match column.physical {
        Physical::Boolean => Type::BOOLEAN,
        Physical::Int32 => Type::INT32,
        Physical::Int64 => Type::INT64,
        Physical::Int96 => Type::INT96,
        Physical::Float => Type::FLOAT,
        Physical::Double => Type::DOUBLE,
        Physical::ByteArray => Type::BYTE_ARRAY,
        Physical::FixedLenByteArray => Type::FIXED_LEN_BYTE_ARRAY,
    };
    let leaf = SchemaType::primitive_type_builder("value", physical).with_length(column.length as i32).build()?;
    let repetition = column.lists.len() as i16;
    let path = ColumnPath::new(vec!["value".to_owned()]);
    Ok(ColumnDescriptor::new(Arc::new(leaf), column.max_definition as i16, repetition, path))
}

fn compression(codec: ParquetCodec) -> Compression {
    match codec {
        ParquetCodec::None => Compression::UNCOMPRESSED,
        ParquetCodec::Snappy => Compression::SNAPPY,
        ParquetCodec::Gzip => Compression::GZIP(GzipLevel::default()),
        ParquetCodec::Brotli => Compression::BROTLI(BrotliLevel::default()),
        ParquetCodec::Lz4 => Compression::LZ4,
        ParquetCodec::Zstd => Compression::ZSTD(ZstdLevel::default()),
        ParquetCodec::Lz4Raw => Compression::LZ4_RAW,
    }
}
