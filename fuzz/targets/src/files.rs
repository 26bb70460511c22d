//! Manifests, record indexes and file indexes. The checksums are corrected first, because otherwise hardly any input would pass them.

use spdl_order::{OrderParams, Plan};
use spdl_shard::{
    format::{ShardIndex as _, format_called},
    index::{IndexBuilder, RecordIndex, Segments},
    manifest::{BlockFacts, Manifest, ManifestBuilder, ShardFacts},
};
use spdl_types::{Fingerprint, SampleId};
use xxhash_rust::xxh3::xxh3_128;

use crate::indexes::{check_plan, manifest_of, opened, with_checksum};

/// Bytes of a manifest's header: `docs/spec/formats/manifest.md`.
const MANIFEST_HEADER_BYTES: u64 = 112;

/// Returns a file with the correct length, checksum and fingerprint; the fingerprint only if the sections are valid
/// enough to have one.
fn with_fingerprint(data: &[u8]) -> Vec<u8> {
    let mut file = data.to_vec();
    let number = |at: usize| Some(u64::from(u32::from_le_bytes(*data.get(at..)?.first_chunk()?)));
    let strings = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
    let sections = (|| {
        let tables = 56 * number(72)? + 32 * number(76)? + 4 * number(80)?;
        strings(88)?.checked_add(MANIFEST_HEADER_BYTES + tables + number(84)?)
    })();
    let end = sections.and_then(|end| usize::try_from(end).ok());
    if let Some(fingerprint) = end.and_then(|end| Some(xxh3_128(data.get(72..end)?))) {
        file[40..56].copy_from_slice(&fingerprint.to_le_bytes());
    }
    with_checksum(&file)
}

/// Checks that a manifest that opens can be read from end to end, writes as the same bytes, and gives a plan that
/// contains every sample.
pub(crate) fn manifest(data: &[u8]) {
    let _ = Manifest::open(data.to_vec());
    let Ok(manifest) = Manifest::open(with_fingerprint(data)) else { return };
    let mut builder = ManifestBuilder::new(manifest.name())
        .format(manifest.format())
        .base(manifest.base())
        .tokenizer(manifest.tokenizer())
        .classes(manifest.classes());
    for (number, shard) in (0..).zip(manifest.shards()) {
        let blocks: Vec<BlockFacts> = manifest.shard_blocks(number).map(|block| facts(&manifest, block)).collect();
        let shard = ShardFacts {
            url: shard.url.to_owned(),
            bytes: shard.bytes,
            etag: shard.etag.map(str::to_owned),
            records: shard.records,
            index_bytes: shard.index_bytes,
            index_hash: shard.index_hash,
        };
        builder.shard(&shard, &blocks).expect("a shard that was read can be written");
    }
    assert_eq!(builder.finish().expect("a manifest that was read can be written").bytes(), manifest.bytes());
    for (number, class) in (0..).zip(manifest.classes()) {
        assert_eq!(manifest.class_number(class), Some(number));
    }
    assert_eq!(manifest.block_of(manifest.samples()), None);
    plan(&manifest);
}

fn facts(manifest: &Manifest, number: u32) -> BlockFacts {
    let block = manifest.block(number);
    for sample in [block.first_sample, block.first_sample + u64::from(block.samples) - 1] {
        assert_eq!(manifest.block_of(sample), Some(number));
    }
    BlockFacts {
        offset: block.offset,
        bytes: u32::try_from(block.bytes).expect("blocks are shorter than 4 GiB"),
        first_record: block.first_record,
        records: block.records,
        samples: block.samples,
    }
}

fn plan(manifest: &Manifest) {
    let facts = manifest.facts();
    if facts.samples == 0 {
        return;
    }
    let order = OrderParams::default_for(&facts, 48, true);
    let plan = Plan::new(&manifest.block_samples(), 5, order).expect("a dataset with samples has a plan");
    assert_eq!(plan.samples(), manifest.samples());
    for offset in [0, facts.samples / 3, facts.samples - 1] {
        let located = plan.at(1, offset);
        assert_eq!(manifest.block_of(located.id.0), Some(located.block));
        let block = manifest.block(located.block);
        assert_eq!(located.id, SampleId(block.first_sample + u64::from(located.index)));
    }
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let empty = ManifestBuilder::new("").finish().expect("an empty dataset");
    let mut builder = ManifestBuilder::new("photos").classes(["cat", "dog"]);
    for (number, etag) in [(0, Some("a")), (1, None)] {
        let shard = ShardFacts {
            url: format!("train/{number}.tar"),
            bytes: 10_000,
            etag: etag.map(str::to_owned),
            records: 8,
            index_bytes: 300,
            index_hash: Fingerprint(number),
        };
        let block = |at: u32| BlockFacts {
            offset: u64::from(at) * 4096,
            bytes: 4000,
            first_record: at * 4,
            records: 4,
            samples: 5 - at,
        };
        builder.shard(&shard, &[block(0), block(1)]).expect("a shard of the seed");
    }
    let photos = builder.finish().expect("the seed's manifest");
    let files = format_called("files").expect("a format");
    let files = ManifestBuilder::new("loose").format(files).finish().expect("a dataset with a format");
    let elsewhere = ManifestBuilder::new("far").base(Some("../photos")).finish().expect("a dataset with a base");
    [empty, photos, files, elsewhere].iter().map(|manifest| manifest.bytes().to_vec()).collect()
}

/// Checks that a record index that opens can be read from end to end, and that writing it gives one that reads the
/// same.
pub(crate) fn index(data: &[u8]) {
    let open = |file: Vec<u8>| {
        let hash = Fingerprint::of(&file);
        RecordIndex::open(file, hash)
    };
    let _ = open(data.to_vec());
    let Ok(index) = open(with_checksum(data)) else { return };
    let mut builder = IndexBuilder::new();
    let mut owned = Vec::new();
    for record in index.records() {
        assert!(record.fields().all(|field| record.field(field.name) == Some(field)), "{record:?}");
        let stored = record.fields().filter(|field| field.value.is_none());
        let stored: Vec<_> =
            stored.map(|field| (field.name, field.offset, field.bytes, field.crc32c.expect("a checksum"))).collect();
        let key = record.key.text();
        let is_sharing = stored == owned;
        let written = match is_sharing {
            true => builder.record_sharing(&key, record.samples),
            false => builder.record(&key, record.samples, stored.iter().copied()),
        };
        written.expect("a record that was read can be written");
        owned = stored;
        let values = record.fields().filter_map(|field| Some((field.name, std::str::from_utf8(field.value?).ok()?)));
        builder.values(&key, values).expect("values that were read can be written");
        for (number, field) in (0..).zip(record.fields()) {
            if let Some(segments) = record.segments(field.name) {
                builder.segments(number, segments).expect("a table that was read can be written");
            }
            if let Some(table) = index.packet_table(&record, number).filter(|_| !is_sharing && field.value.is_none()) {
                builder.packet_table(number, table).expect("a table that was read can be written");
            }
        }
    }
    let (again, hash) = builder.finish(index.shard_bytes()).expect("an index that was read can be written");
    assert_eq!(hash, Fingerprint::of(again.bytes()));
    assert_eq!((again.record_count(), again.sample_count()), (index.record_count(), index.sample_count()));
    for (ours, theirs) in index.records().zip(again.records()) {
        assert!(ours.key == theirs.key && ours.fields().eq(theirs.fields()), "{ours:?}, {theirs:?}");
        assert!(ours.fields().all(|field| ours.segments(field.name) == theirs.segments(field.name)), "{ours:?}");
    }
    if let Some(last) = index.sample_count().checked_sub(1) {
        for sample in [0, last / 2, last] {
            let (record, number) = index.locate(sample);
            assert!(number < index.record(record).samples, "sample {sample} is number {number} of record {record}");
        }
    }
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let mut builder = IndexBuilder::new();
    builder.record("n01/a", 1, [("jpg", 512, 100, 1), ("cls", 1536, 1, 2)]).expect("a record of the seed");
    builder.record("n01/b", 0, [("xml", 2560, 0, 3)]).expect("a record of the seed");
    builder.record("n02/c", 3, [("cls", 3072, 5, 4), ("jpg", 4096, 9, 5)]).expect("a record of the seed");
    let filled = builder.finish(6000).expect("the seed's index").0;
    let empty = IndexBuilder::new().finish(1024).expect("an empty index").0;
    let mut builder = IndexBuilder::new();
    builder.record("n01/a", 1, [("cls", 512, 1, 2), ("jpg", 1536, 900, 1)]).expect("a record of the seed");
    builder.segments(1, Segments { step: 8, lengths: &[[0, 1], [200, 0]] }).expect("a table of the seed");
    let crop_ready = builder.finish(6000).expect("the seed's index").0;
    let mut builder = IndexBuilder::new();
    builder.record("a@0", 1, [("flac", 512, 100, 1)]).expect("a record of the seed");
    builder.values("a@0", [("text", "one"), ("offset", "0")]).expect("values of the seed");
    builder.record_sharing("a@2", 1).expect("a record of the seed");
    builder.values("a@2", [("text", "two"), ("offset", "2")]).expect("values of the seed");
    let with_values = builder.finish(6000).expect("the seed's index").0;
    let mut builder = IndexBuilder::new();
    builder.record("a@0", 1, [("json", 512, 9, 1), ("flac", 1536, 100, 1)]).expect("a record of the seed");
    builder.packet_table(1, b"\x01\x02\x03").expect("a table of the seed");
    builder.record_sharing("a@2", 1).expect("a record of the seed");
    builder.values("a@2", [("offset", "2")]).expect("values of the seed");
    let with_packets = builder.finish(6000).expect("the seed's index").0;
    [empty, filled, crop_ready, with_values, with_packets].iter().map(|index| index.bytes().to_vec()).collect()
}

/// Checks that a file index that opens can be read from end to end, and that the plan of every field reads its bytes.
pub(crate) fn file_index(data: &[u8]) {
    let Some(index) = opened("files", data) else { return };
    let manifest = manifest_of("files", &*index);
    let mut end = 0;
    // The files of the last record with files of its own, which the records behind it may share.
    let mut owned = Vec::new();
    for number in 0..index.record_count() {
        let record = index.record(number);
        assert_eq!(index.locate(number), (number, 0));
        assert!(!record.key.text().is_empty());
        for (nth, field) in record.fields().enumerate() {
            assert_eq!(record.field(field.name), Some(field), "{record:?}");
            let Some(range) = field.range() else { continue };
            if range.start == end {
                if nth == 0 {
                    owned.clear();
                }
                end = range.end;
                owned.push(range.clone());
            } else {
                assert!(owned.contains(&range), "{record:?}");
            }
            check_plan(&*index, &manifest, &range);
            // The table is none of this crate's.
            _ = index.packet_table(&record, u32::try_from(nth).expect("a number of a field"));
            let Some(files) = index.files(&record, nth as u32) else { continue };
            assert!(files.len() > 1 && files[0].start == range.start && files[files.len() - 1].end == range.end);
            assert!(files.windows(2).all(|pair| pair[0].end == pair[1].start), "{record:?}");
        }
    }
    assert_eq!(end, index.shard_bytes());
}
