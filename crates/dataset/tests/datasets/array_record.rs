//! ArrayRecord files: those that Google's `array_record` 0.8.6 wrote (`tests/interop/examples.py golden`), and damaged ones.

use std::{fs, ops::Range, path::Path, sync::atomic::Ordering::Relaxed};

use crate::{counting::counted, in_memory::decoded};
use bytes::Bytes;
use highway::{HighwayHash as _, HighwayHasher, Key};
use proptest::prelude::*;
use spdl_dataset::{DatasetError, DatasetReport, IndexOptions, Overwrite, index, unpack};
use spdl_shard::format::{
    FieldValue, OpenError, ShardIndex,
    array_record::{Footer, LAST_BLOCK_BYTES, RecordFields, fields_of, footer_range},
    format_called,
};
use spdl_types::Fingerprint;

use crate::files::{at, faults};

const BLOCK_BYTES: u64 = 1000;

/// Returns a file that `array_record` wrote, by the name of its options.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = format!("tests/golden/array_record/{name}.zst");
    zstd::decode_all(fs::File::open(path).unwrap()).unwrap()
}

/// The record that each of the files has with this number, except those of examples.
fn record(number: usize, is_long: bool) -> Vec<u8> {
    let length = match number {
        3 => 0,
        5 if is_long => 150_000,
        _ => number * 37 % 500,
    };
    (0..length).map(|at| (number * 31 + at * 7) as u8).collect()
}

const RECORDS: usize = 24;
/// Files of these records, and whether one is long.
const FILES: [(&str, bool); 6] =
    [("single", false), ("plain", true), ("zstd", true), ("brotli", false), ("snappy", false), ("padded", false)];

async fn indexed(folder: &Path) -> Result<DatasetReport, DatasetError> {
    let options =
        IndexOptions { overwrite: Overwrite::Replace, block_bytes: Some(BLOCK_BYTES), ..IndexOptions::default() };
    index(&at(folder), &at(folder), &options, &|_| {}).await
}

#[tokio::test]
async fn every_record_is_read_whatever_the_options_of_the_writer_are() {
    for (name, is_long) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let (dataset, unpacked) = (folder.path().join("dataset"), folder.path().join("unpacked"));
        fs::create_dir(&dataset).unwrap();
        fs::write(dataset.join("a.array_record"), golden(name)).unwrap();
        let report = indexed(&dataset).await.unwrap();
        assert_eq!((report.records, report.samples, report.shards), (24, 24, 1), "{name}");
        assert_eq!(report.fields.keys().collect::<Vec<_>>(), ["record"]);
        assert!(report.uncounted_fields.is_empty(), "{report:?}");
        assert!(report.blocks > 2, "{name}: {report:?}");
        assert_eq!(at(&dataset).manifest().await.unwrap().format().name(), "array_record");
        assert_eq!(faults(&dataset).await, Vec::<String>::new(), "{name}");
        unpack(&at(&dataset), &unpacked, &|_| {}).await.unwrap();
        for number in 0..RECORDS {
            let file = fs::read(unpacked.join(format!("a.array_record/{number:06}.record"))).unwrap();
            assert!(file == record(number, is_long), "{name}: record {number}");
        }
    }
}

#[tokio::test]
async fn records_that_are_examples_have_their_features_as_fields() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.array_record-00000-of-00001"), golden("examples")).unwrap();
    let report = indexed(folder.path()).await.unwrap();
    assert_eq!((report.records, report.fields.len()), (8, 7), "{report:?}");
    assert!(report.fields.keys().eq(&report.uncounted_fields), "which records have which is seen when they are read");
    let other = tempfile::tempdir().unwrap();
    let unpacked = [other.path().join("array_record"), other.path().join("tfrecord")];
    unpack(&at(folder.path()), &unpacked[0], &|_| {}).await.unwrap();
    // The same examples in a TFRecord file.
    let same = tempfile::tempdir().unwrap();
    fs::copy("tests/golden/tf.tfrecord", same.path().join("a.tfrecord")).unwrap();
    index(&at(same.path()), &at(same.path()), &IndexOptions::default(), &|_| {}).await.unwrap();
    unpack(&at(same.path()), &unpacked[1], &|_| {}).await.unwrap();
    let mut files = 0;
    for entry in fs::read_dir(unpacked[1].join("a.tfrecord")).unwrap() {
        let theirs = entry.unwrap();
        let ours = unpacked[0].join("a.array_record-00000-of-00001").join(theirs.file_name());
        assert_eq!(fs::read(&ours).unwrap(), fs::read(theirs.path()).unwrap(), "{ours:?}");
        files += 1;
    }
    assert_eq!(files, 8 * 6, "the seventh is an empty list");
}

#[tokio::test]
async fn only_the_end_of_a_file_and_its_first_records_are_read_to_index_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = golden("padded");
    fs::write(folder.path().join("a.array_record"), &file).unwrap();
    let (from, bytes) = counted(at(folder.path()), "");
    let report = index(&from, &at(folder.path()), &IndexOptions::default(), &|_| {}).await.unwrap();
    assert_eq!((report.records, report.blocks), (24, 1));
    let read = bytes.load(Relaxed);
    // The last block, the footer with what fills up its block, and the first chunk with what fills up its own.
    assert!(read > 0 && read <= 3 * LAST_BLOCK_BYTES, "{read} of {} bytes", file.len());
}

#[tokio::test]
async fn files_of_any_name_are_read_where_the_format_is_given_and_empty_ones_have_no_records() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-0"), golden("single")).unwrap();
    fs::write(folder.path().join("train-1"), golden("empty")).unwrap();
    fs::write(folder.path().join("train-2"), golden("examples")).unwrap();
    assert!(indexed(folder.path()).await.is_err(), "nothing says what these are");
    let options = IndexOptions {
        format: format_called("array_record"),
        overwrite: Overwrite::Replace,
        ..IndexOptions::default()
    };
    let store = at(folder.path());
    let report = index(&store, &store, &options, &|_| {}).await.unwrap();
    assert_eq!((report.records, report.shards, report.fields["record"], report.fields["label"]), (32, 3, 24, 8));
    // What a first command wrote is in no dataset.
    assert_eq!(index(&store, &store, &options, &|_| {}).await.unwrap().shards, 3);
    assert_eq!(faults(folder.path()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_transposed_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.array_record"), golden("transposed")).unwrap();
    let error = indexed(folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("a.array_record` was written with `transpose:true`"), "{error}");
    // A chunk can be transposed where the footer does not have it.
    let mut chunk = golden("single");
    chunk[64 + 24] = b't';
    rehash(&mut chunk, 64);
    fs::write(folder.path().join("a.array_record"), chunk).unwrap();
    let error = indexed(folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("chunk 0 at byte 64 was written with `transpose:true`"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_cut_off_or_another_one_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.array_record");
    let file = golden("plain");
    for length in [0, 1, 65_535, 65_536, 131_072, 200_000, file.len() - 1] {
        fs::write(&path, &file[..length]).unwrap();
        let error = indexed(folder.path()).await.unwrap_err().to_string();
        assert!(error.contains("a.array_record` is cut off, or no ArrayRecord file"), "{length}: {error}");
    }
    fs::write(&path, vec![b'x'; 1 << 17]).unwrap();
    let error = indexed(folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("the chunk in its last 64 KiB has a header whose checksum is wrong"), "{error}");
}

#[tokio::test]
async fn damage_is_found_by_the_name_of_its_records_and_their_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.array_record");
    let file = golden("plain");
    fs::write(&path, &file).unwrap();
    indexed(folder.path()).await.unwrap();
    // In the first chunk, which ends in the third block of the file.
    let mut damaged = file.clone();
    let long = file.windows(4).position(|bytes| bytes == &record(5, true)[..4]).unwrap();
    damaged[long] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let found = faults(folder.path()).await;
    assert_eq!(found.len(), 7, "the records of a chunk: {found:?}");
    let problem =
        "field `record` (chunk 0, byte 64): its chunk has other bytes than were written: its checksum is wrong";
    assert!(found[5].contains("a.array_record/000005") && found[5].contains(problem), "{}", found[5]);
    fs::write(&path, &file[..file.len() - (64 << 10)]).unwrap();
    let found = faults(folder.path()).await;
    assert!(found[0].contains("262144 bytes when it was indexed, 196608 bytes in the store"), "{found:?}");
}

/// The key of the hashes in a file.
const KEY: [u64; 4] = [0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572];

/// Makes the hashes of the chunk at byte `at` right, which lies in one block.
fn rehash(file: &mut [u8], at: usize) {
    let hash = |bytes: &[u8]| HighwayHasher::new(Key(KEY)).hash64(bytes).to_le_bytes();
    let bytes = u64::from_le_bytes(file[at + 8..at + 16].try_into().unwrap());
    let end = (at + 40).saturating_add(bytes as usize).min(file.len());
    let data = hash(&file[at + 40..end]);
    file[at + 16..at + 24].copy_from_slice(&data);
    let header = hash(&file[at + 8..at + 40]);
    file[at..at + 8].copy_from_slice(&header);
}

/// Makes the index of a file in memory.
fn index_of(file: &[u8]) -> Result<(Bytes, Fingerprint), String> {
    let part = |range: Range<u64>| Bytes::copy_from_slice(&file[range.start as usize..range.end as usize]);
    let bytes = file.len() as u64;
    let last = part(bytes.saturating_sub(LAST_BLOCK_BYTES)..bytes);
    let range = footer_range(&last, bytes)?;
    let at = range.start;
    let footer = Footer::parse(part(range), at)?;
    let fields = match footer.sampled() {
        Some(range) => fields_of(&footer, &part(range))?,
        None => RecordFields::Whole,
    };
    let made = footer.index(bytes, &fields, "a.array_record/", BLOCK_BYTES)?;
    Ok((made.index, made.hash))
}

/// Decodes ranges of the shard, and returns the content of each record's first field.
fn read_ranges(
    file: &[u8],
    index: &dyn ShardIndex,
    ranges: &[Range<u64>],
) -> Vec<Result<Option<FieldValue>, OpenError>> {
    let records = decoded(format_called("array_record").unwrap(), file, index, ranges);
    assert!(records.bytes() <= index.shard_bytes());
    index.records().map(|record| records.open(record.number(), 0)).collect()
}

fn opened(file: &[u8]) -> std::sync::Arc<dyn ShardIndex> {
    let (index, hash) = index_of(file).unwrap();
    format_called("array_record").unwrap().open_index(index, hash).unwrap()
}

#[test]
fn the_chunk_of_a_record_is_read_alone() {
    for (name, is_long) in FILES {
        let file = golden(name);
        let index = opened(&file);
        for number in [0, 3, 5, 6, 7, 23] {
            let field = index.record(number).field("record").unwrap();
            let range = field.range().unwrap();
            assert_eq!(field.shared_by, if name == "single" { 1 } else { if number < 21 { 7 } else { 3 } });
            let read = read_ranges(&file, &*index, &[range]);
            let expected = Bytes::from(record(number as usize, is_long)).into();
            assert_eq!(read[number as usize], Ok(Some(expected)), "{name}: record {number}");
            let there = read.iter().filter(|content| **content != Err(OpenError::Missing)).count();
            assert_eq!(there, field.shared_by as usize, "{name}: record {number}");
        }
    }
}

#[test]
fn what_a_chunk_claims_is_refused_before_it_is_allocated() {
    let file = golden("single");
    let index = opened(&file);
    let problem = |change: &dyn Fn(&mut [u8])| {
        let mut other = file.clone();
        change(&mut other[64..]);
        rehash(&mut other, 64);
        let whole = 0..index.shard_bytes();
        match &read_ranges(&other, &*index, &[whole])[0] {
            Err(OpenError::Damaged { problem, .. }) => problem.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let claim = |at: usize, value: u64| move |chunk: &mut [u8]| chunk[at..at + 8].copy_from_slice(&value.to_le_bytes());
    assert!(problem(&claim(8, 1 << 60)).contains("is cut off"));
    assert!(problem(&claim(24, 1 << 50 | u64::from(b'r'))).contains("is another one than was indexed"));
    assert!(problem(&claim(32, 1 << 60)).contains("is another one than was indexed"));
    assert!(problem(&|chunk| chunk[24] = b'p').contains("is of the kind `p`"));
    assert!(problem(&|chunk| chunk[40] = b'?').contains("has the unknown compression `?`"));
    assert!(problem(&|chunk| chunk[41] = 0x7f).contains("is cut off in its sizes"));
    assert!(problem(&|chunk| chunk[42] = 0x7f).contains("claims 127 decompressed bytes, more than 10"));
}

/// A file, and the index that version 1 makes of it. A test run with `SPDL_WRITE_GOLDEN` set writes it if it is not there; never
/// replace it.
const GOLDEN: [(&str, &str); 2] =
    [("zstd", "tests/golden/array_record-v1.idx"), ("examples", "tests/golden/array_record-examples-v1.idx")];

#[test]
fn the_index_of_a_file_is_made_and_read_as_ever() {
    for (name, path) in GOLDEN {
        let (made, hash) = index_of(&golden(name)).unwrap();
        if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !Path::new(path).exists() {
            fs::write(path, &made).unwrap();
        }
        let stored = fs::read(path).unwrap();
        assert!(made == stored, "another index is made of the same file");
        let format = format_called("array_record").unwrap();
        let index = format.open_index(stored.clone().into(), hash).unwrap();
        assert_eq!(index.record(7).key, "a.array_record/000007");
        for at in 0..stored.len() {
            let mut other = stored.clone();
            other[at] ^= 1;
            assert!(format.open_index(other.into(), hash).is_err(), "byte {at}");
        }
    }
}

/// The places of chunks in the first block of a file.
fn chunks_of(file: &[u8]) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), 64);
    while at + 40 < 65_536 && file[at + 24] == b'r' {
        found.push(at);
        at += 40 + u64::from_le_bytes(file[at + 8..at + 16].try_into().unwrap()) as usize;
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_file_is_an_error_and_never_a_panic(
        name in prop::sample::select(vec!["single", "brotli", "snappy", "examples"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_hashed in any::<bool>(),
    ) {
        let file = golden(name);
        let index = opened(&file);
        let chunks = chunks_of(&file);
        let mut damaged = file.clone();
        for (chunk, place, value) in changes {
            // The last one is the footer.
            let number = chunk.index(chunks.len());
            let (at, end) = (chunks[number], chunks.get(number + 1).copied().unwrap_or(chunks[number] + 200));
            damaged[at + 8 + place.index(end - at - 8)] = value;
            if is_hashed {
                rehash(&mut damaged, at);
            }
        }
        // Damaged after it was indexed, and before.
        let whole = 0..index.shard_bytes();
        let found = read_ranges(&damaged, &*index, std::slice::from_ref(&whole));
        let expected = read_ranges(&file, &*index, &[whole]);
        if !is_hashed {
            for (found, expected) in found.iter().zip(&expected) {
                let is_damaged = matches!(found, Err(OpenError::Damaged { .. }));
                prop_assert!(found == expected || is_damaged, "{found:?}");
            }
        }
        if let Ok((index, hash)) = index_of(&damaged) {
            let index = format_called("array_record").unwrap().open_index(index, hash).unwrap();
            let whole = 0..index.shard_bytes();
            read_ranges(&damaged, &*index, &[whole]);
        }
    }
}
