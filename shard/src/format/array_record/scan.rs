//! Makes the shards of a folder of ArrayRecord files: of each file the footer and the first records are read.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};

use super::{
    FileIndex, RecordFields,
    footer::{Footer, LAST_BLOCK_BYTES, footer_range},
    sample::fields_of,
};
use crate::{
    blocking,
    dataset::{DatasetError, DatasetOddities, MemoryBound, Scan, ScanCounts, ScannedShard, ShardResult},
    format::{ObjectRange, ObjectRole, StoredObject},
    index::is_index,
    index_file::IndexFile,
    manifest::ShardFacts,
    store::{DatasetStore, StoreError},
};

/// A footer takes so many times its bytes in memory, while it is read.
const FOOTER_MEMORY: u64 = 4;

/// Returns whether a file's name is one that programs give to ArrayRecord files, such as
/// `train.array_record-00000-of-00010`.
pub(super) fn is_named_so(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    (name.contains(".array_record") || name.contains(".arrayrecord")) && !is_index(name)
}

pub(super) fn scan(mut scan: Scan<'_>) -> BoxStream<'_, Result<ShardResult, DatasetError>> {
    if let Err(error) = scan.refuse_boxes("is only for tars") {
        return stream::iter([Err(error)]).boxed();
    }
    let folder = std::mem::take(&mut scan.folder);
    scan.meter.expect_bytes(folder.iter().map(|object| object.bytes).sum());
    let (meter, files_at_once) = (scan.meter, scan.options.shards_at_once.max(1));
    let scanner = Arc::new(Scanner {
        from: scan.from.clone(),
        block_bytes: scan.block_bytes,
        memory: MemoryBound::new(),
        counts: meter.counts(),
    });
    let files = (0..folder.len()).map(move |number| {
        let file = folder.get(number);
        let (url, etag) = (file.name.to_owned(), file.etag.map(str::to_owned));
        StoredObject { url, bytes: file.bytes, etag, role: ObjectRole::File }
    });
    let bad_shards = scan.bad_shards();
    let shards = stream::iter(files).map(move |file| {
        let scanner = Arc::clone(&scanner);
        async move { bad_shards.result(&file.url.clone(), scanner.file(file).await) }
    });
    shards.buffered(files_at_once).inspect_ok(|_| meter.report()).boxed()
}

/// Reads what files say about their chunks.
struct Scanner {
    from: DatasetStore,
    block_bytes: u64,
    /// Bounds the footers and first chunks of all files.
    memory: MemoryBound,
    counts: Arc<ScanCounts>,
}

impl Scanner {
    async fn file(&self, file: StoredObject) -> Result<ScannedShard, DatasetError> {
        let wrong = |problem: String| DatasetError::Source { path: self.from.url_of(&file.url), problem };
        let footer = self.footer(&file).await?.map_err(wrong)?;
        let (footer, fields) = self.fields(&file, footer).await?.map_err(wrong)?;
        let key_prefix = format!("{}/", file.url);
        let made = footer.index(file.bytes, &fields, &key_prefix, self.block_bytes).map_err(wrong)?;
        let mut odd = DatasetOddities::default();
        // Nothing but the records themselves says which features each of them has.
        let having = matches!(fields, RecordFields::Whole).then_some(u64::from(made.records));
        for name in fields.names() {
            odd.shared_field(&name, made.records, having);
        }
        self.counts.add(1, made.records.into(), file.bytes);
        let FileIndex { index, hash, records, bytes, blocks } = made;
        let etag = self.from.lasting_etag(file.etag);
        let index_bytes = index.len() as u64;
        let index = IndexFile::of(index, hash);
        let facts = ShardFacts { url: file.url, bytes, etag, records, index_bytes, index_hash: hash };
        Ok(ScannedShard { facts, blocks, index, odd })
    }

    /// Reads the footer of a file. The inner error is what is wrong with the file.
    async fn footer(&self, file: &StoredObject) -> Result<Result<Footer, String>, StoreError> {
        let last = match file.bytes.checked_sub(LAST_BLOCK_BYTES) {
            Some(start) => self.read(file, start..file.bytes).await?,
            None => Bytes::new(),
        };
        let range = match footer_range(&last, file.bytes) {
            Ok(range) => range,
            Err(problem) => return Ok(Err(problem)),
        };
        let _memory = self.memory.take((range.end - range.start).saturating_mul(FOOTER_MEMORY)).await;
        let at = range.start;
        let stored = self.read(file, range).await?;
        Ok(blocking(move || Footer::parse(stored, at)).await)
    }

    /// Reads the first records of a file, and returns what their fields are. The inner error is what is wrong with the file.
    async fn fields(
        &self,
        file: &StoredObject,
        footer: Footer,
    ) -> Result<Result<(Footer, RecordFields), String>, StoreError> {
        let Some(range) = footer.sampled() else { return Ok(Ok((footer, RecordFields::Whole))) };
        let _memory = self.memory.take(range.end - range.start + footer.sampled_bytes()).await;
        let stored = self.read(file, range).await?;
        let look = move || fields_of(&footer, &stored).map(|fields| (footer, fields));
        Ok(blocking(look).await)
    }

    async fn read(&self, file: &StoredObject, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.from.read_range(&ObjectRange { object: file.clone(), at: range.start, range }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_the_names_that_programs_give_them() {
        for name in ["a.array_record", "x/mnist-train.array_record-00000-of-00010", "b.arrayrecord"] {
            assert!(is_named_so(name), "{name}");
        }
        for name in
            ["a.array_record.idx", "a.array_record-00000-of-00010.idx.new", "x.array_record/info.json", "a.tfrecord"]
        {
            assert!(!is_named_so(name), "{name}");
        }
    }
}
