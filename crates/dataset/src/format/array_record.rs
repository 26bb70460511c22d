//! Indexes ArrayRecord files: of each file the footer and the first records are read.

use bytes::Bytes;
use futures::stream::BoxStream;
use spdl_shard::format::{
    Format, MadeIndex,
    array_record::{ArrayRecord, Footer, LAST_BLOCK_BYTES, RecordFields, fields_of, footer_range},
};
use spdl_store::{StoreError, blocking};

use super::{
    FormatScan, Takes,
    footer_files::{FileIndexer, FooterFile, index_files},
    is_named_so,
};
use crate::{DatasetError, DatasetOddities, MemoryBound, Scan, ShardResult};

/// A footer takes this many times its size in memory while it is read.
const FOOTER_MEMORY: u64 = 4;

/// Finds ArrayRecord files.
#[derive(Debug)]
pub(super) struct ArrayRecordScan;

impl FormatScan for ArrayRecordScan {
    fn format(&self) -> &'static dyn Format {
        &ArrayRecord
    }

    fn is_shard(&self, name: &str) -> bool {
        is_named_so(name, &[".array_record", ".arrayrecord"])
    }

    fn takes(&self) -> Takes {
        Takes::ShardsOrAll
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["array_record", "arrayrecord"], "`spdl-ctl index` makes a dataset of ArrayRecord files, as they are")
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        index_files(scan, ChunkIndexer::new())
    }
}

/// Makes the indexes of ArrayRecord files.
struct ChunkIndexer {
    /// Bounds the footers and first chunks of all files.
    memory: MemoryBound,
}

impl FileIndexer for ChunkIndexer {
    async fn index(
        &self,
        file: &FooterFile,
        block_bytes: u64,
        _odd: &mut DatasetOddities,
    ) -> Result<MadeIndex, DatasetError> {
        let wrong = |problem: String| file.wrong(problem);
        let footer = self.footer(file).await?.map_err(wrong)?;
        let (footer, fields) = self.fields(file, footer).await?.map_err(wrong)?;
        let key_prefix = format!("{}/", file.path());
        footer.index(file.bytes(), &fields, &key_prefix, block_bytes).map_err(wrong)
    }
}

impl ChunkIndexer {
    fn new() -> Self {
        Self { memory: MemoryBound::new() }
    }

    /// Reads the footer of a file. The inner error is what is wrong with the file.
    async fn footer(&self, file: &FooterFile) -> Result<Result<Footer, String>, StoreError> {
        let last = match file.bytes().checked_sub(LAST_BLOCK_BYTES) {
            Some(start) => file.read(start..file.bytes()).await?,
            None => Bytes::new(),
        };
        let range = match footer_range(&last, file.bytes()) {
            Ok(range) => range,
            Err(problem) => return Ok(Err(problem)),
        };
        let _memory = self.memory.take((range.end - range.start).saturating_mul(FOOTER_MEMORY)).await;
        let at = range.start;
        let stored = file.read(range).await?;
        Ok(blocking(move || Footer::parse(stored, at)).await)
    }

    /// Reads the first records of a file, and returns what their fields are. The inner error is what is wrong with the file.
    async fn fields(
        &self,
        file: &FooterFile,
        footer: Footer,
    ) -> Result<Result<(Footer, RecordFields), String>, StoreError> {
        let Some(range) = footer.sampled() else { return Ok(Ok((footer, RecordFields::Whole))) };
        let _memory = self.memory.take(range.end - range.start + footer.sampled_bytes()).await;
        let stored = file.read(range).await?;
        let look = move || fields_of(&footer, &stored).map(|fields| (footer, fields));
        Ok(blocking(look).await)
    }
}
