//! Checks of the guarantees that the index of a shard gives in every format.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_shard::{
    format::{DecodedBlock, MadeIndex, OpenError, ShardIndex, format_called},
    manifest::{Manifest, ManifestBuilder, ShardFacts},
};
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the head of a file: `docs/spec/formats.md`.
const HEAD_BYTES: usize = 40;

/// Returns a file with the correct length and checksum.
pub(crate) fn with_checksum(data: &[u8]) -> Vec<u8> {
    let mut file = data.to_vec();
    if file.len() >= HEAD_BYTES {
        let (length, checksum) = (file.len() as u64, xxh3_128(&file[HEAD_BYTES..]));
        file[16..24].copy_from_slice(&length.to_le_bytes());
        file[24..40].copy_from_slice(&checksum.to_le_bytes());
    }
    file
}

/// Opens an index of `format` unchanged, and with the correct length and checksum. Returns the second one if it opens.
pub(crate) fn opened(format: &str, data: &[u8]) -> Option<Arc<dyn ShardIndex>> {
    let format = format_called(format).expect("a format");
    let open = |file: Vec<u8>| {
        let hash = Fingerprint::of(&file);
        format.open_index(file.into(), hash)
    };
    let _ = open(data.to_vec());
    open(with_checksum(data)).ok()
}

/// Returns the manifest of a dataset whose one shard has this index.
pub(crate) fn manifest_of(format: &str, index: &dyn ShardIndex) -> Manifest {
    let mut manifest = ManifestBuilder::new("set").format(format_called(format).expect("a format"));
    let shard = ShardFacts {
        url: "shard".to_owned(),
        bytes: index.shard_bytes(),
        etag: None,
        records: index.record_count(),
        index_bytes: index.bytes().len() as u64,
        index_hash: Fingerprint(0),
    };
    manifest.shard(&shard, &[]).expect("a shard without blocks");
    manifest.finish().expect("a manifest")
}

/// Checks that `range` lies in the shard, and that the plan for it reads exactly its length.
pub(crate) fn check_plan(index: &dyn ShardIndex, manifest: &Manifest, range: &Range<u64>) {
    assert!(range.end <= index.shard_bytes(), "{range:?} of {}", index.shard_bytes());
    let parts = index.plan(&manifest.shard(0), std::slice::from_ref(range));
    let planned: u64 = parts.iter().map(|part| part.range.end - part.range.start).sum();
    assert_eq!(planned, range.end - range.start, "{range:?}");
}

/// Checks that an index that opens can be read from end to end, in a format whose records are decoded as they arrive.
pub(crate) fn decoded_index(format: &str, data: &[u8]) {
    // The file that it describes may have any size, and none of its bytes exist.
    if let Some(index) = opened(format, data) {
        read_decoded(format, &*index, &|_| None);
    }
}

/// Checks that an index that was made for `file` opens, and that the file can be read by it from end to end.
pub(crate) fn decoded_file(format: &str, made: MadeIndex, file: &[u8]) {
    let index = format_called(format).expect("a format").open_index(made.index, made.hash);
    let index = index.expect("an index that was made can be opened");
    read_decoded(format, &*index, &|range| part(file, range));
}

/// Returns a range of a file; `None` if it lies outside the file.
pub(crate) fn part(file: &[u8], range: Range<u64>) -> Option<Bytes> {
    let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
    file.get(range).map(Bytes::copy_from_slice)
}

/// Reads some records of a shard, each field with the bytes that it needs.
fn read_decoded(format: &str, index: &dyn ShardIndex, file: &dyn Fn(Range<u64>) -> Option<Bytes>) {
    let manifest = manifest_of(format, index);
    let fetched = |range: Range<u64>| {
        let mut found = Vec::new();
        for part in index.plan(&manifest.shard(0), std::slice::from_ref(&range)) {
            found.extend_from_slice(&file(part.range)?);
        }
        (found.len() as u64 == range.end - range.start).then(|| Bytes::from(found))
    };
    let Some(last) = index.record_count().checked_sub(1) else { return };
    for number in [0, last / 2, last] {
        let record = index.record(number);
        assert_eq!(index.locate(number), (number, 0));
        assert_ne!(record.fields().len(), 0, "{record:?}");
        let mut decoded: Option<(Range<u64>, Arc<dyn DecodedBlock>)> = None;
        for (nth, field) in (0..).zip(record.fields()) {
            assert_eq!(record.field(field.name), Some(field), "{record:?}");
            let Some(range) = field.range() else { continue };
            // Fields of a record can lie in the same bytes.
            let (_, block) = decoded.take().filter(|(of, _)| *of == range).unwrap_or_else(|| {
                check_plan(index, &manifest, &range);
                let block = index.decode(std::slice::from_ref(&range), &fetched);
                (range.clone(), block.expect("records are decoded"))
            });
            // The field was fetched, so it is there, or its damage is known.
            assert!(!matches!(block.open(number, nth), Err(OpenError::Missing)), "{record:?}");
            decoded = Some((range, block));
        }
    }
}
