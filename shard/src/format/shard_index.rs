//! The index of a shard: its records, the ranges of bytes that their fields take, and the objects that hold these
//! bytes. Every format has an index of its own behind this trait.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_types::DType;

use super::{Checksum, Compressed, FieldValue, RecordKey, StoredObject};
use crate::{index::Segments, manifest::Shard};

/// Returns the bytes of a range of a shard, if they were fetched.
pub type FetchedBytes<'f> = dyn Fn(Range<u64>) -> Option<Bytes> + 'f;

/// The index of a shard, which was checked when it was opened.
pub trait ShardIndex: fmt::Debug + Send + Sync {
    /// Returns the index's bytes, as they are stored.
    fn bytes(&self) -> &Bytes;

    /// Returns the size in bytes that the shard had when it was indexed.
    fn shard_bytes(&self) -> u64;

    /// Returns the number of records in the shard.
    fn record_count(&self) -> u32;

    /// Returns the number of samples in the shard. Default: every record is one.
    fn sample_count(&self) -> u32 {
        self.record_count()
    }

    /// Returns the number of the record that holds sample number `sample` of the shard, and the sample's number in the
    /// record. Default: every record is one sample.
    ///
    /// # Panics
    /// If the shard has no such sample.
    fn locate(&self, sample: u32) -> (u32, u32) {
        assert!(sample < self.sample_count(), "sample {sample} of {}", self.sample_count());
        (sample, 0)
    }

    /// Returns record number `record` of the shard.
    ///
    /// # Panics
    /// If there is no such record.
    fn record(&self, record: u32) -> Record<'_>;

    /// Returns field number `nth` of `record`, which is a record of this index.
    ///
    /// # Panics
    /// If there is no such field.
    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_>;

    /// Returns the number of the field called `name` in `record`, which is a record of this index.
    fn field_number(&self, record: &Record<'_>, name: &str) -> Option<u32> {
        (0..record.fields).find(|nth| self.field(record, *nth).name == name)
    }

    /// Returns the number of elements of field number `nth` of `record`, if it is an array of one dimension and the index knows
    /// that without its bytes. Then [`open`](Self::open) also takes a [`Field`] that has a part of the bytes, of whole elements.
    fn array_length(&self, _record: &Record<'_>, _nth: u32) -> Option<u64> {
        None
    }

    /// Returns the number of elements of the field called `name` in each of these records, at least one, as
    /// [`array_length`](Self::array_length) does; `None` if the index does not know it, or records have different fields.
    fn array_lengths(&self, _records: Range<u32>, _name: &str) -> Option<Vec<u32>> {
        None
    }

    /// Returns the ranges of the shard that the files of field number `nth` of `record` take, in order, if it is a list of files of which
    /// each can be read alone.
    fn files(&self, _record: &Record<'_>, _nth: u32) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Returns the numbers of the records of the series that record number `record` is of: neighbouring records in one block that
    /// belong together, such as the moments of a recording. Default: `None`, as the shard has no series.
    fn series(&self, _record: u32) -> Option<Range<u32>> {
        None
    }

    /// Returns where the frame of `record` lies whose video field number `nth` names, or what is wrong with it. Default: `None`, as
    /// fields are no frames of videos.
    fn frame(&self, _record: &Record<'_>, _nth: u32) -> Option<Result<StoredFrame, String>> {
        None
    }

    /// Returns the table of segments of field number `nth` of `record`, if it has one.
    fn segments(&self, _record: &Record<'_>, _nth: u32) -> Option<Segments<'_>> {
        None
    }

    /// Returns the table of the sound or the video in field number `nth` of `record`, if its packets were found when it was indexed: where
    /// in the field's bytes each part lies.
    fn packet_table(&self, _record: &Record<'_>, _nth: u32) -> Option<&[u8]> {
        None
    }

    /// Returns the object whose bytes are those of `shard`, or that has them as a part; `None` if they lie in several objects or
    /// are compressed.
    fn object(&self, shard: &Shard<'_>) -> Option<StoredObject> {
        shard.format.object(shard)
    }

    /// Returns where the shard's bytes begin in [its object](Self::object), if they are a part of it. Default: `None`, as they are all
    /// of it.
    fn offset_in_object(&self) -> Option<u64> {
        None
    }

    /// Returns how the object that holds the shard is compressed, if it is. If so, [`plan`](Self::plan) returns all of
    /// that object for any ranges, and its bytes have to be decompressed.
    fn compressed(&self) -> Option<&Compressed> {
        None
    }

    /// Returns the checksum of the shard's bytes, if one was known when it was indexed.
    fn checksum(&self) -> Option<&Checksum> {
        None
    }

    /// Returns whether the bytes in a field's range are its content. If they are not, [`open`](Self::open) needs all of
    /// them to make the content, and fields of a record may share their range.
    fn has_plain_fields(&self) -> bool {
        true
    }

    /// Plans the reading of `ranges` of `shard`: the ranges of objects that hold these bytes, in the order of the
    /// shard's bytes.
    fn plan(&self, shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        plan_of_object(self, shard, ranges)
    }

    /// Returns the parts of `range` of the shard that hold the fields called `fields`, in order. `range` holds whole
    /// records.
    fn project(&self, range: Range<u64>, _fields: &[String]) -> Vec<Range<u64>> {
        vec![range]
    }

    /// Decodes the records whose bytes lie in `ranges` of the shard; `None` if [`open`](Self::open) cuts the fields out
    /// of the bytes as they were fetched. `fetched` returns the bytes of a range of the shard, if they were fetched.
    /// Decoding takes a while.
    fn decode(&self, _ranges: &[Range<u64>], _fetched: &FetchedBytes<'_>) -> Option<Arc<dyn DecodedBlock>> {
        None
    }

    /// Returns the memory that [`decode`](Self::decode) takes for the same ranges, and where the records lie.
    fn decoding(&self, _ranges: &[Range<u64>], _fetched: &FetchedBytes<'_>) -> Decoding {
        Decoding::default()
    }

    /// Returns the value of `field`. `fetched` returns the bytes of a range of the shard, if they were fetched.
    ///
    /// # Errors
    /// If bytes are missing or wrong, or the value cannot be made of them.
    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        stored_bytes(self.bytes(), field, fetched).map(FieldValue::from)
    }
}

/// Plans the reading of `ranges` of a shard that lies in one object.
///
/// # Panics
/// If it lies in several.
pub(super) fn plan_of_object<I: ShardIndex + ?Sized>(
    index: &I,
    shard: &Shard<'_>,
    ranges: &[Range<u64>],
) -> Vec<ObjectRange> {
    let object = index.object(shard).expect("the index of a shard in several objects names them");
    let offset = index.offset_in_object().unwrap_or(0);
    let part = |range: &Range<u64>| ObjectRange {
        object: object.clone(),
        range: offset + range.start..offset + range.end,
        at: range.start,
    };
    // A store refuses to read nothing, which a block of empty records has.
    ranges.iter().filter(|range| !range.is_empty()).map(part).collect()
}

/// Returns the bytes of `field`, which lie in the index's bytes or are fetched.
///
/// # Errors
/// If bytes are missing or wrong.
pub(super) fn stored_bytes(index: &Bytes, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<Bytes, OpenError> {
    if let Some(value) = field.value {
        return Ok(index.slice_ref(value));
    }
    let range = field.offset..field.offset.saturating_add(field.bytes.into());
    let content = fetched(range).ok_or(OpenError::Missing)?;
    match field.crc32c.map(|expected| (expected, crc32c::crc32c(&content))) {
        Some((expected, actual)) if expected != actual => Err(OpenError::Checksum { expected, actual }),
        _ => Ok(content),
    }
}

impl dyn ShardIndex + '_ {
    /// Iterates over all records, in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> + '_ {
        (0..self.record_count()).map(|record| self.record(record))
    }
}

/// The memory that decoding records takes, and where the records lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoding {
    /// The peak of the memory in use, in bytes: the decoded records and what decoding takes beside them, without the
    /// fetched bytes.
    pub bytes: u64,
    /// Where the records lie in the file, for errors, such as `row group 3`.
    pub place: String,
}

/// Decoded records, in which each field has its own content.
pub trait DecodedBlock: fmt::Debug + Send + Sync {
    /// Returns the bytes that the records take in memory.
    fn bytes(&self) -> u64;

    /// Returns a copy of the records with these numbers, so that all others can be dropped. The numbers are sorted, and
    /// each is that of a record of this block.
    fn only(&self, records: &[u32]) -> Arc<dyn DecodedBlock>;

    /// Returns the value of field number `nth` of record number `record` of the shard; `None` if the field has none.
    ///
    /// # Errors
    /// If the field's bytes are missing or damaged.
    fn open(&self, record: u32, nth: u32) -> Result<Option<FieldValue>, OpenError>;

    /// Returns the value of field number `nth` of record number `record` of the shard, if it is a number: its type, and
    /// its bytes, which are those of [`open`](Self::open).
    fn number(&self, record: u32, nth: u32) -> Option<(DType, &[u8])>;

    /// Returns the values of field number `nth` of records around record number `record` of the shard, if they are numbers
    /// that lie side by side.
    fn numbers(&self, record: u32, nth: u32) -> Option<NumberRun<'_>>;
}

/// The values of a field of neighbouring records, all of them numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRun<'a> {
    /// Their type.
    pub dtype: DType,
    /// Numbers of the records in the shard.
    pub records: Range<u32>,
    /// The values, little-endian.
    pub elements: &'a [u8],
}

impl NumberRun<'_> {
    /// Returns the value of record number `record` of the shard.
    ///
    /// # Panics
    /// If the record is not one of [`records`](Self::records).
    #[must_use]
    pub fn element(&self, record: u32) -> &[u8] {
        let width = self.dtype.bytes();
        &self.elements[(record - self.records.start) as usize * width..][..width]
    }
}

/// A frame of a video that a shard's records refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Where the video lies in the shard's space of bytes: outside of all blocks.
    pub video: Range<u64>,
    /// The number of the frame in the video, from 0, in the order in which frames are shown.
    pub number: u64,
    /// Frames of a second.
    pub fps: u32,
}

/// A range of an object, and the place of its bytes in the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRange {
    /// The object.
    pub object: StoredObject,
    /// The range in the object, in bytes.
    pub range: Range<u64>,
    /// Offset in the shard of the first byte of the range.
    pub at: u64,
}

/// Why a field cannot be opened from the bytes that were fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The bytes are not among those that were fetched.
    Missing,
    /// The bytes are not those that were indexed.
    Checksum {
        /// CRC-32C in the index.
        expected: u32,
        /// CRC-32C of the bytes.
        actual: u32,
    },
    /// The bytes are invalid in the shard's format.
    Malformed(String),
    /// The bytes do not decode.
    Damaged {
        /// What is wrong, and where.
        problem: Arc<str>,
        /// CRC-32C of the bytes.
        checksum: u32,
    },
}

/// One record of a shard.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub(crate) index: &'a dyn ShardIndex,
    /// Number of the record in the index.
    pub(crate) number: u32,
    /// The record's key: the path that its files have in common, up to the first dot of the file's name, or the number of
    /// the record in its shard.
    pub key: RecordKey<'a>,
    /// The record's first sample, counted in the shard.
    pub first_sample: u32,
    /// Samples in the record; 0 where an annotation has no objects.
    pub samples: u32,
    /// Number of the record's first field in the index.
    pub(crate) first_field: u32,
    pub(crate) fields: u32,
}

/// One field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name, such as `jpg` or `cls`.
    pub name: &'a str,
    /// Offset of its bytes in the shard; 0 if the index holds its value.
    pub offset: u64,
    /// Its size in bytes; 0 for an empty file, which the decoder treats as a bad sample.
    pub bytes: u32,
    /// Number of records whose values lie in the same bytes: 1 where each value has bytes of its own.
    pub shared_by: u32,
    /// CRC-32C of its bytes; `None` if they were not read when the dataset was indexed.
    pub crc32c: Option<u32>,
    /// Its bytes, if they lie in the index and not in the shard.
    pub value: Option<&'a [u8]>,
}

impl Field<'_> {
    /// Returns the range of the shard's bytes that the field takes; `None` if the index holds its value.
    #[must_use]
    pub const fn range(&self) -> Option<Range<u64>> {
        match self.value {
            None => Some(self.offset..self.offset.saturating_add(self.bytes as u64)),
            Some(_) => None,
        }
    }
}

impl<'a> Record<'a> {
    /// Returns record number `number` of an index in which every record is one sample, has `fields` fields, and has
    /// `prefix` followed by its number as key.
    ///
    /// # Panics
    /// If there is no such record.
    pub(super) fn numbered(index: &'a dyn ShardIndex, number: u32, prefix: &'a str, fields: usize) -> Self {
        assert!(number < index.record_count(), "record {number} of {}", index.record_count());
        let (key, fields) = (RecordKey::Numbered(prefix, number.into()), fields as u32);
        Self { index, number, key, first_sample: number, samples: 1, first_field: 0, fields }
    }

    /// Returns the number of the record in its shard.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Iterates over the record's fields, in the order in which they lie in the shard.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let record = *self;
        (0..record.fields).map(move |nth| record.index.field(&record, nth))
    }

    /// Returns the field called `name`, if there is one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.index.field_number(self, name).map(|nth| self.index.field(self, nth))
    }

    /// Returns the table of segments of the field called `name`, if it has one.
    #[must_use]
    pub fn segments(&self, name: &str) -> Option<Segments<'a>> {
        self.index.segments(self, self.index.field_number(self, name)?)
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("samples", &self.samples)
            .field("fields", &self.fields().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
