//! TFRecord files of `tf.train.Example` and `tf.train.SequenceExample`: a file has no index, so that all of it is read once, when
//! it is indexed.
//!
//! A field is a feature of the example, or a list of features. Its range is that of its message. Opening the field
//! makes its content from the message: the bytes of a byte string, a list of several byte strings, or an array of a
//! list of numbers.

mod example;
mod frame;

pub use example::features;
pub use example::value;
pub(super) use example::{feature_named, is_example};
pub use frame::{TfRecordReader, WrongFrame, begins_with_record};

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{
    FetchedBytes, Field, FieldValue, Format, OpenError, Record, ShardIndex, StoredObject, compressed,
    shard_index::stored_bytes,
};
use crate::{FormatError, index::RecordIndex, manifest::Shard};

/// TFRecord files of examples.
#[derive(Debug)]
pub struct TfRecord;

impl Format for TfRecord {
    fn name(&self) -> &'static str {
        "tfrecord"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        compressed::open_index(bytes, expected, |bytes, expected| RecordIndex::open(bytes, expected).map(ExampleIndex))
    }
}

/// The record index of a file of examples, whose fields are the messages of features.
#[derive(Debug)]
struct ExampleIndex(RecordIndex);

impl ShardIndex for ExampleIndex {
    fn bytes(&self) -> &Bytes {
        self.0.bytes()
    }

    fn shard_bytes(&self) -> u64 {
        self.0.shard_bytes()
    }

    fn record_count(&self) -> u32 {
        self.0.record_count()
    }

    fn sample_count(&self) -> u32 {
        self.0.sample_count()
    }

    fn locate(&self, sample: u32) -> (u32, u32) {
        self.0.locate(sample)
    }

    fn record(&self, record: u32) -> Record<'_> {
        self.0.record(record)
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        self.0.field(record, nth)
    }

    fn object(&self, shard: &Shard<'_>) -> Option<StoredObject> {
        Some(StoredObject::of_shard(shard))
    }

    fn has_plain_fields(&self) -> bool {
        false
    }

    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        let message = stored_bytes(self.bytes(), field, fetched)?;
        example::value(field.name, &message).map_err(OpenError::Malformed)
    }
}
