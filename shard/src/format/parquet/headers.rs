//! Headers of pages: what a page claims, and where the pages of a chunk lie in a file without a page index.

use std::ops::Range;

use super::{
    index::Page,
    thrift::{Found, walk},
};

pub(super) const DATA_PAGE: i64 = 0;
pub(super) const DICTIONARY_PAGE: i64 = 2;
pub(super) const DATA_PAGE_V2: i64 = 3;
/// Parquet's numbers of the encodings of values that refer to a dictionary.
const DICTIONARY_ENCODINGS: [i64; 2] = [2, 8];
/// Parquet's number of the encoding in which a value leaves out the beginning that it shares with the value before it.
pub(super) const DELTA_BYTE_ARRAY: i64 = 7;
/// Size of the first read of a header, in bytes. A header has the least and the greatest value, which writers cut off.
const FIRST_READ_BYTES: u64 = 1 << 10;
/// Upper limit of the size of a header.
const MAX_HEADER_BYTES: u64 = 64 << 10;

/// The claims in a page's header.
#[derive(Debug, Default)]
pub(super) struct PageHeader {
    pub(super) kind: Option<i64>,
    /// Size of the page when it is decompressed.
    pub(super) bytes: Option<i64>,
    pub(super) stored_bytes: Option<i64>,
    pub(super) values: Option<i64>,
    /// Number of rows, which only a page of version 2 states.
    rows: Option<i64>,
    pub(super) encoding: Option<i64>,
}

impl PageHeader {
    /// Reads the header at the start of `bytes`, and returns its length, too; `None` if there is none, or only a part of it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut header = Self::default();
        let length = walk(bytes, &mut |path, found| {
            let Found::Number(value) = found else { return };
            match path {
                [1] => header.kind = Some(value),
                [2] => header.bytes = Some(value),
                [3] => header.stored_bytes = Some(value),
                [5 | 7 | 8, 1] => header.values = Some(value),
                [5, 2] | [8, 4] => header.encoding = Some(value),
                [8, 3] => header.rows = Some(value),
                _ => {}
            }
        })?;
        Some((header, length))
    }
}

/// A chunk whose pages have to be found by their headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPages {
    /// Its bytes in the file.
    pub chunk: Range<u64>,
    pub(super) rows: u32,
    /// Whether each value is a row, so that the number of a page's values is that of its rows.
    pub(super) is_flat: bool,
}

/// The pages of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkPages {
    /// Offset of the first page with values in the file; the dictionary lies before it.
    pub(super) at: u64,
    /// At least one, with rows counted in the row group.
    pub(super) pages: Vec<Page>,
    /// How many of them, from the first on, may refer to the dictionary.
    pub(super) coded: usize,
}

/// Goes from header to header through a chunk.
#[derive(Debug)]
pub struct PageWalk {
    of: UnknownPages,
    /// Where the next header begins in the file.
    at: u64,
    read_bytes: u64,
    /// The first row of the next page.
    row: u32,
    found: ChunkPages,
}

impl PageWalk {
    /// Begins a walk at the first page.
    #[must_use]
    pub fn new(of: UnknownPages) -> Self {
        let at = of.chunk.start;
        Self { of, at, read_bytes: FIRST_READ_BYTES, row: 0, found: ChunkPages { at, pages: Vec::new(), coded: 0 } }
    }

    /// Returns the range of the file to read next; `None` if the end of the chunk is reached.
    #[must_use]
    pub fn next(&self) -> Option<Range<u64>> {
        let end = self.of.chunk.end.min(self.at + self.read_bytes);
        (self.at < end).then_some(self.at..end)
    }

    /// Takes the bytes of the range that [`next`](Self::next) returned; `None` if the pages cannot be told apart.
    pub fn take(&mut self, bytes: &[u8]) -> Option<()> {
        let Some((header, length)) = PageHeader::read(bytes) else {
            let is_cut_off = self.read_bytes < MAX_HEADER_BYTES && self.at + self.read_bytes < self.of.chunk.end;
            self.read_bytes = MAX_HEADER_BYTES;
            return is_cut_off.then_some(());
        };
        let stored = header.stored_bytes.and_then(|bytes| u64::try_from(bytes).ok())?;
        let end = self.at + length as u64 + stored;
        if end > self.of.chunk.end {
            return None;
        }
        let rows = match header.kind? {
            DATA_PAGE if self.of.is_flat => header.values,
            DATA_PAGE_V2 => header.rows,
            DICTIONARY_PAGE if self.found.pages.is_empty() => {
                self.found.at = end;
                Some(0)
            }
            _ => None,
        };
        let rows = rows.and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows <= self.of.rows - self.row)?;
        if rows > 0 {
            let first_row = self.row;
            self.found.pages.push(Page { end: u32::try_from(end - self.found.at).ok()?, first_row });
            if header.encoding.is_none_or(|encoding| DICTIONARY_ENCODINGS.contains(&encoding)) {
                self.found.coded = self.found.pages.len();
            }
        } else if let Some(last) = self.found.pages.last_mut() {
            // A page without rows is read with the one before it.
            last.end = u32::try_from(end - self.found.at).ok()?;
        }
        self.row += rows;
        (self.at, self.read_bytes) = (end, FIRST_READ_BYTES);
        Some(())
    }

    /// Returns the pages, once the end of the chunk is reached; `None` if some of the chunk's rows are in none of them.
    pub(super) fn end(self) -> Option<ChunkPages> {
        let is_whole = self.at == self.of.chunk.end && self.row == self.of.rows;
        (is_whole && !self.found.pages.is_empty()).then_some(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page: the header of a data page of version 1, and as many bytes as it claims.
    fn page(kind: u8, stored: u8, values: u8, encoding: u8) -> Vec<u8> {
        let field = if kind == 2 { 0x4c } else { 0x2c };
        let header =
            [0x15, kind * 2, 0x15, stored * 2, 0x15, stored * 2, field, 0x15, values * 2, 0x15, encoding * 2, 0, 0];
        [&header[..], &vec![7; stored.into()]].concat()
    }

    fn walked(file: &[u8], rows: u32, is_flat: bool) -> Option<ChunkPages> {
        let mut walk = PageWalk::new(UnknownPages { chunk: 3..file.len() as u64, rows, is_flat });
        while let Some(range) = walk.next() {
            walk.take(&file[range.start as usize..range.end as usize])?;
        }
        walk.end()
    }

    #[test]
    fn pages_are_found_by_their_headers_and_those_of_the_dictionary_are_told_apart() {
        let chunk = [page(2, 30, 5, 0), page(0, 4, 10, 8), page(0, 50, 2, 0), page(0, 60, 3, 0)].concat();
        let file = [&[0; 3][..], &chunk].concat();
        let ends = [(17, 0), (80, 10), (153, 12)];
        let pages = ends.map(|(end, first_row)| Page { end, first_row }).to_vec();
        assert_eq!(walked(&file, 15, true), Some(ChunkPages { at: 3 + 43, pages, coded: 1 }));
        assert_eq!(walked(&file, 14, true), None, "more rows than the row group");
        assert_eq!(walked(&file, 16, true), None, "fewer rows");
        assert_eq!(walked(&file, 15, false), None, "rows of lists are not counted by values");
        assert_eq!(walked(&file[..file.len() - 1], 15, true), None, "cut off");
        let no_header = [&[0; 3][..], &[0xff; 5000]].concat();
        assert_eq!(walked(&no_header, 15, true), None);
    }
}
