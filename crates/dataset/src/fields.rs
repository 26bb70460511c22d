//! The stages that read the fields of a dataset's shards: their checksums, and the content of the wanted ones.
//!
//! Shards are opened some at once, and read in [parts](super::parts), many at once. The parts pass in order through one
//! stage that [cuts](super::cut) the fields out of them. The files of a shard that consists of several are parts of their
//! own, so that a file that is missing is the fault of its own record only.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use spdl_pipeline::{Op, Pipeline, Stages};
use spdl_shard::{
    format::{Field, FieldValue, ShardIndex},
    manifest::{Manifest, Shard},
    ranges::merge,
    store::DatasetStore,
};
use spdl_store::{StoreError, blocking};

use super::{
    DatasetError,
    cut::{FieldBatch, FieldCutter, FoundField, ReadContent, ReadPart, not_there, part_of, problem_of, slice},
    parts::{FieldPlace, IndexedField, PART_FILES, PartContent, ReadShard, ShardPart, WantedContent, WantedOf},
    stages::{Memory, MemoryBound, on_runtime},
};

/// The largest gap between two ranges that are read with one request, in bytes.
const MERGE_GAP_BYTES: u64 = 64 << 10;
/// Number of shards that are opened at once, if the bound on their indexes' memory allows it.
const SHARDS_AT_ONCE: usize = 4;
/// Number of parts that are read at once, if the bound on memory allows it.
const PARTS_AT_ONCE: usize = 8;
/// Name of the stage that reads the parts.
pub(super) const READ: &str = "read";

/// What is read.
#[derive(Clone)]
pub(super) struct FieldSource {
    pub(super) store: DatasetStore,
    pub(super) manifest: Arc<Manifest>,
    pub(super) wanted: Arc<WantedOf>,
    /// Bytes of memory that each byte that is read takes until its batch has passed all stages.
    pub(super) memory_factor: u64,
}

impl FieldSource {
    /// Returns the stages that read all fields.
    pub(super) fn stages(self) -> Stages<FieldBatch> {
        let source = Arc::new(self);
        let [indexing, opening, sizing, reading] = [(); 4].map(|()| Arc::clone(&source));
        let (indexes, memory) = (MemoryBound::new(), MemoryBound::new());
        let cutter = Mutex::new(FieldCutter::default());
        let admit_shard = move |number: u32| {
            let (indexes, bytes) = (indexes.clone(), indexing.manifest.shard(number).index_bytes);
            async move { Ok::<_, DatasetError>((number, indexes.take(bytes).await)) }
        };
        let admit_part = move |part: ShardPart| {
            let (memory, bytes) = (memory.clone(), part.bytes() * sizing.memory_factor);
            async move { Ok::<_, DatasetError>((part, memory.take(bytes).await)) }
        };
        let wanted = Arc::clone(&source.wanted);
        let cut = move |part| Ok::<_, DatasetError>(cutter.lock().expect("cutting does not panic").cut(part, &*wanted));
        Pipeline::builder()
            .source(0..source.manifest.shard_count())
            .pipe("index memory", Op::asynchronous(admit_shard), 1)
            .pipe("open", on_runtime(move |shard| open(Arc::clone(&opening), shard)), SHARDS_AT_ONCE)
            .disaggregate()
            .pipe("memory", Op::asynchronous(admit_part), 1)
            .pipe(
                READ,
                on_runtime(move |part| read(Arc::clone(&reading), part)).count_bytes(ReadPart::bytes),
                PARTS_AT_ONCE,
            )
            .pipe("cut", Op::cpu(cut), 1)
            .disaggregate()
    }
}

/// Opens a shard and plans its parts.
async fn open(source: Arc<FieldSource>, (number, memory): (u32, Memory)) -> Result<Vec<ShardPart>, DatasetError> {
    let mut shard = ReadShard::new(&source.manifest, number, memory);
    let opened = shard.open(&source.store).await;
    let shard = Arc::new(shard);
    let part = |content| ShardPart { shard: Arc::clone(&shard), is_last: false, content };
    let mut parts: Vec<ShardPart> = match opened {
        Ok(()) => shard.parts(&*source.wanted).into_iter().map(part).collect(),
        Err(error) if error.is_of_connection() => return Err(error.into()),
        Err(error) => vec![part(PartContent::Nothing(Some(error)))],
    };
    if parts.is_empty() {
        parts.push(part(PartContent::Nothing(None)));
    }
    parts.last_mut().expect("there is a part").is_last = true;
    Ok(parts)
}

/// Reads a part of a shard.
async fn read(source: Arc<FieldSource>, (part, memory): (ShardPart, Memory)) -> Result<ReadPart, DatasetError> {
    let ShardPart { shard, is_last, content } = part;
    let content = match content {
        PartContent::Range(range) => {
            let meta = shard.object.as_ref().expect("the shard lies in an object");
            let offset = shard.index().offset_in_object().unwrap_or(0);
            let range = offset + range.start..offset + range.end;
            source.store.read_part(shard.shard().url, meta, range).await.map(ReadContent::Chunk)
        }
        PartContent::Compressed(_) => decompressed(&source.store, &shard).await.map(ReadContent::Chunk),
        PartContent::Files(places) => {
            let (source, shard) = (&*source, &*shard);
            let files = stream::iter(places).map(|place| source.file(shard, place)).buffered(PART_FILES);
            let files: Result<Vec<(FoundField, u64)>, StoreError> = files.try_collect().await;
            files.map(|files| {
                let bytes = files.iter().map(|(_, bytes)| bytes).sum();
                ReadContent::Fields { fields: files.into_iter().map(|(field, _)| field).collect(), others: 0, bytes }
            })
        }
        PartContent::Piece(place, range) => {
            let IndexedField { field, .. } = shard.field(place);
            let at = (range.start - field.offset) as u32;
            let piece = read_range(&source.store, &shard.shard(), shard.index(), &field, range).await;
            piece.map(|piece| ReadContent::Piece(place, at, piece))
        }
        PartContent::Block(records, range) => source.block(&shard, records, range).await,
        PartContent::Repeated(others) => Ok(ReadContent::Fields { fields: Vec::new(), others, bytes: 0 }),
        PartContent::Nothing(error) => error.map_or(Ok(ReadContent::Nothing), Err),
    };
    match content {
        Err(error) if error.is_of_connection() => Err(error.into()),
        content => Ok(ReadPart { shard, is_last, content, memory }),
    }
}

impl FieldSource {
    /// Reads a block and decodes its records.
    async fn block(
        &self,
        shard: &Arc<ReadShard>,
        records: Range<u32>,
        range: Range<u64>,
    ) -> Result<ReadContent, StoreError> {
        let mut pieces: Vec<(u64, Bytes)> = Vec::new();
        for part in shard.index().plan(&shard.shard(), std::slice::from_ref(&range)) {
            pieces.push((part.at, self.store.read_range(&part).await?));
        }
        let (shard, wanted) = (Arc::clone(shard), Arc::clone(&self.wanted));
        let decode = move || {
            let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            let index = shard.index();
            let decoded = index.decode(&[range], &|range| slice(&pieces, range)).expect("a columnar format decodes");
            let places = FieldPlace::of_record(index, records.start);
            let places = std::iter::successors(places, |place| place.next(index));
            // A block of numbers has millions of values that are neither wanted nor wrong: they are only counted.
            let (mut fields, mut others) = (Vec::new(), 0);
            for place in places.take_while(|place| place.numbers().0 < records.end) {
                let IndexedField { key, field, segments } = shard.field(place);
                let (record, nth) = place.numbers();
                let content = match field.value {
                    Some(value) => Ok(Some(index.bytes().slice_ref(value).into())),
                    None => decoded.open(record, nth),
                };
                match content {
                    Ok(Some(content)) if wanted(key, &field, segments) != WantedContent::Nothing => {
                        fields.push(FoundField::whole(place, Ok(Some(content))));
                    }
                    Ok(_) => others += u64::from(field.value.is_none()),
                    Err(error) => fields.push(FoundField::whole(place, Err(problem_of(error, &field)))),
                }
            }
            ReadContent::Fields { fields, others, bytes }
        };
        Ok(blocking(decode).await)
    }

    /// Reads a file, and returns the number of bytes that were read.
    async fn file(&self, shard: &ReadShard, place: FieldPlace) -> Result<(FoundField, u64), StoreError> {
        let IndexedField { key, field, segments } = shard.field(place);
        let content = read_field(&self.store, &shard.shard(), shard.index(), &field).await?;
        let is_wanted = (self.wanted)(key, &field, segments) != WantedContent::Nothing;
        let bytes = if field.value.is_none() { u64::from(field.bytes) } else { 0 };
        Ok((FoundField::whole(place, content.map(|content| is_wanted.then_some(content))), bytes))
    }
}

/// Reads one field and checks it. The inner error is what is wrong with the field itself.
///
/// # Errors
/// If the store cannot be reached.
pub(super) async fn read_field(
    at: &DatasetStore,
    shard: &Shard<'_>,
    index: &dyn ShardIndex,
    field: &Field<'_>,
) -> Result<Result<FieldValue, String>, StoreError> {
    let content = match field.range() {
        Some(range) => match read_range(at, shard, index, field, range).await? {
            Ok(content) => content,
            Err(problem) => return Ok(Err(problem)),
        },
        None => Bytes::new(),
    };
    let fetched = |range: Range<u64>| part_of(field, &content, range);
    Ok(index.open(field, &fetched).map_err(|error| problem_of(error, field)))
}

/// Reads the object that holds a compressed shard, and decompresses it.
async fn decompressed(at: &DatasetStore, open: &ReadShard) -> Result<Bytes, StoreError> {
    let (shard, index) = (open.shard(), open.index());
    let compressed = index.compressed().expect("the shard is compressed").clone();
    let mut pieces = Vec::new();
    for part in index.plan(&shard, &[]) {
        pieces.push(at.read_range(&part).await?);
    }
    let decompress = move || compressed.decompress(&pieces);
    blocking(decompress)
        .await
        .map_err(|error| StoreError::Changed { url: at.url_of(shard.url), problem: error.to_string() })
}

/// Returns the ranges of a shard that are read for these: of an object, near ones together.
pub(crate) fn read_together(index: &dyn ShardIndex, shard: &Shard<'_>, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    merge(ranges, if index.object(shard).is_some() { MERGE_GAP_BYTES } else { 0 })
}

/// Reads a range of the shard that lies in one field, without a checksum. The inner error is what is wrong with the field.
///
/// # Errors
/// If the store cannot be reached.
pub(super) async fn read_range(
    at: &DatasetStore,
    shard: &Shard<'_>,
    index: &dyn ShardIndex,
    field: &Field<'_>,
    range: Range<u64>,
) -> Result<Result<Bytes, String>, StoreError> {
    let bytes = range.end - range.start;
    let mut pieces = Vec::new();
    for part in index.plan(shard, &[range]) {
        match at.read_range(&part).await {
            Ok(piece) => pieces.push(piece),
            Err(error) if error.is_of_connection() => return Err(error),
            Err(error) => return Ok(Err(format!("field `{}` cannot be read: {error}", field.name))),
        }
    }
    let content = match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
    };
    Ok(if content.len() as u64 == bytes { Ok(content) } else { Err(not_there(field)) })
}
