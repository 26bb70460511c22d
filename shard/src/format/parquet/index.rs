//! The index of a Parquet file: where the pages of each column lie, by runs of rows.
//!
//! The file's rows are cut into segments, each a part of one row group; a block is some segments one after the other. A
//! segment has a run of pages for each column. A page that has rows of two segments is in the runs of both.

use std::sync::Arc;
use std::{collections::HashMap, ops::Range};

use bytes::Bytes;

use super::columns::{ParquetCodec, ParquetColumn};
use crate::format::made_index::segments_in;
use crate::format::{DecodedBlock, Decoding, FetchedBytes};
use crate::{
    envelope::text,
    format::{Field, ObjectRange, Record, ShardIndex, StoredObject},
    manifest::Shard,
};

/// The index of a file, which was checked when it was opened.
#[derive(Debug)]
pub(super) struct ParquetIndex {
    pub(super) bytes: Bytes,
    /// Size of the file.
    pub(super) file_bytes: u64,
    pub(super) shard_bytes: u64,
    pub(super) records: u32,
    /// The place in `bytes` of the prefix of all keys.
    pub(super) prefix: Range<usize>,
    pub(super) columns: Vec<ParquetColumn>,
    /// The fields that all records share: names, and the places of their values in `bytes`.
    pub(super) partitions: Vec<(String, Range<usize>)>,
    pub(super) segments: Vec<RowSegment>,
    /// By segment, then by column.
    pub(super) runs: Vec<PageRun>,
    pub(super) pages: Vec<Page>,
    pub(super) by_name: HashMap<String, u32>,
}

/// Rows of one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowSegment {
    pub(super) row_group: u32,
    pub(super) first_row: u32,
    /// Offset in the shard.
    pub(super) at: u64,
}

/// The pages of one column that hold the rows of a segment. In the shard, the column's dictionary, if there is one,
/// lies before these pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    /// Offset in the shard.
    pub(super) at: u64,
    /// Offset of the first page in the file.
    pub(super) file_at: u64,
    pub(super) dictionary_at: u64,
    pub(super) dictionary_bytes: u32,
    pub(super) codec: ParquetCodec,
    pub(super) first_page: u32,
    pub(super) pages: u32,
}

/// A page, or several between which no border of rows is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Where it ends, from the first page of its run.
    pub(super) end: u32,
    pub(super) first_row: u32,
}

impl ParquetIndex {
    /// Returns the rows of segment number `segment`.
    pub(super) fn rows(&self, segment: usize) -> Range<u32> {
        let end = self.segments.get(segment + 1).map_or(self.records, |next| next.first_row);
        self.segments[segment].first_row..end
    }

    /// Returns the bytes that segment number `segment` takes in the shard.
    pub(super) fn segment_bytes(&self, segment: usize) -> u64 {
        let end = self.segments.get(segment + 1).map_or(self.shard_bytes, |next| next.at);
        end - self.segments[segment].at
    }

    pub(super) fn run(&self, segment: usize, column: usize) -> &PageRun {
        &self.runs[segment * self.columns.len() + column]
    }

    pub(super) fn pages_of(&self, run: &PageRun) -> &[Page] {
        &self.pages[run.first_page as usize..][..run.pages as usize]
    }

    /// Returns the range of the shard that the run takes.
    pub(super) fn range(&self, run: &PageRun) -> Range<u64> {
        let pages = self.pages_of(run).last().map_or(0, |page| page.end);
        run.at..run.at + u64::from(run.dictionary_bytes) + u64::from(pages)
    }

    /// Returns the numbers of the segments that overlap `range` of the shard.
    pub(super) fn segments_in(&self, range: &Range<u64>) -> Range<usize> {
        segments_in(&self.segments, |segment| segment.at, range)
    }

    fn segment_of(&self, row: u32) -> usize {
        self.segments.partition_point(|segment| segment.first_row <= row) - 1
    }

    /// Returns the range of the shard that has to be read for one value, and the number of records that share it.
    fn place(&self, row: u32, column: usize) -> (Range<u64>, u32) {
        let segment = self.segment_of(row);
        let run = self.run(segment, column);
        let pages = self.pages_of(run);
        let page = pages.partition_point(|page| page.first_row <= row) - 1;
        let first = pages.get(page.wrapping_sub(1)).map_or(0, |page| page.end);
        let data_at = run.at + u64::from(run.dictionary_bytes);
        // In a run with a dictionary, a page is read with the dictionary and all pages between them.
        let start = if run.dictionary_bytes > 0 { run.at } else { data_at + u64::from(first) };
        let end_row = pages.get(page + 1).map_or(self.rows(segment).end, |next| next.first_row);
        (start..data_at + u64::from(pages[page].end), end_row - pages[page].first_row)
    }
}

impl ShardIndex for ParquetIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        self.shard_bytes
    }

    fn record_count(&self) -> u32 {
        self.records
    }

    fn record(&self, record: u32) -> Record<'_> {
        let fields = self.columns.len() + self.partitions.len();
        Record::numbered(self, record, text(&self.bytes[self.prefix.clone()]), fields)
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let nth = nth as usize;
        let Some(column) = self.columns.get(nth) else {
            let (name, place) = &self.partitions[nth - self.columns.len()];
            let value = &self.bytes[place.clone()];
            return Field {
                name,
                offset: 0,
                bytes: value.len() as u32,
                shared_by: 1,
                crc32c: None,
                value: Some(value),
            };
        };
        let (range, shared_by) = self.place(record.number, nth);
        let bytes = u32::try_from(range.end - range.start).expect("checked when the index is opened");
        Field { name: &column.name, offset: range.start, bytes, shared_by, crc32c: None, value: None }
    }

    fn field_number(&self, _record: &Record<'_>, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    fn project(&self, range: Range<u64>, fields: &[String]) -> Vec<Range<u64>> {
        let numbers = fields.iter().filter_map(|name| self.by_name.get(name)).map(|number| *number as usize);
        let mut columns: Vec<usize> = numbers.filter(|number| *number < self.columns.len()).collect();
        columns.sort_unstable();
        let mut parts: Vec<Range<u64>> = Vec::new();
        for segment in self.segments_in(&range) {
            for run in columns.iter().map(|column| self.range(self.run(segment, *column))) {
                match parts.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => parts.push(run),
                }
            }
        }
        parts
    }

    fn plan(&self, shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        let object = StoredObject::of_file(shard, self.file_bytes);
        let mut plan: Vec<ObjectRange> = Vec::new();
        let mut add = |wanted: &Range<u64>, at: u64, file_at: u64, bytes: u64| {
            let (start, end) = (wanted.start.max(at), wanted.end.min(at + bytes));
            if start >= end {
                return;
            }
            let range = file_at + (start - at)..file_at + (end - at);
            match plan.last_mut() {
                Some(last)
                    if last.range.end == range.start && last.at + (last.range.end - last.range.start) == start =>
                {
                    last.range.end = range.end;
                }
                _ => plan.push(ObjectRange { object: object.clone(), range, at: start }),
            }
        };
        for wanted in ranges {
            for segment in self.segments_in(wanted) {
                for run in &self.runs[segment * self.columns.len()..][..self.columns.len()] {
                    let Range { start, end } = self.range(run);
                    let data_at = start + u64::from(run.dictionary_bytes);
                    add(wanted, start, run.dictionary_at, run.dictionary_bytes.into());
                    add(wanted, data_at, run.file_at, end - data_at);
                }
            }
        }
        plan
    }

    fn decoding(&self, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Decoding {
        super::decode::decoding(self, ranges, fetched)
    }

    fn decode(&self, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Option<Arc<dyn DecodedBlock>> {
        Some(Arc::new(super::decode::decode(self, ranges, fetched)))
    }
}
