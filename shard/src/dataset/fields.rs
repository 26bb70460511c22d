//! The stages that read the fields of a dataset's shards: their checksums, and the content of the wanted ones.
//!
//! Shards are opened some at once, and read in parts, many at once. The parts pass in order through one stage that cuts
//! the fields out of them. The files of a shard that consists of several are parts of their own, so that a file that is
//! missing is the fault of its own record only.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};
use spdl_pipeline::{Op, Pipeline, Stages};

use super::{
    DatasetError,
    stages::{Memory, MemoryBound, on_runtime},
};
use crate::{
    format::{Field, OpenError, Record, ShardIndex},
    index::Segments,
    manifest::{Manifest, Shard},
    store::{self, DatasetStore, RANGE_BYTES, StoreError},
};

/// Number of shards that are opened at once.
const SHARDS_AT_ONCE: usize = 4;
/// Number of parts that are read at once, if the bound on memory allows it.
const PARTS_AT_ONCE: usize = 8;
/// Number of files that are one part, and that are read at once.
const PART_FILES: usize = 8;
/// Upper limits of a batch of fields, unless a single field is longer.
const BATCH_FIELDS: usize = 32;
const BATCH_BYTES: usize = 1 << 20;
/// Name of the stage that reads the parts.
pub(super) const READ: &str = "read";

/// Decides by key, field and segments whether a field's content is wanted.
pub(super) type IsWanted = dyn Fn(&str, &Field<'_>, Option<Segments<'_>>) -> bool + Send + Sync;

/// What is read.
#[derive(Clone)]
pub(super) struct FieldSource {
    pub(super) store: DatasetStore,
    pub(super) manifest: Arc<Manifest>,
    pub(super) is_wanted: Arc<IsWanted>,
    /// Bytes of memory that each byte that is read takes until its batch has passed all stages.
    pub(super) memory_factor: u64,
}

/// A shard that is read.
pub(super) struct OpenShard {
    manifest: Arc<Manifest>,
    number: u32,
    /// The object that it is, if it is one.
    pub(super) object: Option<ObjectMeta>,
    /// Its index; `None` if the shard cannot be opened.
    pub(super) index: Option<Arc<dyn ShardIndex>>,
}

/// The place of a field in its shard's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldPlace {
    record: u32,
    nth: u32,
}

/// A field as the index describes it.
pub(super) struct IndexedField<'i> {
    /// Its record's key.
    pub(super) key: &'i str,
    pub(super) field: Field<'i>,
    /// The table of segments, if the field is a crop-ready picture.
    pub(super) segments: Option<Segments<'i>>,
}

/// A field as read from the store.
pub(super) struct FoundField {
    pub(super) place: FieldPlace,
    /// What is wrong with its bytes, if they are not those that were indexed.
    pub(super) problem: Option<String>,
    /// The bytes that were read, if they were wanted and are right.
    pub(super) content: Option<Bytes>,
}

/// Some fields of one shard, in the order of its bytes. A shard has at least one batch.
pub(super) struct FieldBatch {
    pub(super) shard: Arc<OpenShard>,
    pub(super) is_first: bool,
    pub(super) fields: Vec<FoundField>,
    /// What was found at the end of the shard, if this is its last batch.
    pub(super) end: Option<ShardEnd>,
    /// Counts until the content is no more needed.
    pub(super) memory: Arc<Memory>,
}

/// The end of a shard.
pub(super) struct ShardEnd {
    /// Number of bytes that were read.
    pub(super) bytes: u64,
    /// The fields that are incomplete or missing because the shard ends too early, or why not all was read.
    pub(super) rest: Result<Vec<FieldPlace>, StoreError>,
}

/// A part of a shard.
struct Part {
    shard: Arc<OpenShard>,
    is_last: bool,
    content: PartContent,
}

enum PartContent {
    /// A range of the object that is the shard.
    Range(Range<u64>),
    /// Files of a shard that consists of several.
    Files(Vec<FieldPlace>),
    /// The shard has nothing to read, or cannot be opened.
    Nothing(Option<StoreError>),
}

struct ReadPart {
    shard: Arc<OpenShard>,
    is_last: bool,
    /// The error is one of the shard, not of the connection to the store.
    content: Result<ReadContent, StoreError>,
    memory: Memory,
}

enum ReadContent {
    Chunk(Bytes),
    Fields(Vec<FoundField>, u64),
    Nothing,
}

impl FieldSource {
    /// Returns the stages that read all fields.
    pub(super) fn stages(self) -> Stages<FieldBatch> {
        let source = Arc::new(self);
        let [opening, sizing, reading] = [(); 3].map(|()| Arc::clone(&source));
        let memory = MemoryBound::new();
        let cutter = Mutex::new(FieldCutter::default());
        let bytes = |part: &ReadPart| match &part.content {
            Ok(ReadContent::Chunk(chunk)) => chunk.len() as u64,
            Ok(ReadContent::Fields(_, bytes)) => *bytes,
            Ok(ReadContent::Nothing) | Err(_) => 0,
        };
        let admit = move |part: Part| {
            let (memory, bytes) = (memory.clone(), part.bytes() * sizing.memory_factor);
            async move { Ok::<_, DatasetError>((part, memory.take(bytes).await)) }
        };
        let is_wanted = Arc::clone(&source.is_wanted);
        let cut =
            move |part| Ok::<_, DatasetError>(cutter.lock().expect("cutting does not panic").cut(part, &*is_wanted));
        Pipeline::builder()
            .source(0..source.manifest.shard_count())
            .pipe("open", on_runtime(move |number| open(Arc::clone(&opening), number)), SHARDS_AT_ONCE)
            .disaggregate()
            .pipe("memory", Op::asynchronous(admit), 1)
            .pipe(READ, on_runtime(move |part| read(Arc::clone(&reading), part)).count_bytes(bytes), PARTS_AT_ONCE)
            .pipe("cut", Op::cpu(cut), 1)
            .disaggregate()
    }
}

/// Opens a shard and plans its parts.
async fn open(source: Arc<FieldSource>, number: u32) -> Result<Vec<Part>, DatasetError> {
    let FieldSource { store, manifest, .. } = &*source;
    let mut shard = OpenShard { manifest: Arc::clone(manifest), number, object: None, index: None };
    let opened = shard.open(store).await;
    let shard = Arc::new(shard);
    let part = |content| Part { shard: Arc::clone(&shard), is_last: false, content };
    let mut parts: Vec<Part> = match opened {
        Ok(()) => shard.parts().into_iter().map(part).collect(),
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
async fn read(source: Arc<FieldSource>, (part, memory): (Part, Memory)) -> Result<ReadPart, DatasetError> {
    let Part { shard, is_last, content } = part;
    let content = match content {
        PartContent::Range(range) => {
            let meta = shard.object.as_ref().expect("the shard is an object");
            source.store.read_part(shard.shard().url, meta, range).await.map(ReadContent::Chunk)
        }
        PartContent::Files(places) => {
            let (source, shard) = (&*source, &*shard);
            let files = stream::iter(places).map(|place| source.file(shard, place)).buffered(PART_FILES);
            let files: Result<Vec<(FoundField, u64)>, StoreError> = files.try_collect().await;
            files.map(|files| {
                let bytes = files.iter().map(|(_, bytes)| bytes).sum();
                ReadContent::Fields(files.into_iter().map(|(field, _)| field).collect(), bytes)
            })
        }
        PartContent::Nothing(error) => error.map_or(Ok(ReadContent::Nothing), Err),
    };
    match content {
        Err(error) if error.is_of_connection() => Err(error.into()),
        content => Ok(ReadPart { shard, is_last, content, memory }),
    }
}

impl FieldSource {
    /// Reads a file, and returns the number of bytes that were read.
    async fn file(&self, shard: &OpenShard, place: FieldPlace) -> Result<(FoundField, u64), StoreError> {
        let IndexedField { key, field, segments } = shard.field(place);
        let (problem, content) = match read_field(&self.store, &shard.shard(), shard.index(), &field).await? {
            Ok(content) => (None, (self.is_wanted)(key, &field, segments).then_some(content)),
            Err(problem) => (Some(problem), None),
        };
        let bytes = if field.value.is_none() { u64::from(field.bytes) } else { 0 };
        Ok((FoundField { place, problem, content }, bytes))
    }
}

impl OpenShard {
    /// Returns what the manifest has about the shard.
    pub(super) fn shard(&self) -> Shard<'_> {
        self.manifest.shard(self.number)
    }

    /// Returns the number of the shard in the manifest.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the index of a shard that has fields.
    pub(super) fn index(&self) -> &dyn ShardIndex {
        &**self.index.as_ref().expect("the shard was opened")
    }

    /// Returns a field of the shard.
    pub(super) fn field(&self, place: FieldPlace) -> IndexedField<'_> {
        let index = self.index();
        let record = index.record(place.record);
        let (field, segments) = (index.field(&record, place.nth), index.segments(&record, place.nth));
        IndexedField { key: record.key, field, segments }
    }

    async fn open(&mut self, store: &DatasetStore) -> Result<(), StoreError> {
        let manifest = Arc::clone(&self.manifest);
        let shard = manifest.shard(self.number);
        if let Some(object) = shard.format.object(&shard) {
            let meta = store.object().head(&store.path_of(&object.url)).await;
            self.object = Some(meta.map_err(|source| StoreError::of(&store.url_of(shard.url), source))?);
        }
        self.index = Some(store.index(&shard).await?);
        Ok(())
    }

    fn parts(&self) -> Vec<PartContent> {
        if let Some(meta) = &self.object {
            return store::parts(meta).map(PartContent::Range).collect();
        }
        let (mut parts, mut files, mut bytes) = (Vec::new(), Vec::new(), 0);
        for place in FieldPlace::all(self.index()) {
            let file_bytes = self.field(place).bytes();
            if files.len() == PART_FILES || bytes + file_bytes > RANGE_BYTES && !files.is_empty() {
                parts.push(PartContent::Files(std::mem::take(&mut files)));
                bytes = 0;
            }
            files.push(place);
            bytes += file_bytes;
        }
        if !files.is_empty() {
            parts.push(PartContent::Files(files));
        }
        parts
    }
}

impl IndexedField<'_> {
    /// Returns the number of bytes of the field in the store.
    fn bytes(&self) -> u64 {
        self.field.range().map_or(0, |range| range.end - range.start)
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match &self.content {
            PartContent::Range(range) => range.end - range.start,
            PartContent::Files(places) => places.iter().map(|place| self.shard.field(*place).bytes()).sum(),
            PartContent::Nothing(_) => 0,
        }
    }
}

impl FieldPlace {
    /// Iterates over the fields of a shard, in the order of its bytes.
    fn all(index: &dyn ShardIndex) -> impl Iterator<Item = Self> {
        std::iter::successors(Self::of_record(index, 0), |place| place.next(index))
    }

    /// Returns the first field of record number `record` or a later one.
    fn of_record(index: &dyn ShardIndex, record: u32) -> Option<Self> {
        let mut records = record..index.record_count();
        let record = records.find(|record| index.record(*record).fields().len() > 0)?;
        Some(Self { record, nth: 0 })
    }

    fn next(self, index: &dyn ShardIndex) -> Option<Self> {
        let record: Record<'_> = index.record(self.record);
        match self.nth + 1 {
            nth if (nth as usize) < record.fields().len() => Some(Self { nth, ..self }),
            _ => Self::of_record(index, self.record + 1),
        }
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
) -> Result<Result<Bytes, String>, StoreError> {
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    for part in index.plan(shard, field.range().as_slice()) {
        match at.read_range(&part).await {
            Ok(bytes) => pieces.push((part.at, bytes)),
            Err(error) if error.is_of_connection() => return Err(error),
            Err(error) => return Ok(Err(format!("field `{}` cannot be read: {error}", field.name))),
        }
    }
    let fetched = |range: Range<u64>| match &pieces[..] {
        [] => range.is_empty().then(Bytes::new),
        [(_, piece)] => (piece.len() as u64 == range.end - range.start).then(|| piece.clone()),
        pieces => Some(pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect()),
    };
    Ok(index.open(field, &fetched).map_err(|error| match error {
        OpenError::Checksum { .. } => other_bytes(field),
        OpenError::Missing => format!("field `{}` is not where its index has it", field.name),
    }))
}

fn other_bytes(field: &Field<'_>) -> String {
    format!("field `{}` at byte {} has other bytes than were indexed", field.name, field.offset)
}

/// Cuts the fields out of the parts of shards, which arrive in order.
#[derive(Default)]
struct FieldCutter {
    /// The shard that is being read, between its first part and its last one.
    open: Option<ShardReader>,
}

#[derive(Default)]
struct ShardReader {
    /// The next field; `None` after the last one.
    next: Option<FieldPlace>,
    bytes: u64,
    crc32c: u32,
    /// The bytes of the next field so far, if they are wanted.
    content: BytesMut,
    has_failed: bool,
}

impl FieldCutter {
    fn cut(&mut self, part: ReadPart, is_wanted: &IsWanted) -> Vec<FieldBatch> {
        let ReadPart { shard, is_last, content, memory } = part;
        let is_first = self.open.is_none();
        let mut reader = self.open.take().unwrap_or_else(|| ShardReader {
            next: shard.index.as_ref().and_then(|index| FieldPlace::of_record(&**index, 0)),
            ..ShardReader::default()
        });
        let was_failed = reader.has_failed;
        let (fields, error) = match content {
            _ if was_failed => (Vec::new(), None),
            Ok(content) => (reader.read(&shard, content, is_wanted), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        reader.has_failed |= error.is_some();
        let bytes = reader.bytes;
        let end = match error {
            Some(error) => Some(ShardEnd { bytes, rest: Err(error) }),
            None => (is_last && !was_failed).then(|| ShardEnd { bytes, rest: Ok(reader.rest(&shard)) }),
        };
        self.open = (!is_last).then_some(reader);
        if was_failed {
            return Vec::new();
        }
        batches(&shard, is_first, fields, end, memory)
    }
}

impl ShardReader {
    fn read(&mut self, shard: &OpenShard, content: ReadContent, is_wanted: &IsWanted) -> Vec<FoundField> {
        match content {
            ReadContent::Chunk(chunk) => self.chunk(shard, &chunk, is_wanted),
            ReadContent::Fields(fields, bytes) => {
                self.bytes += bytes;
                self.next = None;
                fields
            }
            ReadContent::Nothing => Vec::new(),
        }
    }

    /// Reads the next chunk and returns the fields that end in it. Content that lies in one chunk is not copied.
    fn chunk(&mut self, shard: &OpenShard, chunk: &Bytes, is_wanted: &IsWanted) -> Vec<FoundField> {
        let (start, end) = (self.bytes, self.bytes + chunk.len() as u64);
        let mut found = Vec::new();
        while let Some(place) = self.next {
            let IndexedField { key, field, segments } = shard.field(place);
            let field_end = field.offset + u64::from(field.bytes);
            let part = field.offset.clamp(start, end)..field_end.clamp(start, end);
            let part = chunk.slice((part.start - start) as usize..(part.end - start) as usize);
            self.crc32c = crc32c::crc32c_append(self.crc32c, &part);
            let is_wanted = is_wanted(key, &field, segments);
            if field_end > end {
                if is_wanted {
                    self.content.extend_from_slice(&part);
                }
                break;
            }
            let content = is_wanted.then(|| {
                if self.content.is_empty() {
                    return part;
                }
                self.content.extend_from_slice(&part);
                self.content.split().freeze()
            });
            let is_right = field.crc32c.is_none_or(|expected| expected == self.crc32c);
            let problem = (!is_right).then(|| other_bytes(&field));
            let content = content.filter(|_| is_right);
            found.push(FoundField { place, problem, content });
            self.crc32c = 0;
            self.next = place.next(shard.index());
        }
        self.bytes = end;
        found
    }

    /// Returns the fields that were not read.
    fn rest(&self, shard: &OpenShard) -> Vec<FieldPlace> {
        std::iter::successors(self.next, |place| place.next(shard.index())).collect()
    }
}

/// Divides the fields of a part into batches.
fn batches(
    shard: &Arc<OpenShard>,
    is_first: bool,
    fields: Vec<FoundField>,
    end: Option<ShardEnd>,
    memory: Memory,
) -> Vec<FieldBatch> {
    let memory = Arc::new(memory);
    let batch = || FieldBatch {
        shard: Arc::clone(shard),
        is_first: false,
        fields: Vec::new(),
        end: None,
        memory: Arc::clone(&memory),
    };
    let (mut batches, mut bytes) = (Vec::new(), 0);
    for field in fields {
        let field_bytes = field.content.as_ref().map_or(0, Bytes::len);
        let is_full =
            |last: &FieldBatch| last.fields.len() == BATCH_FIELDS || bytes > 0 && bytes + field_bytes > BATCH_BYTES;
        if batches.last().is_none_or(is_full) {
            batches.push(batch());
            bytes = 0;
        }
        bytes += field_bytes;
        batches.last_mut().expect("there is a batch").fields.push(field);
    }
    if batches.is_empty() && (is_first || end.is_some()) {
        batches.push(batch());
    }
    if let Some(first) = batches.first_mut() {
        first.is_first = is_first;
    }
    if let Some(last) = batches.last_mut() {
        last.end = end;
    }
    batches
}
