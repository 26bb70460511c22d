//! A disk cache that is damaged, full or unavailable costs time, never a sample.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
};

use spdl_insight::CacheStats;
use spdl_shard::{
    manifest::{BlockFacts, Manifest, ManifestBuilder, ShardFacts},
    store::DatasetStore,
};
use spdl_testkit::proxy::ReceivedRequest;
use spdl_worker::budget::DiskBudget;

use super::fixture::{FeedSettings, StorageFixture};

/// Returns the requests for blocks.
fn of_blocks(requests: &[ReceivedRequest]) -> impl Iterator<Item = &ReceivedRequest> {
    requests.iter().filter(|request| request.path.ends_with(".tar"))
}

/// Returns the number of blocks that were asked for, once or, as after a slow answer, twice.
fn blocks(requests: &[ReceivedRequest]) -> usize {
    of_blocks(requests).map(|request| (&request.path, &request.range)).collect::<HashSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_that_a_crash_left_in_the_cache_is_fetched_again_and_no_sample_is_wrong() {
    let fixture = StorageFixture::new(24, 6).await;
    let cache = tempfile::tempdir().unwrap();
    let settings = FeedSettings::with_disk(cache.path());
    let expected = fixture.undisturbed(1).await;
    assert_eq!(fixture.run(1, &settings).await.unwrap().batches, expected);
    let asked = fixture.proxy.requests().len();
    assert_eq!(fixture.run(1, &settings).await.unwrap().batches, expected);
    assert_eq!(blocks(&fixture.proxy.requests()[asked..]), 0, "all blocks came from the disk");

    let asked = fixture.proxy.requests().len();
    let files = fs::read_dir(cache.path()).unwrap().map(|file| file.unwrap());
    let files = files.filter(|file| file.file_name().to_str().unwrap().starts_with("blk-"));
    for (number, file) in files.map(|file| file.path()).enumerate() {
        let mut bytes = fs::read(&file).unwrap();
        match number % 3 {
            0 => bytes.fill(0),
            1 => bytes.truncate(100),
            _ => bytes[5_000] ^= 1,
        }
        fs::write(file, bytes).unwrap();
    }
    let delivered = fixture.run(1, &settings).await.unwrap();
    assert_eq!(delivered.batches, expected);
    assert_eq!(blocks(&fixture.proxy.requests()[asked..]), 12);
    assert_eq!((delivered.store.cache_faults, delivered.store.wrong_bytes), (12, 0), "the store was not to blame");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_at_once_share_a_cache_on_disk_and_what_one_has_read_the_others_find() {
    let fixture = StorageFixture::new(24, 6).await;
    let cache = tempfile::tempdir().unwrap();
    let settings = FeedSettings::with_disk(cache.path());
    let expected = fixture.undisturbed(2).await;
    let mut first = fixture.feed(&fixture.url, 2, &settings).await;
    for _ in 0..6 {
        assert!(first.next().await.unwrap());
    }
    let asked = of_blocks(&fixture.proxy.requests()).count();
    assert_eq!(asked, 12, "each block once in an epoch");
    assert_eq!(fixture.run(2, &settings).await.unwrap().batches, expected);
    assert_eq!(first.rest().await.unwrap().batches, expected);
    assert_eq!(of_blocks(&fixture.proxy.requests()).count(), asked, "nothing came from the store again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_room_on_disk_for_a_part_of_the_dataset_each_epoch_reads_only_the_rest() {
    let fixture = StorageFixture::new(240, 24).await;
    let cache = tempfile::tempdir().unwrap();
    let dataset_bytes: u64 = fixture
        .shards()
        .iter()
        .map(|shard| std::path::Path::new(&fixture.local()).join(shard).metadata().unwrap().len())
        .sum();
    let bytes = dataset_bytes / 2;
    let disk = Some(DiskBudget { directory: cache.path().to_owned(), bytes });
    // Each epoch in a process of its own, so that nothing comes from memory.
    let mut fetched = Vec::new();
    for _ in 0..3 {
        let asked = fixture.proxy.requests().len();
        fixture.run(1, &FeedSettings { disk: disk.clone(), ..FeedSettings::default() }).await.unwrap();
        fetched.push(blocks(&fixture.proxy.requests()[asked..]));
    }
    let all = fetched[0] as f64;
    for later in &fetched[1..] {
        let hits = 1.0 - *later as f64 / all;
        assert!((0.46..0.51).contains(&hits), "{hits} of the blocks came from the disk: {fetched:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_too_small_or_cannot_be_had_is_done_without() {
    let fixture = StorageFixture::new(24, 6).await;
    let expected = fixture.undisturbed(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    for (directory, bytes) in
        [(folder.path().join("small"), 100_000), (folder.path().join("none"), 10), (file, 1 << 30)]
    {
        let settings = FeedSettings { disk: Some(DiskBudget { directory, bytes }), ..FeedSettings::default() };
        assert_eq!(fixture.run(2, &settings).await.unwrap().batches, expected);
    }
    let kept: u64 =
        fs::read_dir(folder.path().join("small")).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(kept <= 100_000, "{kept}");
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "not a folder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_memory_for_a_part_of_the_dataset_that_part_of_an_epoch_comes_from_memory() {
    const SAMPLES: u64 = 900;
    const EPOCHS: u64 = 5;
    let fixture = StorageFixture::new(SAMPLES as u32, 90).await;
    let mut rank = fixture.feed(&fixture.url, EPOCHS as u32 + 1, &FeedSettings::default()).await;
    let (mut fetched, mut asked, mut window_bytes) = (Vec::new(), 0, 0);
    for batch in 1..=SAMPLES / 4 * EPOCHS {
        assert!(rank.next().await.unwrap());
        let CacheStats { used_bytes, limit_bytes, window_bytes: window, .. } = rank.resources.cache_stats();
        assert!(used_bytes <= limit_bytes, "{used_bytes} of {limit_bytes} bytes");
        window_bytes = window_bytes.max(window);
        if batch.is_multiple_of(SAMPLES / 4) {
            let requests = fixture.proxy.requests();
            fetched.push(blocks(&requests[asked..]));
            asked = requests.len();
        }
    }
    let CacheStats { limit_bytes, dataset_bytes, .. } = rank.resources.cache_stats();
    let kept = (limit_bytes - window_bytes) as f64 / dataset_bytes as f64;
    assert!((0.3..0.8).contains(&kept), "{kept} of the dataset is kept, which shows nothing");
    for epoch in &fetched[2..] {
        let hits = 1.0 - *epoch as f64 / (SAMPLES / 2) as f64;
        assert!(hits >= 0.98 * kept, "{hits} of the blocks came from memory, {kept} is kept: {fetched:?}");
    }
}

/// Returns the manifest with a name, and so many classes that it has 34 MB.
fn with_many_classes(manifest: &Manifest, name: &str) -> Manifest {
    let classes = (0..34_000).map(|number| format!("{number:01000}"));
    let mut builder = ManifestBuilder::new(name).classes(classes);
    for (number, shard) in (0..).zip(manifest.shards()) {
        let blocks: Vec<BlockFacts> = manifest
            .shard_blocks(number)
            .map(|block| manifest.block(block))
            .map(|block| BlockFacts {
                offset: block.offset,
                bytes: block.bytes.try_into().unwrap(),
                first_record: block.first_record,
                records: block.records,
                samples: block.samples,
            })
            .collect();
        let facts = ShardFacts {
            url: shard.url.to_owned(),
            bytes: shard.bytes,
            etag: shard.etag.map(str::to_owned),
            records: shard.records,
            index_bytes: shard.index_bytes,
            index_hash: shard.index_hash,
        };
        builder.shard(&facts, &blocks).unwrap();
    }
    builder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_manifest_is_kept_on_disk_and_read_again_only_if_it_changed_or_is_damaged() {
    let fixture = StorageFixture::new(24, 6).await;
    let manifest = DatasetStore::open(&fixture.local()).unwrap().manifest().await.unwrap();
    let path = std::path::Path::new(&fixture.local()).join(".spdl/manifest.spdl");
    let upload = async |name: &str| {
        let long = with_many_classes(&manifest, name);
        fs::write(&path, long.bytes()).unwrap();
        fixture.server.upload(std::path::Path::new(&fixture.local()), "set").await;
        long.bytes().len()
    };
    let ranges = upload("first").await.div_ceil(8 << 20);
    let cache = tempfile::tempdir().unwrap();
    let settings = FeedSettings {
        disk: Some(DiskBudget { directory: cache.path().to_owned(), bytes: 256 << 20 }),
        ..FeedSettings::default()
    };
    let expected = fixture.undisturbed(1).await;
    // Runs an epoch, and returns the number of ranges of the manifest that it asks the store for.
    let asked = async || {
        let before = fixture.proxy.requests().len();
        let delivered = fixture.run(1, &settings).await.unwrap();
        assert_eq!(delivered.batches, expected);
        let requests = fixture.proxy.requests();
        let manifests = requests[before..].iter().filter(|request| request.path.ends_with("manifest.spdl"));
        // A slow request may be hedged.
        let ranges: BTreeSet<_> = manifests.map(|request| &request.range).filter(|range| !range.is_empty()).collect();
        (ranges.len(), delivered.store.cache_faults)
    };
    assert_eq!(asked().await, (ranges, 0));
    assert_eq!(asked().await, (0, 0), "it comes from the disk");

    let longest = fs::read_dir(cache.path()).unwrap().map(|file| file.unwrap().path());
    let longest = longest.max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&longest).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(&longest, bytes).unwrap();
    assert_eq!(asked().await, (1, 1), "a file of the cache was damaged");
    assert_eq!(asked().await, (0, 0));

    // The same content, so the same fingerprint, in another object.
    upload("second").await;
    assert_eq!(asked().await, (ranges, 0), "the manifest was written anew");
}
