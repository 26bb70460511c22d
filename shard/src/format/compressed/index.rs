//! The index of a compressed shard: the facts about the object, then the index of the decompressed bytes.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_store::TemporaryError;
use spdl_types::Fingerprint;

use super::{Checksum, Compressed, Compression, MAX_COMPRESSED_SHARD_BYTES};
use crate::{
    FormatError,
    envelope::{FileKind, check_expected, u32_at, u64_at, wrong},
    format::{FetchedBytes, Field, FieldValue, ObjectRange, ObjectRole, OpenError, Record, ShardIndex, StoredObject},
    index::{IndexFile, Segments},
    manifest::Shard,
};

const KIND: FileKind =
    FileKind { name: "index of a compressed shard", magic: *b"SPDLCMP\n", version: 1, header_bytes: HEADER_BYTES };
const HEADER_BYTES: usize = 56;

/// The index of a compressed shard.
#[derive(Debug)]
struct CompressedIndex {
    bytes: Bytes,
    object: Compressed,
    shard: Arc<dyn ShardIndex>,
}

/// Opens the index of a shard that may be compressed; `open` opens the index of the decompressed bytes.
pub(in crate::format) fn open_index<I: ShardIndex + 'static>(
    bytes: Bytes,
    expected: Fingerprint,
    open: impl FnOnce(Bytes, Fingerprint) -> Result<I, FormatError>,
) -> Result<Arc<dyn ShardIndex>, FormatError> {
    if !bytes.starts_with(&KIND.magic) {
        return Ok(Arc::new(open(bytes, expected)?));
    }
    check_expected(&KIND, &bytes, expected)?;
    let (object_bytes, compression, checksum_bytes) = (u64_at(&bytes, 40), u32_at(&bytes, 48), u32_at(&bytes, 52));
    let compression = Compression::numbered(compression).ok_or_else(|| wrong("its compression is unknown"))?;
    let (head, inner) = bytes
        .split_at_checked(HEADER_BYTES.saturating_add(checksum_bytes as usize))
        .ok_or_else(|| wrong("its checksum does not fit into it"))?;
    let checksum = match &head[HEADER_BYTES..] {
        [] => None,
        text => {
            let checksum = std::str::from_utf8(text).ok().and_then(Checksum::read);
            Some(checksum.ok_or_else(|| wrong("its checksum is unknown"))?)
        }
    };
    let inner = bytes.slice_ref(inner);
    let hash = Fingerprint::of(&inner);
    let shard = Arc::new(open(inner, hash)?);
    let shard_bytes = shard.shard_bytes();
    if object_bytes.max(shard_bytes) > MAX_COMPRESSED_SHARD_BYTES {
        return Err(wrong("it claims a compressed shard of more than 1 GiB"));
    }
    let object = Compressed { compression, object_bytes, shard_bytes, checksum };
    Ok(Arc::new(CompressedIndex { bytes, object, shard }))
}

/// Returns the index of a compressed shard; `shard` is the index of the decompressed bytes.
///
/// # Errors
/// If a temporary file cannot be written or read.
pub fn seal_index(object: &Compressed, shard: IndexFile) -> Result<IndexFile, TemporaryError> {
    let checksum = object.checksum.as_ref().map(Checksum::text).unwrap_or_default();
    let mut facts = object.object_bytes.to_le_bytes().to_vec();
    facts.extend(object.compression.number().to_le_bytes());
    facts.extend((checksum.len() as u32).to_le_bytes());
    facts.extend_from_slice(checksum.as_bytes());
    shard.enclosed(&KIND, facts)
}

impl ShardIndex for CompressedIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        self.object.shard_bytes
    }

    fn record_count(&self) -> u32 {
        self.shard.record_count()
    }

    fn sample_count(&self) -> u32 {
        self.shard.sample_count()
    }

    fn locate(&self, sample: u32) -> (u32, u32) {
        self.shard.locate(sample)
    }

    fn record(&self, record: u32) -> Record<'_> {
        self.shard.record(record)
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        self.shard.field(record, nth)
    }

    fn segments(&self, record: &Record<'_>, nth: u32) -> Option<Segments<'_>> {
        self.shard.segments(record, nth)
    }

    fn object(&self, _shard: &Shard<'_>) -> Option<StoredObject> {
        None
    }

    fn compressed(&self) -> Option<&Compressed> {
        Some(&self.object)
    }

    fn has_plain_fields(&self) -> bool {
        self.shard.has_plain_fields()
    }

    fn plan(&self, shard: &Shard<'_>, _ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        let has_checksum = self.object.checksum.is_some()
            || self.record_count() > 0 && self.record(0).fields().any(|field| field.crc32c.is_some());
        let role = if has_checksum { ObjectRole::Shard } else { ObjectRole::File };
        let bytes = self.object.object_bytes;
        let object = StoredObject { bytes, role, ..StoredObject::of_shard(shard) };
        vec![ObjectRange { object, range: 0..bytes, at: 0 }]
    }

    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        self.shard.open(field, fetched)
    }
}
