//! Indexes Parquet files. Reads the footer and the page index of each file, and the headers of pages of large row
//! groups that the page index lacks, but no page.

use std::{collections::BTreeSet, ops::Range, sync::Mutex};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use percent_encoding::percent_decode_str;
use spdl_shard::format::{
    Format, MadeIndex,
    parquet::{MAX_FOOTER_BYTES, PageWalk, PagesByHeader, Parquet, ParquetFooter, RowFacts, UnknownPages},
};
use spdl_store::StoreError;

use super::{
    FormatScan,
    footer_files::{FileIndexer, FooterFile, index_files},
};
use crate::{DatasetError, DatasetOddities, Scan, ShardResult};

/// Ending of the names of shards.
const SUFFIX: &str = ".parquet";
/// The last bytes of every file: the length of the footer, and the magic.
const TAIL_BYTES: u64 = 8;
const MAGIC: &[u8] = b"PAR1";
/// The end of a file is read at first up to this size, in the hope that the footer lies in it.
const MAX_FIRST_READ: u64 = 64 << 10;
/// The first read takes at most one part in so many of a file.
const FIRST_READ_PART: u64 = 4096;
/// The chunks of a file whose headers are read at once.
const CHUNKS_AT_ONCE: usize = 8;
/// The name that writers give to the folder of rows without a value.
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Finds Parquet files.
#[derive(Debug)]
pub(super) struct ParquetScan;

impl FormatScan for ParquetScan {
    fn format(&self) -> &'static dyn Format {
        &Parquet
    }

    fn is_shard(&self, name: &str) -> bool {
        name.ends_with(SUFFIX)
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        Some("is for tars with Pascal VOC annotations; a row of Parquet is one sample")
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["parquet"], "`spdl-ctl index` makes a dataset of Parquet files as they are")
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        index_files(scan, PageIndexer::default())
    }
}

/// Makes the indexes of Parquet files.
#[derive(Default)]
pub(super) struct PageIndexer {
    /// The columns that were reported as left out.
    noted: Mutex<BTreeSet<String>>,
}

impl FileIndexer for PageIndexer {
    async fn index(
        &self,
        file: &FooterFile,
        block_bytes: u64,
        odd: &mut DatasetOddities,
    ) -> Result<MadeIndex, DatasetError> {
        let open = OpenParquet::open(file, block_bytes).await?;
        let made = open.index(file, block_bytes, None)?;
        self.note(file, &open, odd);
        Ok(made)
    }
}

impl PageIndexer {
    /// Notes what is odd about a file, and the classes that it states.
    pub(super) fn note(&self, file: &FooterFile, open: &OpenParquet, odd: &mut DatasetOddities) {
        odd.class_lists.extend(open.footer.class_names());
        for (column, reason) in open.footer.left_out() {
            if self.noted.lock().expect("nothing panics with it").insert(column.to_owned()) {
                odd.note(|| format!("column `{column}` of `{}` is left out: {reason}", file.path()));
            }
        }
    }
}

/// A file whose footer and page index were read.
pub(super) struct OpenParquet {
    footer: ParquetFooter,
    /// Parts of the page index, by their place in the file.
    page_index: Vec<(u64, Bytes)>,
    by_header: PagesByHeader,
}

impl OpenParquet {
    /// Reads what an index with blocks of about `block_bytes` is made of.
    pub(super) async fn open(file: &FooterFile, block_bytes: u64) -> Result<Self, DatasetError> {
        let wrong = |problem: String| file.wrong(problem);
        let footer = footer(file).await?.map_err(wrong)?;
        let footer = ParquetFooter::parse(&footer, file.bytes()).map_err(wrong)?;
        let mut page_index: Vec<(u64, Bytes)> = Vec::new();
        for range in footer.page_index() {
            page_index.push((range.start, file.read(range).await?));
        }
        let unknown = footer.unknown_pages(&|range| part(&page_index, &range), block_bytes);
        let by_header = pages_by_header(file, unknown).await?;
        Ok(Self { footer, page_index, by_header })
    }

    /// Makes the index of the file. `series` has the first rows of series of rows, if they belong together.
    pub(super) fn index(
        &self,
        file: &FooterFile,
        block_bytes: u64,
        series: Option<&[u32]>,
    ) -> Result<MadeIndex, DatasetError> {
        let key_prefix = format!("{}/", file.path().strip_suffix(SUFFIX).unwrap_or(file.path()));
        let of_rows = RowFacts { key_prefix: &key_prefix, partitions: &partitions(file.path()), series };
        let read = |range: Range<u64>| part(&self.page_index, &range);
        self.footer.index(&read, &self.by_header, of_rows, block_bytes).map_err(|problem| file.wrong(problem))
    }
}

/// Returns the bytes of a range of a file, if these parts of it have them.
fn part(parts: &[(u64, Bytes)], range: &Range<u64>) -> Option<Bytes> {
    let at = parts.partition_point(|(start, _)| *start <= range.start).checked_sub(1)?;
    let (start, bytes) = &parts[at];
    let place = usize::try_from(range.start - start).ok()?..usize::try_from(range.end - start).ok()?;
    bytes.get(place.clone())?;
    Some(bytes.slice(place))
}

/// Reads the footer of a file. The inner error is what is wrong with the file.
async fn footer(file: &FooterFile) -> Result<Result<Bytes, String>, StoreError> {
    if file.bytes() < TAIL_BYTES + MAGIC.len() as u64 {
        return Ok(Err(format!("is no Parquet file: it has {} bytes", file.bytes())));
    }
    let first = (file.bytes() / FIRST_READ_PART).clamp(TAIL_BYTES, MAX_FIRST_READ);
    let end = file.read(file.bytes() - first..file.bytes()).await?;
    let (rest, tail) = end.split_at(end.len() - TAIL_BYTES as usize);
    let (length, magic) = tail.split_at(4);
    if magic != MAGIC {
        let what = if magic == b"PARE" { "is encrypted" } else { "is no Parquet file" };
        return Ok(Err(format!("{what}: it ends with `{}`", magic.escape_ascii())));
    }
    let length = u64::from(u32::from_le_bytes(length.try_into().expect("four bytes")));
    if length > MAX_FOOTER_BYTES || length + TAIL_BYTES + MAGIC.len() as u64 > file.bytes() {
        return Ok(Err(format!("is cut off or damaged: its footer claims {length} bytes")));
    }
    if let Some(start) = rest.len().checked_sub(length as usize) {
        return Ok(Ok(end.slice(start..rest.len())));
    }
    let footer_end = file.bytes() - TAIL_BYTES;
    file.read(footer_end - length..footer_end).await.map(Ok)
}

/// Reads the headers of the pages of chunks.
async fn pages_by_header(file: &FooterFile, chunks: Vec<UnknownPages>) -> Result<PagesByHeader, StoreError> {
    let walks = chunks.into_iter().map(|chunk| async move {
        let (start, mut walk) = (chunk.chunk.start, PageWalk::new(chunk));
        while let Some(range) = walk.next() {
            if walk.take(&file.read(range).await?).is_none() {
                break;
            }
        }
        Ok::<_, StoreError>((start, walk))
    });
    let mut walks = stream::iter(walks).buffer_unordered(CHUNKS_AT_ONCE);
    let mut found = PagesByHeader::default();
    while let Some((chunk, walk)) = walks.try_next().await? {
        found.add(chunk, walk);
    }
    Ok(found)
}

/// Returns the fields in the path of a file: its folders that are called `key=value`.
fn partitions(path: &str) -> Vec<(String, String)> {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
    let mut found: Vec<(String, String)> = Vec::new();
    for (key, value) in folders.filter_map(|folder| folder.split_once('=')) {
        let (key, value) = (unescaped(key), unescaped(value));
        let is_new = !key.is_empty() && value != NO_VALUE && found.iter().all(|(other, _)| *other != key);
        if is_new && !key.contains(char::is_control) {
            found.push((key, value));
        }
    }
    found
}

/// Replaces escapes such as `%20` by the characters that they stand for; invalid ones stay.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_a_key_are_fields() {
        let found = partitions("data/split=train/lang=de%2FAT/x=__HIVE_DEFAULT_PARTITION__/split=b/c=d.parquet");
        assert_eq!(found, [("split".into(), "train".into()), ("lang".into(), "de/AT".into())]);
        assert_eq!(partitions("a=b.parquet"), [], "the file's own name is no folder");
        assert_eq!([unescaped("100%"), unescaped("%+4")], ["100%", "%+4"]);
        assert_eq!(unescaped("%zz%41%ff"), "%zz%41%ff", "no UTF-8");
    }
}
