//! Makes the index of a Parquet file from its footer and its page index.

use std::{
    collections::HashMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use parquet::{
    basic::{CompressionCodec, Encoding, PageType},
    file::{
        metadata::{
            ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
            ParquetStatisticsPolicy, RowGroupMetaData,
        },
        page_index::index_reader::decode_offset_index,
    },
};

use super::{
    columns::{ParquetCodec, ParquetColumn},
    cut::{ColumnChunk, FileSegments, RowGroup, UNCUT_BYTES},
    features::{FEATURES_KEY, class_names},
    headers::{ChunkPages, PageWalk, UnknownPages},
    index::{Page, ParquetIndex},
    index_file,
    schema::Schema,
    thrift::{Found, LastField, walk, without_fields_behind},
};
use crate::{
    FormatError,
    format::{FetchedBytes, MadeIndex},
    ranges::merge,
};

/// Upper limit of the size of a footer, in bytes.
pub const MAX_FOOTER_BYTES: u64 = 256 << 20;
/// Parts of the page index with a gap of at most this many bytes are read together.
const MERGE_GAP_BYTES: u64 = 4 << 10;
/// The memory that the place of a value takes where values have different sizes.
const PLACE_BYTES: u64 = 8;

/// The footer of a file.
#[derive(Debug)]
pub struct ParquetFooter {
    metadata: ParquetMetaData,
    schema: Schema,
    chunks: FooterChunks,
    file_bytes: u64,
}

/// The key prefix and the fields that all rows of a file have in common, and which rows belong together.
#[derive(Clone, Copy, Debug)]
pub struct RowFacts<'a> {
    /// The prefix of their keys.
    pub key_prefix: &'a str,
    /// Fields with the same value in all rows: names and values.
    pub partitions: &'a [(String, String)],
    /// The first rows of series of rows that belong together, row 0 first, if there are such: the rows of one are of one block.
    pub series: Option<&'a [u32]>,
}

/// The pages of chunks, by where the chunks begin in the file.
#[derive(Debug, Default)]
pub struct PagesByHeader(HashMap<u64, ChunkPages>);

impl PagesByHeader {
    /// Adds the pages that a walk has found, if it has found all.
    pub fn add(&mut self, chunk: u64, walk: PageWalk) {
        self.0.extend(walk.end().map(|pages| (chunk, pages)));
    }

    /// Returns the pages of the chunk of so many rows that begins at byte `chunk` of the file.
    fn of(&self, chunk: u64, rows: u32) -> Option<ChunkPages> {
        self.0.get(&chunk).filter(|found| found.pages.last().is_some_and(|last| last.first_row < rows)).cloned()
    }
}

impl ParquetFooter {
    /// Reads a footer, without the eight bytes that follow it, of a file of `file_bytes`.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn parse(footer: &[u8], file_bytes: u64) -> Result<Self, String> {
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_as_mask(false);
        let parse = || {
            let metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options));
            let metadata = metadata.or_else(|error| essentials(footer).ok_or(error));
            let metadata = metadata.map_err(|error| format!("has a damaged footer: {error}"))?;
            let chunks = FooterChunk::all(footer, metadata.file_metadata().schema_descr().num_columns());
            let mut schema = Schema::of(metadata.file_metadata().schema_descr());
            schema.leave_out("it is encrypted", |column| chunks.of(column).any(|chunk| chunk.is_encrypted));
            Ok(Self { schema, chunks, metadata, file_bytes })
        };
        caught(parse)
    }

    /// Iterates over the columns that are not fields, with the reasons.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.schema.left_out.iter().map(|(name, reason)| (name.as_str(), *reason))
    }

    /// Returns the names of classes that the file states, in the order of their numbers, by the column that has these numbers.
    #[must_use]
    pub fn class_names(&self) -> Vec<(String, Vec<String>)> {
        let metadata = self.metadata.file_metadata().key_value_metadata().into_iter().flatten();
        let features = metadata.filter(|entry| entry.key == FEATURES_KEY).filter_map(|entry| entry.value.as_deref());
        features.flat_map(class_names).collect()
    }

    /// Returns the ranges of the file that hold the page index, in order.
    #[must_use]
    pub fn page_index(&self) -> Vec<Range<u64>> {
        let chunks = self.metadata.row_groups().iter().flat_map(|group| self.chunks(group));
        merge(chunks.filter_map(|(_, chunk)| self.offset_index(chunk)).collect(), MERGE_GAP_BYTES)
    }

    /// Returns the chunks, in row groups of more than `block_bytes`, whose pages can be found only by their headers.
    /// `read` returns the bytes of a part of the page index.
    #[must_use]
    pub fn unknown_pages(&self, read: &FetchedBytes<'_>, block_bytes: u64) -> Vec<UnknownPages> {
        let mut unknown = Vec::new();
        for group in self.metadata.row_groups() {
            let Ok(rows) = u32::try_from(group.num_rows()) else { continue };
            let bytes: u64 = self.chunks(group).map(|(column, chunk)| decoded_bytes(column, chunk, rows)).sum();
            let large = self.chunks(group).filter(|_| bytes > block_bytes && rows > 0);
            unknown.extend(large.filter_map(|(column, chunk)| {
                let range = self.range(chunk).ok().filter(|range| range.end - range.start > UNCUT_BYTES)?;
                let offsets = self.offset_index(chunk).and_then(read);
                let is_known = offsets.is_some_and(|offsets| known_pages(&offsets, &range, rows).is_some());
                let is_one = stated_pages(chunk) == Some([1, 0]) || stated_pages(chunk) == Some([0, 1]);
                let is_flat = column.lists.is_empty();
                (!is_known && !is_one).then_some(UnknownPages { chunk: range, rows, is_flat })
            }));
        }
        unknown
    }

    /// Makes the index of the file, with blocks of about `block_bytes`. `read` returns the bytes of a part of the page
    /// index; `by_header` has pages that the page index lacks.
    ///
    /// # Errors
    /// What is wrong with the file, or why it cannot be read.
    pub fn index(
        &self,
        read: &FetchedBytes<'_>,
        by_header: &PagesByHeader,
        of_rows: RowFacts<'_>,
        block_bytes: u64,
    ) -> Result<MadeIndex, String> {
        caught(|| self.make_index(read, by_header, of_rows, block_bytes))
    }

    fn make_index(
        &self,
        read: &FetchedBytes<'_>,
        by_header: &PagesByHeader,
        of_rows: RowFacts<'_>,
        block_bytes: u64,
    ) -> Result<MadeIndex, String> {
        let columns: Vec<ParquetColumn> = self.schema.columns.iter().map(|(_, column)| column.clone()).collect();
        if columns.is_empty() {
            let reasons: Vec<_> = self.left_out().take(3).map(|(name, reason)| format!("`{name}`: {reason}")).collect();
            return Err(format!("has no column that can be read ({})", reasons.join("; ")));
        }
        let mut cut = FileSegments::default();
        for (number, group) in (0..).zip(self.metadata.row_groups()) {
            if group.num_rows() == 0 {
                continue;
            }
            let group =
                self.row_group(group, read, by_header).map_err(|problem| format!("{problem} in row group {number}"))?;
            cut.add(number, &group, block_bytes, of_rows.series)?;
        }
        let is_column = |name: &str| columns.iter().any(|column| column.name == name);
        let partitions: Vec<_> = of_rows.partitions.iter().filter(|(name, _)| !is_column(name)).cloned().collect();
        let rows = u64::from(cut.records);
        let in_columns = self
            .schema
            .columns
            .iter()
            .map(|(number, column)| (column.name.clone(), self.rows_with(*number, column, rows)));
        let fields = in_columns.chain(partitions.iter().map(|(name, _)| (name.clone(), Some(rows)))).collect();
        let blocks = cut.blocks(block_bytes, of_rows.series)?;
        let index = ParquetIndex {
            bytes: Bytes::new(),
            file_bytes: self.file_bytes,
            shard_bytes: cut.bytes,
            records: cut.records,
            prefix: 0..0,
            columns,
            partitions: Vec::new(),
            segments: cut.segments,
            runs: cut.runs,
            pages: cut.pages,
            by_name: Default::default(),
        };
        let unwritable = |error: FormatError| format!("contradicts itself: its index {error}");
        let (bytes, hash) = index_file::write(&index, of_rows.key_prefix, &partitions).map_err(unwritable)?;
        Ok(MadeIndex { index: bytes, hash, records: index.records, bytes: index.shard_bytes, blocks, fields })
    }

    /// Returns how many of the file's rows have a value in a column; `None` if the file does not state it.
    fn rows_with(&self, number: usize, column: &ParquetColumn, rows: u64) -> Option<u64> {
        if column.max_definition == 0 {
            return Some(rows);
        }
        // For lists, the file counts null elements and not null rows.
        if !column.lists.is_empty() {
            return None;
        }
        rows.checked_sub(self.chunks.of(number).map(|chunk| chunk.nulls).sum::<Option<u64>>()?)
    }

    /// Iterates over the chunks of the columns that are fields.
    fn chunks<'g>(
        &'g self,
        group: &'g RowGroupMetaData,
    ) -> impl Iterator<Item = (&'g ParquetColumn, &'g ColumnChunkMetaData)> {
        self.schema.columns.iter().filter_map(|(number, column)| Some((column, group.columns().get(*number)?)))
    }

    fn row_group(
        &self,
        group: &RowGroupMetaData,
        read: &FetchedBytes<'_>,
        by_header: &PagesByHeader,
    ) -> Result<RowGroup, String> {
        let rows = u32::try_from(group.num_rows()).map_err(|_| format!("has {} rows", group.num_rows()))?;
        let chunks = self.chunks(group).map(|(column, chunk)| {
            let offsets = self.offset_index(chunk).and_then(read);
            self.chunk(column, chunk, rows, offsets.as_deref(), by_header)
                .map_err(|problem| format!("has a column `{}` that {problem}", column.name))
        });
        let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
        if chunks.len() == self.schema.columns.len() {
            Ok(RowGroup { rows, chunks })
        } else {
            Err("lacks columns".to_owned())
        }
    }

    fn offset_index(&self, chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
        let start = u64::try_from(chunk.offset_index_offset()?).ok()?;
        let end = start.checked_add(u64::try_from(chunk.offset_index_length()?).ok()?)?;
        (start < end && end <= self.file_bytes).then_some(start..end)
    }

    fn chunk(
        &self,
        column: &ParquetColumn,
        chunk: &ColumnChunkMetaData,
        rows: u32,
        offsets: Option<&[u8]>,
        by_header: &PagesByHeader,
    ) -> Result<ColumnChunk, String> {
        let range = self.range(chunk)?;
        let codec = codec(chunk.compression_codec())?;
        let decoded_bytes = decoded_bytes(column, chunk, rows);
        let by_index = || {
            let (at, pages) = known_pages(offsets?, &range, rows)?;
            let coded = coded_pages(chunk, pages.len());
            Some(ChunkPages { at, pages, coded })
        };
        if let Some(ChunkPages { at, pages, coded }) = by_index().or_else(|| by_header.of(range.start, rows)) {
            let dictionary = range.start..at;
            return Ok(ColumnChunk {
                codec,
                dictionary,
                at,
                pages,
                coded_pages: coded,
                are_known: true,
                decoded_bytes,
            });
        }
        let pages = vec![Page { end: (range.end - range.start) as u32, first_row: 0 }];
        let at = range.start;
        Ok(ColumnChunk { codec, dictionary: at..at, at, pages, coded_pages: 1, are_known: false, decoded_bytes })
    }

    /// Returns the bytes of a chunk in the file.
    fn range(&self, chunk: &ColumnChunkMetaData) -> Result<Range<u64>, String> {
        if chunk.file_path().is_some_and(|path| !path.is_empty()) {
            return Err("lies in another file".to_owned());
        }
        let first = [chunk.dictionary_page_offset().filter(|at| *at > 0), Some(chunk.data_page_offset())];
        let start = first.into_iter().flatten().min().and_then(|at| u64::try_from(at).ok());
        let end =
            start.zip(u64::try_from(chunk.compressed_size()).ok()).and_then(|(start, bytes)| start.checked_add(bytes));
        let range = start.zip(end).map(|(start, end)| start..end).filter(|range| range.end <= self.file_bytes);
        let range = range.filter(|range| range.start < range.end && range.end - range.start <= u32::MAX.into());
        range.ok_or_else(|| "lies outside the file, or has 4 GiB or more".to_owned())
    }
}

/// Reads only the essential parts of a footer, for files in which the library rejects other parts: text in the metadata
/// of other programs that is not UTF-8, or statistics in fields that others have defined for something else.
fn essentials(footer: &[u8]) -> Option<ParquetMetaData> {
    // Behind `row_groups` are metadata of programs, the program's name, orders of columns and encryption; behind a chunk's
    // `dictionary_page_offset` are statistics, and what programs have put there before it was defined.
    const LAST: [LastField<'_>; 2] = [(&[], 4), (&[4, 0, 1, 0, 3], 11)];
    let footer = without_fields_behind(footer, &LAST)?;
    ParquetMetaDataReader::decode_metadata(&footer).ok()
}

/// The facts about a chunk in a footer that the library does not read.
#[derive(Clone, Copy, Debug, Default)]
struct FooterChunk {
    /// How many of its values are null, if that is stated.
    nulls: Option<u64>,
    is_encrypted: bool,
}

/// The chunks of a file, by row group and then by column.
#[derive(Debug)]
struct FooterChunks {
    chunks: Vec<FooterChunk>,
    columns: usize,
}

impl FooterChunk {
    /// Reads the facts about all chunks of a footer. If the footer cannot be read, or the number of chunks does not fit
    /// the columns, the chunks have no facts.
    fn all(footer: &[u8], columns: usize) -> FooterChunks {
        let mut chunks: Vec<Self> = Vec::new();
        let read = walk(footer, &mut |path, found| {
            // `row_groups`, `columns`, and of a chunk `meta_data`, in which `statistics` have a `null_count`, or `crypto_metadata`.
            match (path, found, chunks.last_mut()) {
                ([4, 0, 1, 0, 2], Found::Number(_), _) => chunks.push(Self::default()),
                ([4, 0, 1, 0, 3, 12, 3], Found::Number(nulls), Some(chunk)) => chunk.nulls = u64::try_from(nulls).ok(),
                ([4, 0, 1, 0, 8], Found::Other, Some(chunk)) => chunk.is_encrypted = true,
                _ => {}
            }
        });
        if read.is_none() || columns == 0 || !chunks.len().is_multiple_of(columns) {
            chunks = vec![Self::default(); columns];
        }
        FooterChunks { chunks, columns }
    }
}

impl FooterChunks {
    /// Iterates over the chunks of a column.
    fn of(&self, column: usize) -> impl Iterator<Item = FooterChunk> + '_ {
        self.chunks.iter().skip(column).step_by(self.columns.max(1)).copied()
    }
}

/// Returns where the first page begins, and all pages; `None` if the index does not describe all bytes of the chunk, page
/// after page, as that of a well-made file does.
fn known_pages(offsets: &[u8], chunk: &Range<u64>, rows: u32) -> Option<(u64, Vec<Page>)> {
    let offsets = decode_offset_index(offsets).ok()?;
    let locations = offsets.page_locations();
    let first = u64::try_from(locations.first()?.offset).ok()?;
    let (mut at, mut pages): (u64, Vec<Page>) = (first, Vec::with_capacity(locations.len()));
    for location in locations {
        let first_row = u32::try_from(location.first_row_index).ok().filter(|row| *row < rows)?;
        let follows = match pages.last() {
            None => first_row == 0,
            Some(before) => first_row > before.first_row,
        };
        let is_next = u64::try_from(location.offset).is_ok_and(|offset| offset == at);
        let bytes = u64::try_from(location.compressed_page_size).ok().filter(|bytes| *bytes > 0)?;
        at += bytes;
        if !follows || !is_next || at > chunk.end {
            return None;
        }
        pages.push(Page { end: u32::try_from(at - first).ok()?, first_row });
    }
    (first >= chunk.start && at == chunk.end).then_some((first, pages))
}

/// Returns how many of a chunk's `pages`, from the first on, may refer to its dictionary. Writers begin with such pages, and
/// end with others once the dictionary is full.
fn coded_pages(chunk: &ColumnChunkMetaData, pages: usize) -> usize {
    stated_pages(chunk).filter(|[coded, plain]| coded + plain == pages).map_or(pages, |[coded, _]| coded)
}

/// Returns how many pages with values the footer states for a chunk: those that refer to its dictionary, and others.
fn stated_pages(chunk: &ColumnChunkMetaData) -> Option<[usize; 2]> {
    let stated = chunk.page_encoding_stats()?.iter();
    let data = stated.filter(|stats| matches!(stats.page_type, PageType::DATA_PAGE | PageType::DATA_PAGE_V2));
    let (mut coded, mut plain) = (0, 0);
    for stats in data {
        let count = usize::try_from(stats.count).unwrap_or(0);
        match stats.encoding {
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => coded += count,
            _ => plain += count,
        }
    }
    Some([coded, plain])
}

/// Returns the bytes that the decoded values take, or a little more.
fn decoded_bytes(column: &ParquetColumn, chunk: &ColumnChunkMetaData, rows: u32) -> u64 {
    let stated = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let values = u64::try_from(chunk.num_values()).unwrap_or(0);
    let places = u64::from(rows) * PLACE_BYTES;
    let decoded = match column.width() {
        Some(width) if column.max_definition == 0 => values.saturating_mul(width as u64),
        Some(width) => values.saturating_mul(width as u64).saturating_add(places),
        // The values of a dictionary are kept once; other encodings may leave out what values have in common.
        None => {
            let whole = chunk.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
            let is_shortened = chunk.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY);
            let bytes = if is_shortened { whole.unwrap_or(stated.saturating_mul(4)) } else { stated };
            bytes.saturating_add(places)
        }
    };
    decoded.max(stated)
}

fn codec(codec: CompressionCodec) -> Result<ParquetCodec, String> {
    Ok(match codec {
        CompressionCodec::UNCOMPRESSED => ParquetCodec::None,
        CompressionCodec::SNAPPY => ParquetCodec::Snappy,
        CompressionCodec::GZIP => ParquetCodec::Gzip,
        CompressionCodec::BROTLI => ParquetCodec::Brotli,
        CompressionCodec::LZ4 => ParquetCodec::Lz4,
        CompressionCodec::ZSTD => ParquetCodec::Zstd,
        CompressionCodec::LZ4_RAW => ParquetCodec::Lz4Raw,
        other => return Err(format!("is compressed with {other:?}, which is not read")),
    })
}

/// Calls `parse`, and returns a panic of the library that reads footers as an error: some files reveal faults of the
/// library.
fn caught<T>(parse: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|_| Err("has a footer that cannot be read".to_owned()))
}
