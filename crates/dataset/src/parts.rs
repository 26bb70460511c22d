//! Divides a shard into the parts in which it is read: ranges of its object, or files. A field that is needed as a whole
//! lies in one part, and so does every field that is no longer than a range.

use std::{ops::Range, sync::Arc};

use object_store::{ObjectMeta, ObjectStoreExt};
use spdl_shard::{
    format::{Field, Record, RecordKey, ShardIndex},
    index::Segments,
    manifest::{Block, Manifest, Shard},
    store::DatasetStore,
};
use spdl_store::{RANGE_BYTES, StoreError};

use super::stages::Memory;

/// Number of files that are one part, and that are read at once.
pub(super) const PART_FILES: usize = 8;
/// Size of the longest field that is read as a whole, in bytes. Longer ones come in pieces whatever is wanted.
pub(super) const MAX_WHOLE_BYTES: u64 = 50 << 20;

/// The content of a field that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedContent {
    /// None of it: only its checksum is compared.
    Nothing,
    /// All of it. If the field is longer than a range, it comes in pieces.
    Pieces,
    /// All of it, as a whole if it has at most [`MAX_WHOLE_BYTES`].
    Whole,
}

/// Decides by key, field and segments which content of a field is wanted.
pub(super) type WantedOf = dyn Fn(RecordKey<'_>, &Field<'_>, Option<Segments<'_>>) -> WantedContent + Send + Sync;

/// A shard that is read.
pub(super) struct ReadShard {
    manifest: Arc<Manifest>,
    number: u32,
    /// The object that holds the shard, if it is a single one.
    pub(super) object: Option<ObjectMeta>,
    /// Its index; `None` if the shard cannot be opened.
    pub(super) index: Option<Arc<dyn ShardIndex>>,
    /// Memory that is held until the index is no longer needed.
    _memory: Memory,
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
    pub(super) key: RecordKey<'i>,
    pub(super) field: Field<'i>,
    /// The table of segments, if the field is a crop-ready picture.
    pub(super) segments: Option<Segments<'i>>,
}

/// A part of a shard.
pub(super) struct ShardPart {
    pub(super) shard: Arc<ReadShard>,
    pub(super) is_last: bool,
    pub(super) content: PartContent,
}

pub(super) enum PartContent {
    /// A range of the shard, which lies in one object.
    Range(Range<u64>),
    /// The object that becomes the whole shard, of this many bytes, when it is decompressed.
    Compressed(u64),
    /// Files of a shard that consists of several.
    Files(Vec<FieldPlace>),
    /// A range of a file of such a shard.
    Piece(FieldPlace, Range<u64>),
    /// So many fields whose files are those of records before, which were read already.
    Repeated(u64),
    /// A block whose records are decoded together: their numbers, and the block's range in the shard.
    Block(Range<u32>, Range<u64>),
    /// The shard has nothing to read, or cannot be opened.
    Nothing(Option<StoreError>),
}

impl ShardPart {
    /// Returns the number of bytes that are read.
    pub(super) fn bytes(&self) -> u64 {
        match &self.content {
            PartContent::Range(range) | PartContent::Piece(_, range) | PartContent::Block(_, range) => {
                range.end - range.start
            }
            PartContent::Compressed(bytes) => *bytes,
            PartContent::Files(places) => places.iter().map(|place| self.shard.field(*place).bytes()).sum(),
            PartContent::Repeated(_) | PartContent::Nothing(_) => 0,
        }
    }
}

impl ReadShard {
    /// Returns shard `number` before it is [opened](Self::open); `memory` is that of its index.
    pub(super) fn new(manifest: &Arc<Manifest>, number: u32, memory: Memory) -> Self {
        Self { manifest: Arc::clone(manifest), number, object: None, index: None, _memory: memory }
    }

    /// Returns the shard's entry in the manifest.
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

    pub(super) async fn open(&mut self, store: &DatasetStore) -> Result<(), StoreError> {
        let manifest = Arc::clone(&self.manifest);
        let shard = manifest.shard(self.number);
        let object = shard.format.object(&shard);
        if let Some(object) = &object {
            self.object = Some(head(store, &object.url).await?);
        }
        let index = store.index(&shard).await?;
        if let (None, Some(object)) = (object, index.object(&shard)) {
            self.object = Some(head(store, &object.url).await?);
        }
        self.index = Some(index);
        Ok(())
    }

    /// Plans the parts of the shard.
    pub(super) fn parts(&self, wanted: &WantedOf) -> Vec<PartContent> {
        match &self.object {
            Some(meta) => self.ranges(self.bytes_in(meta), wanted).into_iter().map(PartContent::Range).collect(),
            None if self.index().compressed().is_some() => vec![PartContent::Compressed(self.shard().bytes)],
            None if self.shard().format.is_columnar() => self.blocks(),
            None => self.files(wanted),
        }
    }

    /// Returns the number of the shard's bytes that its object has: all of the object's, unless the shard is a part of it.
    fn bytes_in(&self, object: &ObjectMeta) -> u64 {
        let index = self.index();
        let part = |offset| object.size.saturating_sub(offset).min(index.shard_bytes());
        index.offset_in_object().map_or(object.size, part)
    }

    /// Divides the `bytes` of the shard into ranges.
    fn ranges(&self, bytes: u64, wanted: &WantedOf) -> Vec<Range<u64>> {
        if bytes <= RANGE_BYTES {
            // A web server may support no ranges.
            return spdl_store::split(0..bytes).collect();
        }
        let (mut ranges, mut start) = (Vec::new(), 0);
        for field in FieldPlace::all(self.index()).map(|place| self.field(place)) {
            let Some(range) = field.field.range().filter(|range| range.end <= bytes) else { continue };
            if range.end <= start + RANGE_BYTES {
                continue;
            }
            ranges.extend(spdl_store::split(start..range.start));
            start = range.start;
            if field.bytes() > RANGE_BYTES {
                start = range.end;
                match self.is_read_whole(&field, wanted) {
                    true => ranges.push(range),
                    false => ranges.extend(spdl_store::split(range)),
                }
            }
        }
        ranges.extend(spdl_store::split(start..bytes));
        ranges
    }

    /// Returns whether a field that is longer than a range is read as a whole. One whose content has to be made of its
    /// bytes always is.
    fn is_read_whole(&self, field: &IndexedField<'_>, wanted: &WantedOf) -> bool {
        let is_wanted = wanted(field.key, &field.field, field.segments) == WantedContent::Whole;
        !self.index().has_plain_fields() || field.bytes() <= MAX_WHOLE_BYTES && is_wanted
    }

    /// Returns whether a field is a list of files whose content is wanted, which is made of all of its bytes.
    fn is_wanted_list(&self, place: FieldPlace, field: &IndexedField<'_>, wanted: &WantedOf) -> bool {
        wanted(field.key, &field.field, field.segments) != WantedContent::Nothing
            && self.index().files(&self.index().record(place.record), place.nth).is_some()
    }

    /// Returns whether a field is a file of the record before, so that it is checked already, and its content is not wanted.
    fn is_read_before(&self, place: FieldPlace, field: &IndexedField<'_>, wanted: &WantedOf) -> bool {
        let Some(before) = place.record.checked_sub(1).filter(|_| field.field.shared_by > 1) else { return false };
        let is_same = |other: Field<'_>| other.range() == field.field.range() && other.name == field.field.name;
        wanted(field.key, &field.field, field.segments) == WantedContent::Nothing
            && field.bytes() > 0
            && self.index().record(before).fields().any(is_same)
    }

    fn blocks(&self) -> Vec<PartContent> {
        let blocks = self.manifest.shard_blocks(self.number).map(|number| self.manifest.block(number));
        let part = |block: Block| {
            let records = block.first_record..block.first_record + block.records;
            PartContent::Block(records, block.offset..block.offset + block.bytes)
        };
        blocks.map(part).collect()
    }

    /// Divides the files of the shard into parts.
    fn files(&self, wanted: &WantedOf) -> Vec<PartContent> {
        let (mut parts, mut files, mut bytes, mut repeated) = (Vec::new(), Vec::new(), 0, 0);
        for place in FieldPlace::all(self.index()) {
            let field = self.field(place);
            if self.is_read_before(place, &field, wanted) {
                repeated += 1;
                continue;
            }
            let is_full = files.len() == PART_FILES || bytes + field.bytes() > RANGE_BYTES;
            if is_full && !files.is_empty() {
                parts.push(PartContent::Files(std::mem::take(&mut files)));
                bytes = 0;
            }
            match field.field.range() {
                Some(range)
                    if field.bytes() > RANGE_BYTES
                        && !self.is_read_whole(&field, wanted)
                        && !self.is_wanted_list(place, &field, wanted) =>
                {
                    parts.extend(spdl_store::split(range).map(|range| PartContent::Piece(place, range)));
                }
                _ => {
                    files.push(place);
                    bytes += field.bytes();
                }
            }
        }
        if !files.is_empty() {
            parts.push(PartContent::Files(files));
        }
        if repeated > 0 {
            parts.push(PartContent::Repeated(repeated));
        }
        parts
    }
}

/// Asks the store for the facts about an object of the dataset.
async fn head(store: &DatasetStore, url: &str) -> Result<ObjectMeta, StoreError> {
    let meta = store.object().head(&store.path_of(url)).await;
    meta.map_err(|source| StoreError::of(&store.url_of(url), source))
}

impl IndexedField<'_> {
    /// Returns the number of bytes of the field in the store.
    fn bytes(&self) -> u64 {
        self.field.range().map_or(0, |range| range.end - range.start)
    }
}

impl FieldPlace {
    /// Iterates over the fields of a shard, in the order of its bytes.
    fn all(index: &dyn ShardIndex) -> impl Iterator<Item = Self> {
        std::iter::successors(Self::of_record(index, 0), |place| place.next(index))
    }

    /// Returns the numbers of the record and of the field in it.
    pub(super) const fn numbers(self) -> (u32, u32) {
        (self.record, self.nth)
    }

    /// Returns the first field of record number `record` or a later one.
    pub(super) fn of_record(index: &dyn ShardIndex, record: u32) -> Option<Self> {
        let mut records = record..index.record_count();
        let record = records.find(|record| index.record(*record).fields().len() > 0)?;
        Some(Self { record, nth: 0 })
    }

    pub(super) fn next(self, index: &dyn ShardIndex) -> Option<Self> {
        let record: Record<'_> = index.record(self.record);
        match self.nth + 1 {
            nth if (nth as usize) < record.fields().len() => Some(Self { nth, ..self }),
            _ => Self::of_record(index, self.record + 1),
        }
    }
}
