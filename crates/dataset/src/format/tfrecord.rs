//! Reads TFRecord files once, and notes where the features of their examples are.

use futures::stream::BoxStream;
use spdl_shard::{
    FormatError,
    format::{
        Compression, Format,
        tfrecord::{TfRecord, TfRecordReader, WrongFrame, begins_with_record, features},
    },
    index::IndexBuilder,
    manifest::ShardFacts,
};
use spdl_store::TemporaryFolder;

use super::{
    FormatScan, Takes, is_named_so,
    read_shards::{ShardCatalog, read_shards},
};
use crate::{BlockCutter, DatasetError, DatasetOddities, Outline, Scan, ScannedShard, ShardResult};

/// Finds TFRecord files.
#[derive(Debug)]
pub(super) struct TfRecordScan;

impl FormatScan for TfRecordScan {
    fn format(&self) -> &'static dyn Format {
        &TfRecord
    }

    fn is_shard(&self, name: &str) -> bool {
        is_named_so(name, &[".tfrecord", ".tfrec"])
    }

    fn takes(&self) -> Takes {
        Takes::ShardsOrAll
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&["tfrecord", "tfrec"], "`spdl-ctl index` makes a dataset of TFRecord files, as they are")
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        let temporary = scan.temporary.clone();
        read_shards(scan, compression, move |shard, block_bytes| ExampleCatalog::new(shard, block_bytes, &temporary))
    }
}

/// Finds out how a file is compressed from its first bytes.
fn compression(_name: &str, first: &[u8]) -> Result<Option<Compression>, String> {
    let is_zlib = matches!(first, [method, flags, ..] if method & 0xf == 8 && method >> 4 < 8
        && u16::from_be_bytes([*method, *flags]).is_multiple_of(31));
    Ok(match first {
        first if begins_with_record(first) => None,
        [0x1f, 0x8b, 8, ..] => Some(Compression::Gzip),
        _ if is_zlib => Some(Compression::Zlib),
        _ => None,
    })
}

/// Builds a file's index while its bytes pass.
struct ExampleCatalog {
    shard: String,
    frames: TfRecordReader,
    index: IndexBuilder,
    blocks: BlockCutter,
    odd: DatasetOddities,
    key: String,
}

impl ExampleCatalog {
    fn new(shard: &str, block_bytes: u64, temporary: &TemporaryFolder) -> Self {
        Self {
            shard: shard.to_owned(),
            frames: TfRecordReader::default(),
            index: IndexBuilder::in_folder(temporary),
            blocks: BlockCutter::new(block_bytes),
            odd: DatasetOddities::default(),
            key: String::new(),
        }
    }

    fn wrong(&self, WrongFrame { offset, problem }: WrongFrame) -> DatasetError {
        let record = self.index.record_count();
        wrong(&self.shard, record, &format!("at byte {offset} {problem}"))
    }
}

fn wrong(shard: &str, record: u32, problem: &str) -> DatasetError {
    DatasetError::Source { path: shard.to_owned(), problem: format!("is not read: record {record} {problem}") }
}

impl ShardCatalog for ExampleCatalog {
    fn read(&mut self, chunk: &[u8]) -> Result<(), DatasetError> {
        let Self { shard, frames, index, blocks, odd, key } = self;
        let read = frames.read(chunk, |offset, example| {
            let number = index.record_count();
            let found = features(example).map_err(|problem| wrong(shard, number, &problem))?;
            if found.is_empty() {
                return Err(wrong(shard, number, "is a `tf.train.Example` without features"));
            }
            *key = format!("{shard}/{number:06}");
            for (name, _) in &found {
                odd.field(name);
            }
            let fields = found.iter().map(|(name, range)| {
                let message = &example[range.clone()];
                (name.as_str(), offset + range.start as u64, message.len() as u32, crc32c::crc32c(message))
            });
            let unwritable = |source: FormatError| DatasetError::Unwritable { url: shard.clone(), source };
            index.record(key, 1, fields).map_err(unwritable)?;
            blocks.record(number, offset, offset + example.len() as u64, 1);
            odd.end(Outline { key: key.clone(), fields: Vec::new() });
            Ok(())
        });
        match read {
            Ok(read) => read,
            Err(frame) => Err(self.wrong(frame)),
        }
    }

    fn record_count(&self) -> u32 {
        self.index.record_count()
    }

    fn finish(mut self, etag: Option<String>) -> Result<ScannedShard, DatasetError> {
        let frames = std::mem::take(&mut self.frames);
        let shard_bytes = frames.finish().map_err(|frame| self.wrong(frame))?;
        let Self { shard, index, blocks, odd, .. } = self;
        let unwritable = |source| DatasetError::Unwritable { url: shard.clone(), source };
        let records = index.record_count();
        let index = index.write(shard_bytes).map_err(unwritable)?;
        let too_long = || FormatError::Unwritable("one of its records has 4 GiB or more".to_owned());
        let blocks = blocks.finish().ok_or_else(|| unwritable(too_long()))?;
        let (index_bytes, index_hash) = (index.bytes(), index.hash());
        let facts = ShardFacts { url: shard, bytes: shard_bytes, etag, records, index_bytes, index_hash };
        Ok(ScannedShard { facts, blocks, index, odd })
    }
}
