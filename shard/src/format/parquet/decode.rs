//! Decodes the pages of some rows to the values of their fields.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use parquet::{
    basic::{BrotliLevel, Compression, GzipLevel, Type, ZstdLevel},
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::DataType,
    errors::ParquetError,
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
    schema::types::{ColumnDescriptor, ColumnPath, Type as SchemaType},
};
use spdl_core::job::DType;

use super::{
    columns::{Codec, Column, Physical},
    index::{ParquetIndex, Run},
    pages,
    values::{ValueData, Values, elements_of, integers},
};
use crate::format::{Array, Content, DecodedBlock, FieldValue, MAX_LIST_FILES, NumberRun, OpenError};

/// The pages of a run may decompress to so many bytes more than twice the size that the file states for its rows: pages
/// are shared with the rows around, and a dictionary with all rows.
const MORE_BYTES: u64 = 64 << 20;

/// The decoded values of some rows, by column.
#[derive(Debug)]
pub(super) struct DecodedRows {
    columns: Vec<DecodedColumn>,
    bytes: u64,
}

/// The values of a column, as runs of rows in order.
#[derive(Debug)]
struct DecodedColumn {
    runs: Vec<DecodedRun>,
    elements: Option<DType>,
    is_list: bool,
}

/// The values of neighbouring rows of a column.
#[derive(Debug)]
struct DecodedRun {
    rows: Range<u32>,
    values: Result<Values, Damage>,
}

#[derive(Debug)]
struct Damage {
    problem: Arc<str>,
    checksum: u32,
}

impl DecodedBlock for DecodedRows {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(&self, record: u32, nth: u32) -> Result<Option<FieldValue>, OpenError> {
        let column = self.columns.get(nth as usize).ok_or(OpenError::Missing)?;
        let run = column.run(record).ok_or(OpenError::Missing)?;
        let values = run.values.as_ref().map_err(|Damage { problem, checksum }| OpenError::Damaged {
            problem: problem.clone(),
            checksum: *checksum,
        })?;
        let row = (record - run.rows.start) as usize;
        if let Some(value) = values.get(row) {
            return Ok(Some(column.content(value, values.lists(row)).into()));
        }
        let list = values.list(row).map_err(|count| {
            OpenError::Malformed(format!("is a list of {count} values; at most {MAX_LIST_FILES} are read"))
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

impl DecodedColumn {
    fn run(&self, record: u32) -> Option<&DecodedRun> {
        let at = self.runs.partition_point(|run| run.rows.end <= record);
        self.runs.get(at).filter(|run| run.rows.contains(&record))
    }

    /// Returns the value of a row, which has so many lists in its list if it is one of lists.
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

/// Decodes the pages that lie in `ranges` of the shard, which are sorted and do not overlap.
pub(super) fn decode(
    index: &ParquetIndex,
    ranges: &[Range<u64>],
    fetched: &dyn Fn(Range<u64>) -> Option<Bytes>,
) -> DecodedRows {
    let column = |column: &Column| DecodedColumn {
        runs: Vec::new(),
        elements: column.elements,
        is_list: !column.lists.is_empty(),
    };
    let mut columns: Vec<DecodedColumn> = index.columns.iter().map(column).collect();
    let is_there = |wanted: &Range<u64>| {
        let at = ranges.partition_point(|range| range.end < wanted.end);
        ranges.get(at).is_some_and(|range| range.start <= wanted.start && wanted.end <= range.end)
    };
    let mut next = 0;
    for range in ranges {
        let segments = index.segments_in(range);
        for segment in segments.start.max(next)..segments.end {
            next = segment + 1;
            for (number, decoded) in columns.iter_mut().enumerate() {
                let run = index.run(segment, number);
                for pages in pages_there(index, run, &is_there) {
                    decoded.runs.push(decode_pages(index, segment, number, pages, fetched));
                }
            }
        }
    }
    let runs = columns.iter().flat_map(|column| &column.runs);
    let bytes = runs.filter_map(|run| run.values.as_ref().ok()).map(Values::bytes).sum();
    DecodedRows { columns, bytes }
}

/// Returns the runs of neighbouring pages whose bytes are there, with the dictionary that they need.
fn pages_there(index: &ParquetIndex, run: &Run, is_there: &dyn Fn(&Range<u64>) -> bool) -> Vec<Range<usize>> {
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

/// Decodes neighbouring pages of a run.
fn decode_pages(
    index: &ParquetIndex,
    segment: usize,
    number: usize,
    pages: Range<usize>,
    fetched: &dyn Fn(Range<u64>) -> Option<Bytes>,
) -> DecodedRun {
    let (run, column) = (index.run(segment, number), &index.columns[number]);
    let (all, rows) = (index.pages_of(run), index.rows(segment));
    let first_row = all[pages.start].first_row;
    let end = all.get(pages.end).map_or(rows.end, |next| next.first_row);
    let wanted = first_row.max(rows.start)..end;
    let data_at = run.at + u64::from(run.dictionary_bytes);
    let start = pages.start.checked_sub(1).map_or(0, |before| u64::from(all[before].end));
    let range = data_at + start..data_at + u64::from(all[pages.end - 1].end);
    let dictionary = fetched(run.at..data_at).unwrap_or_default();
    let data = fetched(range.clone()).unwrap_or_default();
    let job = PageJob {
        column,
        codec: run.codec,
        skipped: (wanted.start - first_row) as usize,
        rows: (wanted.end - wanted.start) as usize,
        max_bytes: index.segment_bytes(segment).saturating_mul(2).saturating_add(MORE_BYTES),
    };
    let bytes = match dictionary.is_empty() {
        true => data,
        false if start == 0 => fetched(run.at..range.end).unwrap_or_default(),
        false => joined(&dictionary, &data),
    };
    // The library means to return errors only; a panic is one of its faults that a file found.
    let values = catch_unwind(AssertUnwindSafe(|| job.decode(&bytes, dictionary.len())));
    let values = values.unwrap_or_else(|_| Err("makes the decoder panic".to_owned()));
    let values = values.map_err(|problem| {
        let row_group = index.segments[segment].row_group;
        let problem = format!("(row group {row_group}, byte {}): its column {problem}", run.file_at + start);
        Damage { problem: problem.into(), checksum: crc32c::crc32c(&bytes) }
    });
    DecodedRun { rows: wanted, values }
}

fn joined(dictionary: &Bytes, data: &Bytes) -> Bytes {
    let mut joined = BytesMut::with_capacity(dictionary.len() + data.len());
    joined.extend_from_slice(dictionary);
    joined.extend_from_slice(data);
    joined.freeze()
}

/// Pages to decode.
struct PageJob<'a> {
    column: &'a Column,
    codec: Codec,
    /// Rows of the first page that are not wanted.
    skipped: usize,
    rows: usize,
    /// The most bytes that all pages decompress to.
    max_bytes: u64,
}

impl PageJob<'_> {
    /// Decodes the pages in `bytes`, which begin with a dictionary of so many bytes.
    fn decode(&self, bytes: &Bytes, dictionary_bytes: usize) -> Result<Values, String> {
        pages::check(bytes, self.column, self.max_bytes)?;
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
        match get_column_reader(descriptor, pages) {
            ColumnReader::BoolColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, |value| [u8::from(value)]))))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(integers(values, elements, i64::from))))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, i64::to_le_bytes))))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(integers(values, elements, |value| value.to_nanos()))))
            }
            ColumnReader::FloatColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, f32::to_le_bytes))))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.read(reader, |values| Some(ValueData::of(elements_of(values, f64::to_le_bytes))))
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
        mut reader: ColumnReaderImpl<T>,
        data: impl Fn(&[T::T]) -> Option<ValueData>,
    ) -> Result<Values, String> {
        let undecodable = |error: ParquetError| format!("does not decode: {error}");
        let skipped = reader.skip_records(self.skipped).map_err(undecodable)?;
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut records = 0;
        // The library returns less than all where a page ends.
        while skipped == self.skipped && records < self.rows {
            let wanted = self.rows - records;
            let read = reader.read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut values);
            match read.map_err(undecodable)?.0 {
                0 => break,
                read => records += read,
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

fn descriptor(column: &Column) -> Result<ColumnDescriptor, ParquetError> {
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

fn compression(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Gzip => Compression::GZIP(GzipLevel::default()),
        Codec::Brotli => Compression::BROTLI(BrotliLevel::default()),
        Codec::Lz4 => Compression::LZ4,
        Codec::Zstd => Compression::ZSTD(ZstdLevel::default()),
        Codec::Lz4Raw => Compression::LZ4_RAW,
    }
}
