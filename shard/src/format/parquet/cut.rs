//! Cuts the row groups of a file into segments, and the segments into blocks.

use std::ops::Range;

use super::{
    columns::ParquetCodec,
    index::{Page, PageRun, RowSegment},
};
use crate::manifest::BlockFacts;

/// Upper limit of the bytes that the rows of a segment take.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// Size in bytes up to which the pages of a chunk need not be known: each segment can have the whole chunk.
pub(super) const UNCUT_BYTES: u64 = 256 << 10;

/// The pages of a column of a row group.
#[derive(Debug)]
pub(super) struct ColumnChunk {
    pub(super) codec: ParquetCodec,
    pub(super) dictionary: Range<u64>,
    /// Offset of the first page in the file.
    pub(super) at: u64,
    /// At least one, with rows counted in the row group.
    pub(super) pages: Vec<Page>,
    /// How many of the pages, from the first on, hold references to the dictionary. A writer goes over to plain values
    /// once the dictionary is full, as it soon is with pictures.
    pub(super) coded_pages: usize,
    /// Whether the pages are known one by one.
    pub(super) are_known: bool,
    /// Bytes that the decoded values take, or a little more.
    pub(super) decoded_bytes: u64,
}

impl ColumnChunk {
    /// Returns the bytes that the rows take, stored or decoded, whichever is more.
    fn bytes(&self) -> u64 {
        self.decoded_bytes.max(self.pages.last().map_or(0, |page| page.end.into()))
    }

    /// Returns whether rows can be read with little of the chunk that belongs to other rows.
    fn can_be_cut(&self) -> bool {
        self.are_known || self.bytes() <= UNCUT_BYTES
    }
}

/// A row group: its columns in the order of the index.
#[derive(Debug)]
pub(super) struct RowGroup {
    pub(super) rows: u32,
    pub(super) chunks: Vec<ColumnChunk>,
}

impl RowGroup {
    /// Returns the row at which the first of the `series` begins of a group that begins, at row `first_row` of the file, within another
    /// one: so that a block can begin there. `None` if the group begins with one, or cannot be cut.
    fn border_within(&self, first_row: u32, series: &[u32]) -> Option<u32> {
        let next = series.binary_search(&first_row).err()?;
        let border = series.get(next)? - first_row;
        (border < self.rows && self.chunks.iter().all(ColumnChunk::can_be_cut)).then_some(border)
    }
}

/// The segments of a file, with what belongs to them.
#[derive(Debug, Default)]
pub(super) struct FileSegments {
    pub(super) segments: Vec<RowSegment>,
    pub(super) runs: Vec<PageRun>,
    pub(super) pages: Vec<Page>,
    pub(super) records: u32,
    /// Bytes of the shard.
    pub(super) bytes: u64,
}

impl FileSegments {
    /// Adds row group number `number`, cut into segments of about `target_bytes`; in `series`, if there are any, only where one
    /// begins.
    pub(super) fn add(
        &mut self,
        number: u32,
        group: &RowGroup,
        target_bytes: u64,
        series: Option<&[u32]>,
    ) -> Result<(), String> {
        let first_row = self.records;
        let too_many = || "has more than 4 294 967 295 rows".to_owned();
        let end = first_row.checked_add(group.rows).ok_or_else(too_many)?;
        let mut cuts = cut_rows(group, target_bytes, |rows| cut_between(rows, first_row, series));
        if let Some(at) = series.and_then(|series| group.border_within(first_row, series))
            && let Some(within) = cuts.iter().position(|rows| rows.start < at && at < rows.end)
        {
            let Range { start, end } = cuts[within].clone();
            cuts.splice(within..=within, [start..at, at..end]);
        }
        for rows in cuts {
            self.segment(number, group, first_row, rows)?;
        }
        self.records = end;
        Ok(())
    }

    fn segment(&mut self, number: u32, group: &RowGroup, first_row: u32, rows: Range<u32>) -> Result<(), String> {
        let start = self.bytes;
        self.segments.push(RowSegment { row_group: number, first_row: first_row + rows.start, at: start });
        for chunk in &group.chunks {
            let first = chunk.pages.partition_point(|page| page.first_row <= rows.start) - 1;
            let last = chunk.pages.partition_point(|page| page.first_row < rows.end);
            let before = first.checked_sub(1).map_or(0, |before| chunk.pages[before].end);
            let is_coded = first < chunk.coded_pages;
            let dictionary_bytes = if is_coded { (chunk.dictionary.end - chunk.dictionary.start) as u32 } else { 0 };
            let stored = u64::from(chunk.pages[last - 1].end - before);
            let share = u128::from(chunk.decoded_bytes) * u128::from(rows.end - rows.start);
            let decoded = share.div_ceil(group.rows.into()) as u64;
            self.runs.push(PageRun {
                at: self.bytes,
                file_at: chunk.at + u64::from(before),
                dictionary_at: chunk.dictionary.start,
                dictionary_bytes,
                codec: chunk.codec,
                first_page: self.pages.len() as u32,
                pages: (last - first) as u32,
            });
            self.pages.extend(
                chunk.pages[first..last]
                    .iter()
                    .map(|page| Page { end: page.end - before, first_row: first_row + page.first_row }),
            );
            // The values of the dictionary are among the decoded ones.
            self.bytes += (u64::from(dictionary_bytes) + stored).max(decoded);
        }
        let bytes = self.bytes - start;
        if bytes <= MAX_SEGMENT_BYTES {
            return Ok(());
        }
        Err(format!(
            "has {} rows in row group {number} that take {bytes} bytes and cannot be read in parts; write it with a page \
             index (`write_page_index=True`), or in smaller row groups",
            rows.end - rows.start
        ))
    }

    /// Returns the blocks: neighbouring segments of at most `target_bytes` together, unless one alone has more. The rows of one of
    /// the `series`, if there are any, are of one block.
    ///
    /// # Errors
    /// If the rows of a series take too many bytes.
    pub(super) fn blocks(&self, target_bytes: u64, series: Option<&[u32]>) -> Result<Vec<BlockFacts>, String> {
        let mut blocks: Vec<BlockFacts> = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let (end, end_row) = match self.segments.get(number + 1) {
                Some(next) => (next.at, next.first_row),
                None => (self.bytes, self.records),
            };
            let records = end_row - segment.first_row;
            let is_inside = series.is_some_and(|series| series.binary_search(&segment.first_row).is_err());
            match blocks.last_mut() {
                Some(last) if is_inside && end - last.offset > MAX_SEGMENT_BYTES => {
                    return Err(format!(
                        "has rows around row {} that belong together and take {} bytes, more than the {MAX_SEGMENT_BYTES} that \
                         a block can have",
                        segment.first_row,
                        end - last.offset
                    ));
                }
                Some(last) if is_inside || end - last.offset <= target_bytes => {
                    last.bytes = (end - last.offset) as u32;
                    last.records += records;
                    last.samples += records;
                }
                _ => blocks.push(BlockFacts {
                    offset: segment.at,
                    bytes: (end - segment.at) as u32,
                    first_record: segment.first_row,
                    records,
                    samples: records,
                }),
            }
        }
        Ok(blocks)
    }
}

/// Returns where rows of a row group, which begins at row `first_row` of the file, are cut that would be cut at the end of `rows`:
/// there, or where the last of the `series` before it begins, or else the first behind it. `None` if there is none.
fn cut_between(rows: Range<u32>, first_row: u32, series: Option<&[u32]>) -> Option<u32> {
    let Some(series) = series else { return Some(rows.end) };
    let [start, end] = [rows.start, rows.end].map(|row| first_row + row);
    let behind = series.partition_point(|row| *row <= end);
    let before = behind.checked_sub(1).map(|before| series[before]).filter(|row| *row > start);
    before.or_else(|| series.get(behind).copied()).map(|row| row - first_row)
}

/// Cuts the rows of a row group at the borders between the pages of its largest column, if its pages are known. One cut
/// is where that column's values no longer refer to its dictionary, so that later values are read without the
/// dictionary. `cut` returns where the group is cut that should be cut at the end of some rows.
fn cut_rows(group: &RowGroup, target_bytes: u64, cut: impl Fn(Range<u32>) -> Option<u32>) -> Vec<Range<u32>> {
    if group.rows == 0 {
        return Vec::new();
    }
    let whole = 0..group.rows;
    let bytes: u64 = group.chunks.iter().map(ColumnChunk::bytes).sum();
    let largest = group.chunks.iter().max_by_key(|chunk| chunk.bytes());
    let Some(largest) = largest.filter(|_| group.chunks.iter().all(ColumnChunk::can_be_cut)) else {
        return vec![whole];
    };
    let stored = largest.pages.last().map_or(1, |page| page.end).max(1);
    let (mut cuts, mut start, mut before, mut used) = (Vec::new(), 0, 0, 0_u64);
    for (number, page) in largest.pages.iter().enumerate() {
        // Assumes that the bytes of the other columns are spread over the rows as those of the largest one.
        let share = u128::from(bytes) * u128::from(page.end - before) / u128::from(stored);
        let share = share as u64;
        let is_full = used > 0 && used + share > target_bytes;
        if (is_full || number == largest.coded_pages) && page.first_row > start {
            let at = cut(start..page.first_row).filter(|at| *at < group.rows);
            cuts.extend(at.map(|at| start..at));
            (start, used) = (at.unwrap_or(start), 0);
        }
        used += share;
        before = page.end;
    }
    cuts.push(start..group.rows);
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(pages: &[(u32, u32)], dictionary: Range<u64>) -> ColumnChunk {
        ColumnChunk {
            codec: ParquetCodec::None,
            at: dictionary.end,
            dictionary,
            coded_pages: pages.len(),
            pages: pages.iter().map(|(end, first_row)| Page { end: *end, first_row: *first_row }).collect(),
            are_known: true,
            decoded_bytes: 0,
        }
    }

    fn cut(groups: &[RowGroup], target_bytes: u64) -> FileSegments {
        let mut segments = FileSegments::default();
        for (number, group) in (0..).zip(groups) {
            segments.add(number, group, target_bytes, None).unwrap();
        }
        segments
    }

    #[test]
    fn a_large_row_group_is_cut_at_the_pages_of_its_largest_column() {
        let pictures = chunk(&[(400, 0), (800, 4), (1200, 8), (1600, 12)], 0..0);
        let labels = chunk(&[(10, 0), (20, 10)], 5000..5030);
        let segments = cut(&[RowGroup { rows: 16, chunks: vec![pictures, labels] }], 1000);
        assert_eq!(segments.segments.iter().map(|segment| segment.first_row).collect::<Vec<_>>(), [0, 8]);
        let [first, labels, second, more_labels] = segments.runs[..] else { panic!("{segments:?}") };
        assert_eq!((first.file_at, first.at, first.pages), (0, 0, 2));
        assert_eq!((second.file_at, second.pages), (800, 2));
        assert_eq!((labels.at, labels.dictionary_bytes, labels.pages), (800, 30, 1), "rows 0..10");
        assert_eq!((more_labels.file_at, more_labels.pages), (5030, 2), "rows 8..16 lie in both pages");
        let ends: Vec<_> = segments.pages.iter().map(|page| (page.end, page.first_row)).collect();
        assert_eq!(ends, [(400, 0), (800, 4), (10, 0), (400, 8), (800, 12), (10, 0), (20, 10)]);
        let blocks: Vec<_> =
            segments.blocks(1000, None).unwrap().iter().map(|block| (block.first_record, block.records)).collect();
        assert_eq!(blocks, [(0, 8), (8, 8)]);
    }

    #[test]
    fn a_row_group_is_cut_where_a_writer_went_over_to_plain_values_and_these_need_no_dictionary() {
        let mut pictures = chunk(&[(5, 0), (400, 4), (800, 8)], 100..1100);
        pictures.coded_pages = 1;
        let labels = chunk(&[(10, 0)], 5000..5030);
        let segments = cut(&[RowGroup { rows: 12, chunks: vec![pictures, labels] }], 10_000);
        assert_eq!(segments.segments.iter().map(|segment| segment.first_row).collect::<Vec<_>>(), [0, 4]);
        let dictionaries: Vec<_> = segments.runs.iter().map(|run| run.dictionary_bytes).collect();
        assert_eq!(dictionaries, [1000, 30, 0, 30]);
        assert_eq!(segments.blocks(10_000, None).unwrap().len(), 1);
    }

    #[test]
    fn small_row_groups_are_one_block_and_one_of_unknown_pages_stays_whole() {
        let group = || RowGroup { rows: 4, chunks: vec![chunk(&[(100, 0)], 0..0)] };
        let segments = cut(&[group(), group(), group()], 250);
        let blocks: Vec<_> =
            segments.blocks(250, None).unwrap().iter().map(|block| (block.offset, block.records)).collect();
        assert_eq!(blocks, [(0, 8), (200, 4)]);
        let mut large = chunk(&[(400 << 10, 0), (800 << 10, 4)], 0..0);
        large.are_known = false;
        let segments = cut(&[RowGroup { rows: 8, chunks: vec![large] }], 100);
        assert_eq!(segments.segments.len(), 1);
    }

    #[test]
    fn the_rows_of_a_series_are_of_one_block() {
        let pictures = || chunk(&[(400, 0), (800, 4), (1200, 8), (1600, 12)], 0..0);
        let group = || RowGroup { rows: 16, chunks: vec![pictures()] };
        let of = |series: &[u32]| {
            let mut segments = FileSegments::default();
            segments.add(0, &group(), 500, Some(series)).unwrap();
            segments.add(1, &group(), 500, Some(series)).unwrap();
            let blocks = segments.blocks(500, Some(series)).unwrap();
            let firsts: Vec<u32> = segments.segments.iter().map(|segment| segment.first_row).collect();
            (firsts, blocks.iter().map(|block| (block.first_record, block.records)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[0, 3, 6, 16, 30]), (vec![0, 3, 6, 16, 30], vec![(0, 3), (3, 3), (6, 10), (16, 14), (30, 2)]));
        // One that goes on in the next row group.
        assert_eq!(of(&[0, 14, 18]), (vec![0, 14, 16, 18], vec![(0, 14), (14, 4), (18, 14)]));
        assert_eq!(of(&[0, 14, 31]), (vec![0, 14, 16, 31], vec![(0, 14), (14, 17), (31, 1)]));
        assert_eq!(of(&[0]), (vec![0, 16], vec![(0, 32)]));
        let huge = || ColumnChunk { decoded_bytes: 700 << 20, ..chunk(&[(10, 0)], 0..0) };
        let mut segments = FileSegments::default();
        for number in 0..2 {
            segments.add(number, &RowGroup { rows: 7, chunks: vec![huge()] }, 5000, Some(&[0])).unwrap();
        }
        let error = segments.blocks(5000, Some(&[0])).unwrap_err();
        assert!(error.contains("around row 7 that belong together"), "{error}");
    }

    #[test]
    fn a_block_has_room_for_decoded_rows_and_is_refused_if_these_are_too_many() {
        let mut small = chunk(&[(10, 0), (20, 500)], 0..0);
        small.decoded_bytes = 8000;
        let segments = cut(&[RowGroup { rows: 1000, chunks: vec![small] }], 5000);
        assert_eq!((segments.segments.len(), segments.bytes), (2, 8000));
        let mut huge = chunk(&[(10, 0)], 0..0);
        huge.decoded_bytes = 2 << 30;
        let error = FileSegments::default().add(3, &RowGroup { rows: 7, chunks: vec![huge] }, 5000, None).unwrap_err();
        assert!(error.contains("7 rows in row group 3") && error.contains("write_page_index=True"), "{error}");
    }
}
