//! Formats of other programs: the index of an MDS shard and the values of its samples, compressed shards, TFRecord files.

use bytes::Bytes;
use spdl_shard::format::{
    Compressed, Compression,
    tfrecord::{TfRecordReader, features, value},
};

use crate::{indexes::opened, input::FuzzInput};

/// Checks that the index of an MDS shard that opens can be read from end to end, whatever its samples hold.
pub(crate) fn mds(data: &[u8]) {
    let Some(index) = opened("mds", data) else { return };
    let samples = Bytes::copy_from_slice(data);
    for record in index.records() {
        for field in record.fields() {
            let range = field.range().expect("all values lie in the shard");
            assert!(range.end <= index.shard_bytes(), "{record:?}");
            assert_eq!(record.field(field.name), Some(field), "{record:?}");
            let length = samples.len().min((range.end - range.start) as usize);
            let _ = index.open(&field, &|_| Some(samples.slice(samples.len() - length..)));
        }
    }
    let last = index.sample_count().checked_sub(1);
    assert!(last.is_none_or(|last| index.locate(last) == (last, 0)));
}

/// Most bytes that an input is decompressed to.
const MAX_SHARD_BYTES: u64 = 1 << 20;

/// Checks that no more is decompressed than was indexed, and that the pieces of the object do not matter.
pub(crate) fn decompress(data: &[u8]) {
    let mut input = FuzzInput(data);
    let compression = [
        Compression::Gzip,
        Compression::Zlib,
        Compression::Zstd,
        Compression::Brotli,
        Compression::Bzip2,
        Compression::Snappy,
    ][usize::from(input.byte()) % 6];
    let shard_bytes = u64::from(input.byte()) << (input.byte() % 16);
    let object = Bytes::copy_from_slice(input.0);
    let object_bytes = object.len() as u64;
    let compressed =
        Compressed { compression, object_bytes, shard_bytes: shard_bytes.min(MAX_SHARD_BYTES), checksum: None };
    let whole = compressed.decompress(std::slice::from_ref(&object));
    assert!(whole.as_ref().is_ok_and(|shard| shard.len() as u64 == compressed.shard_bytes) || whole.is_err());
    let middle = object.len() / 2;
    let pieces = [object.slice(..middle), Bytes::new(), object.slice(middle..)];
    assert_eq!(compressed.decompress(&pieces).ok(), whole.ok());
}

pub(crate) fn decompress_seeds() -> Vec<Vec<u8>> {
    let of = |kind: u8, file: &[u8]| [&[kind, 204, 3], file].concat();
    vec![
        of(0, include_bytes!("../../../crates/dataset/tests/golden/tf.tfrecord.gz")),
        of(1, include_bytes!("../../../crates/dataset/tests/golden/tf.tfrecord.zlib")),
    ]
}

/// Checks that a file of records reads the same in chunks of any size, and that features lie in their examples.
pub(crate) fn tfrecord(data: &[u8]) {
    let mut input = FuzzInput(data);
    let chunk_bytes = 1 + usize::from(input.byte());
    let records = |chunk_bytes: usize| {
        let (mut reader, mut found) = (TfRecordReader::default(), Vec::new());
        for chunk in input.0.chunks(chunk_bytes) {
            let keep = |at: u64, record: &[u8]| {
                found.push((at, record.len()));
                Ok::<_, ()>(())
            };
            match reader.read(chunk, keep) {
                Ok(kept) => kept.expect("nothing fails"),
                Err(wrong) => return (found, Err(wrong.offset)),
            }
        }
        (found, reader.finish().map_err(|wrong| wrong.offset))
    };
    let whole = records(usize::MAX);
    assert_eq!(whole, records(chunk_bytes), "chunks of {chunk_bytes} bytes");
    // The bytes after the head of the first record, even if the checksums are wrong.
    let example = input.0.get(12..).unwrap_or_default();
    let Ok(found) = features(example) else { return };
    let mut end = 0;
    for (name, range) in found {
        assert!(range.start >= end && range.end <= example.len());
        end = range.end;
        let _ = value(&name, &Bytes::copy_from_slice(&example[range]));
    }
}

pub(crate) fn tfrecord_seeds() -> Vec<Vec<u8>> {
    let file = include_bytes!("../../../crates/dataset/tests/golden/tf.tfrecord");
    vec![[&[7], &file[..]].concat(), [&[255], &file[..12 + 200]].concat()]
}
