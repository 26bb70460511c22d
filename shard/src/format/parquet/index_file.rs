//! The stored form of the index of a Parquet file. `docs/spec/formats/parquet.md` has the layout.

use std::collections::HashMap;

use bytes::Bytes;
use spdl_types::{DType, Fingerprint};

use super::{
    columns::{ParquetCodec, ParquetColumn, Physical},
    index::{Page, PageRun, ParquetIndex, RowSegment},
};
use crate::{
    FormatError,
    envelope::{FileKind, HEAD_BYTES, check_expected, sealed, text, u32_at, u64_at, wrong},
};

const KIND: FileKind = FileKind { name: "Parquet index", magic: *b"SPDLPQT\n", version: 1, header_bytes: HEADER_BYTES };

const HEADER_BYTES: usize = 84;
const COLUMN_BYTES: usize = 20;
const PARTITION_BYTES: usize = 8;
const SEGMENT_BYTES: usize = 16;
const RUN_BYTES: usize = 28;
const PAGE_BYTES: usize = 8;
/// The code of a column whose values are bytes or text.
const NO_ELEMENTS: u8 = 255;
/// The level of a column that is no list.
const NO_LIST: u16 = u16::MAX;

/// Opens an index whose hash in the manifest is `expected`.
pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<ParquetIndex, FormatError> {
    check_expected(&KIND, &bytes, expected)?;
    ParquetIndex::read(bytes)
}

/// Returns the stored form of an index, and its hash.
pub(super) fn write(
    index: &ParquetIndex,
    prefix: &str,
    partitions: &[(String, String)],
) -> Result<(Bytes, Fingerprint), FormatError> {
    let mut text = prefix.to_owned();
    let mut file = vec![0; HEAD_BYTES];
    file.extend(index.file_bytes.to_le_bytes());
    file.extend(index.shard_bytes.to_le_bytes());
    file.extend([0; HEADER_BYTES - HEAD_BYTES - 16]);
    for column in &index.columns {
        text.push_str(&column.name);
        file.extend((text.len() as u32).to_le_bytes());
        let elements = column.elements.map_or(NO_ELEMENTS, |elements| elements as u8);
        file.extend([column.physical.code(), elements]);
        file.extend(column.max_definition.to_le_bytes());
        let [outer, inner] = [0, 1].map(|depth| column.lists.get(depth).copied());
        file.extend(outer.unwrap_or(NO_LIST).to_le_bytes());
        file.extend(column.decimal_digits.map_or(0, |digits| u16::from(digits) + 1).to_le_bytes());
        file.extend(column.length.to_le_bytes());
        file.extend(u32::from(inner.unwrap_or(0)).to_le_bytes());
    }
    for part in partitions.iter().flat_map(|(key, value)| [key, value]) {
        text.push_str(part);
        file.extend((text.len() as u32).to_le_bytes());
    }
    for RowSegment { row_group, first_row, at } in &index.segments {
        file.extend(row_group.to_le_bytes());
        file.extend(first_row.to_le_bytes());
        file.extend(at.to_le_bytes());
    }
    for run in &index.runs {
        file.extend(run.file_at.to_le_bytes());
        file.extend(run.dictionary_at.to_le_bytes());
        file.extend(run.dictionary_bytes.to_le_bytes());
        file.extend((run.first_page + run.pages).to_le_bytes());
        file.extend((run.codec as u32).to_le_bytes());
    }
    for Page { end, first_row } in &index.pages {
        file.extend(end.to_le_bytes());
        file.extend(first_row.to_le_bytes());
    }
    file.extend(text.as_bytes());
    let (columns, segments, pages) = (index.columns.len(), index.segments.len(), index.pages.len());
    let counts = [columns, partitions.len(), segments, pages, text.len(), prefix.len()];
    let too_much = |_| FormatError::Unwritable("it has too many columns, pages or row groups".to_owned());
    file[56..60].copy_from_slice(&index.records.to_le_bytes());
    for (count, place) in counts.into_iter().zip(file[60..84].chunks_exact_mut(4)) {
        place.copy_from_slice(&u32::try_from(count).map_err(too_much)?.to_le_bytes());
    }
    sealed(&KIND, file, open)
}

impl ParquetIndex {
    /// Reads and checks an index whose envelope is right.
    fn read(bytes: Bytes) -> Result<Self, FormatError> {
        let [columns, partitions, segments, pages, text_bytes] =
            [60, 64, 68, 72, 76].map(|at| u32_at(&bytes, at) as usize);
        let runs = segments.checked_mul(columns).ok_or_else(|| wrong("it claims too many columns"))?;
        let sections = [
            (columns, COLUMN_BYTES),
            (partitions, PARTITION_BYTES),
            (segments, SEGMENT_BYTES),
            (runs, RUN_BYTES),
            (pages, PAGE_BYTES),
            (text_bytes, 1),
        ];
        let mut starts = [HEADER_BYTES; 7];
        for (number, (count, width)) in sections.into_iter().enumerate() {
            let end = count.checked_mul(width).and_then(|length| starts[number].checked_add(length));
            starts[number + 1] = end.ok_or_else(|| wrong("its sections are longer than it is"))?;
        }
        if starts[6] != bytes.len() {
            return Err(wrong("its sections do not add up to its size"));
        }
        let entries = |number: usize| bytes[starts[number]..starts[number + 1]].chunks_exact(sections[number].1);
        let text_at = starts[5];
        std::str::from_utf8(&bytes[text_at..]).map_err(|_| wrong("its text is not UTF-8"))?;
        let mut texts = Texts { bytes: &bytes, at: text_at };
        let prefix = texts.next(u32_at(&bytes, 80))?;
        let columns = entries(0).map(|entry| column(entry, &mut texts)).collect::<Result<Vec<_>, _>>()?;
        let mut by_name = HashMap::new();
        let mut known = Vec::new();
        for entry in entries(1) {
            let key = texts.next(u32_at(entry, 0))?;
            known.push((text(&bytes[key]).to_owned(), texts.next(u32_at(entry, 4))?));
        }
        if texts.at != bytes.len() {
            return Err(wrong("its text has unused bytes"));
        }
        let names = columns.iter().map(|column| &column.name).chain(known.iter().map(|(name, _)| name));
        for (number, name) in (0..).zip(names) {
            if name.is_empty() || by_name.insert(name.clone(), number).is_some() {
                return Err(wrong("it has a field twice, or one without a name"));
            }
        }
        let mut index = Self {
            file_bytes: u64_at(&bytes, 40),
            shard_bytes: u64_at(&bytes, 48),
            records: u32_at(&bytes, 56),
            prefix,
            columns,
            partitions: known,
            segments: entries(2).map(segment).collect(),
            runs: Vec::with_capacity(runs),
            pages: entries(4).map(page).collect(),
            by_name,
            bytes: Bytes::new(),
        };
        let mut first_page = 0;
        for entry in entries(3) {
            let run = run(entry, first_page, pages)?;
            first_page = run.first_page + run.pages;
            index.runs.push(run);
        }
        if first_page as usize != pages {
            return Err(wrong("it has pages that belong to no column"));
        }
        index.check()?;
        index.bytes = bytes;
        Ok(index)
    }

    /// Checks that rows, pages and bytes follow each other, and places the runs in the shard.
    fn check(&mut self) -> Result<(), FormatError> {
        if self.segments.is_empty() != (self.records == 0) || self.columns.is_empty() && self.records > 0 {
            return Err(wrong("it has records without columns or rows"));
        }
        let mut before: Option<RowSegment> = None;
        for number in 0..self.segments.len() {
            let segment = self.segments[number];
            let follows = match before {
                None => segment.first_row == 0 && segment.at == 0,
                Some(before) => {
                    segment.first_row > before.first_row
                        && segment.at >= before.at
                        && segment.row_group >= before.row_group
                }
            };
            if !follows || segment.first_row >= self.records {
                return Err(wrong("its runs of rows are out of order"));
            }
            before = Some(segment);
            let end = self.segments.get(number + 1).map_or(self.shard_bytes, |next| next.at);
            self.place_runs(number, end)?;
        }
        Ok(())
    }

    /// Places the runs of a segment, which ends at `end` of the shard.
    fn place_runs(&mut self, segment: usize, end: u64) -> Result<(), FormatError> {
        let (rows, mut at) = (self.rows(segment), self.segments[segment].at);
        for number in segment * self.columns.len()..(segment + 1) * self.columns.len() {
            let run = self.runs[number];
            let pages = self.pages_of(&run);
            let starts_before = pages.first().is_some_and(|page| page.first_row <= rows.start);
            let follow = pages.windows(2).all(|pair| {
                pair[0].end < pair[1].end && pair[0].first_row < pair[1].first_row && pair[1].first_row < rows.end
            });
            // The first page may have rows of the segment before; the second begins behind the segment's first row.
            let is_first = pages.get(1).is_none_or(|page| page.first_row > rows.start);
            let bytes = pages.last().map_or(0, |page| page.end);
            let in_file = |at: u64, bytes: u32| at.checked_add(bytes.into()).is_some_and(|end| end <= self.file_bytes);
            let is_in_file = in_file(run.file_at, bytes) && in_file(run.dictionary_at, run.dictionary_bytes);
            let has_bytes = pages.first().is_some_and(|page| page.end > 0);
            let length = run.dictionary_bytes.checked_add(bytes);
            let run_end = length.and_then(|length| at.checked_add(length.into())).filter(|run_end| *run_end <= end);
            let Some(run_end) = run_end.filter(|_| starts_before && follow && is_first && is_in_file && has_bytes)
            else {
                let column = &self.columns[number % self.columns.len()].name;
                return Err(wrong(&format!("the pages of column `{column}` are out of order or outside the file")));
            };
            self.runs[number].at = at;
            at = run_end;
        }
        Ok(())
    }
}

/// Cuts names out of the text.
struct Texts<'b> {
    bytes: &'b Bytes,
    at: usize,
}

impl Texts<'_> {
    /// Returns the place of the next text, which ends at `end` of all text.
    fn next(&mut self, end: u32) -> Result<std::ops::Range<usize>, FormatError> {
        let whole = text(&self.bytes[self.start()..]);
        let (start, end) = (self.at, self.start() + end as usize);
        if end < start || !whole.is_char_boundary(end - self.start()) {
            return Err(wrong("its table of text is out of order"));
        }
        self.at = end;
        Ok(start..end)
    }

    /// Returns where all text begins.
    fn start(&self) -> usize {
        self.bytes.len() - u32_at(self.bytes, 76) as usize
    }
}

fn column(entry: &[u8], texts: &mut Texts<'_>) -> Result<ParquetColumn, FormatError> {
    let name = text(&texts.bytes[texts.next(u32_at(entry, 0))?]).to_owned();
    let elements = match entry[5] {
        NO_ELEMENTS => Some(None),
        code => DType::ALL.get(usize::from(code)).copied().map(Some),
    };
    let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let lists = match (half(8), u16::try_from(u32_at(entry, 16))) {
        (NO_LIST, Ok(0)) => Some(vec![]),
        (list, Ok(0)) => Some(vec![list]),
        (outer, Ok(inner)) => Some(vec![outer, inner]),
        (_, Err(_)) => None,
    };
    let decimal_digits = match half(10).checked_sub(1) {
        None => Some(None),
        Some(digits) => u8::try_from(digits).ok().map(Some),
    };
    let (Some(physical), Some(elements), Some(lists), Some(decimal_digits)) =
        (Physical::of(entry[4]), elements, lists, decimal_digits)
    else {
        return Err(wrong(&format!("column `{name}` has an unknown type")));
    };
    let column = ParquetColumn {
        physical,
        length: u32_at(entry, 12),
        elements,
        decimal_digits,
        max_definition: half(6),
        lists,
        name,
    };
    if column.is_consistent() {
        return Ok(column);
    }
    Err(wrong(&format!("the type of column `{}` contradicts itself", column.name)))
}

fn segment(entry: &[u8]) -> RowSegment {
    RowSegment { row_group: u32_at(entry, 0), first_row: u32_at(entry, 4), at: u64_at(entry, 8) }
}

fn run(entry: &[u8], first_page: u32, pages: usize) -> Result<PageRun, FormatError> {
    let end = u32_at(entry, 20);
    let codec = ParquetCodec::of(u32_at(entry, 24)).ok_or_else(|| wrong("it names an unknown compression"))?;
    let Some(count) = end.checked_sub(first_page).filter(|_| end as usize <= pages) else {
        return Err(wrong("its pages are out of order"));
    };
    Ok(PageRun {
        at: 0,
        file_at: u64_at(entry, 0),
        dictionary_at: u64_at(entry, 8),
        dictionary_bytes: u32_at(entry, 16),
        codec,
        first_page,
        pages: count,
    })
}

fn page(entry: &[u8]) -> Page {
    Page { end: u32_at(entry, 0), first_row: u32_at(entry, 4) }
}
