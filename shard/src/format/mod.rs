//! Formats: how the bytes of stored objects become records.
//!
//! A shard is a space of bytes that holds records. A [`Format`] knows which objects those bytes lie in and opens the
//! shard's index; a [`ShardIndex`] lists which records the shard has, which ranges of bytes a record's fields take, and
//! turns the fetched bytes into a field's content. All else works with these two traits and knows no format by name.
//!
//! A new format is a module here and an entry in the table `FORMATS`, and finds its shards in a module of `spdl-dataset`.

pub mod array_record;
mod checksum;
mod compressed;
mod content;
pub mod files;
pub mod lerobot;
mod made_index;
pub mod mds;
pub mod megatron;
mod npy;
pub mod parquet;
mod protobuf;
mod record_key;
mod shard_index;
pub mod tar;
pub mod tfrecord;
pub mod token_files;
pub mod token_index;

pub use checksum::{Checksum, ChecksumHasher};
pub use compressed::{Compressed, Compression, CompressionError, Decompressor, MAX_COMPRESSED_SHARD_BYTES, seal_index};
pub use content::{Array, Content, FieldValue, MAX_LIST_FILES, NotOneValue};
pub use made_index::MadeIndex;
pub use record_key::{KEY_NAME, RecordKey, SHARD_NAME};
pub use shard_index::{
    DecodedBlock, Decoding, FetchedBytes, Field, NumberRun, ObjectRange, OpenError, Record, ShardIndex, StoredFrame,
};

use std::{fmt, sync::Arc};

use bytes::Bytes;
use spdl_types::Fingerprint;

use crate::{FormatError, manifest::Shard};

/// All formats.
static FORMATS: [&dyn Format; 10] = [
    &tar::Tar,
    &mds::Mds,
    &lerobot::LeRobot,
    &parquet::Parquet,
    &tfrecord::TfRecord,
    &array_record::ArrayRecord,
    &megatron::Megatron,
    &token_files::Datatrove,
    &token_files::RawTokens,
    &files::LooseFiles,
];

/// The format of manifests that name none.
pub const DEFAULT_FORMAT: &dyn Format = &tar::Tar;

/// A format of datasets.
pub trait Format: fmt::Debug + Send + Sync {
    /// Returns the name, as in the manifest and on the command line.
    fn name(&self) -> &'static str;

    /// Returns the object that holds the bytes of `shard`; `None` if finding them takes the shard's index, because they
    /// may lie in several objects or be compressed.
    fn object(&self, _shard: &Shard<'_>) -> Option<StoredObject> {
        None
    }

    /// Returns whether the records of a block are decoded when the block arrives. If so, a job reads only the fields
    /// that its columns name, where these lie apart in the store.
    fn is_columnar(&self) -> bool {
        false
    }

    /// Returns whether [records belong together](ShardIndex::series), so that columns can have values of the records around a sample.
    fn has_series(&self) -> bool {
        false
    }

    /// Opens the index of a shard, whose hash in the manifest is `expected`, and checks all of it.
    ///
    /// # Errors
    /// If the bytes are not a complete, undamaged and consistent index, or if they are another index.
    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError>;
}

impl PartialEq for dyn Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Format {}

/// An object that holds bytes of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Path of the object, relative to the manifest's folder, with `/` between parts.
    pub url: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Etag when the dataset was indexed; `None` if the store gave none, or one that changes when the dataset is copied.
    pub etag: Option<String>,
    /// The object's role in its shard.
    pub role: ObjectRole,
}

/// The role of an object in its shard, which decides how a change of the object is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRole {
    /// The shard itself. The index has a checksum of each field, so a different etag alone does not prove a change: a
    /// copy may have a different one.
    Shard,
    /// A file whose content has no checksum: a different size or etag means that it changed.
    File,
}

impl ObjectRole {
    /// Returns the noun for an object of this role.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::File => "file",
        }
    }
}

impl StoredObject {
    /// Returns the object that is `shard`.
    #[must_use]
    pub fn of_shard(shard: &Shard<'_>) -> Self {
        let (url, etag) = (shard.url.to_owned(), shard.etag.map(str::to_owned));
        Self { url, bytes: shard.bytes, etag, role: ObjectRole::Shard }
    }

    /// Returns the object of `bytes` at the place of `shard`, which holds the shard's bytes in another order or form.
    /// Only its size and etag show whether it changed.
    fn of_file(shard: &Shard<'_>, bytes: u64) -> Self {
        Self { bytes, role: ObjectRole::File, ..Self::of_shard(shard) }
    }

    /// Returns how the object in the store differs from what was indexed, first as the manifest and then as the
    /// store describes it; `None` if nothing shows a difference.
    #[must_use]
    pub fn change(&self, bytes: u64, etag: Option<&str>) -> Option<[String; 2]> {
        if bytes != self.bytes {
            return Some([self.bytes, bytes].map(|bytes| format!("{bytes} bytes")));
        }
        let etags = [self.etag.as_deref()?, etag?];
        (self.role == ObjectRole::File && etags[0] != etags[1]).then(|| etags.map(|etag| format!("etag {etag}")))
    }
}

/// Returns the format called `name`.
#[must_use]
pub fn format_called(name: &str) -> Option<&'static dyn Format> {
    FORMATS.into_iter().find(|format| format.name() == name)
}

/// Iterates over the names of all formats.
pub fn format_names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_found_by_its_name_and_no_two_have_the_same() {
        for format in FORMATS {
            assert_eq!(format_called(format.name()).map(Format::name), Some(format.name()));
            assert_eq!(format_names().filter(|name| *name == format.name()).count(), 1);
        }
        assert!(format_called("").is_none());
    }

    #[test]
    fn another_etag_proves_a_change_only_where_there_is_no_checksum() {
        let object = |role| StoredObject { url: "a".into(), bytes: 3, etag: Some("x".into()), role };
        for role in [ObjectRole::Shard, ObjectRole::File] {
            assert_eq!(object(role).change(3, Some("x")), None);
            assert_eq!(object(role).change(3, None), None);
            assert_eq!(object(role).change(4, Some("x")), Some(["3 bytes".into(), "4 bytes".into()]));
        }
        assert_eq!(object(ObjectRole::Shard).change(3, Some("y")), None);
        assert_eq!(object(ObjectRole::File).change(3, Some("y")), Some(["etag x".into(), "etag y".into()]));
    }
}
