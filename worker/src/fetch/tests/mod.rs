//! Tests of fetching from a store that works and from one that does not.
#![allow(clippy::single_range_in_vec_init, reason = "what is wanted is a list of ranges")]

mod long;

use std::{ops::Range, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use spdl_accounting::StageCounters;
use spdl_shard::format::{ObjectRole, StoredObject};
use spdl_store::StoreLayer;
use spdl_types::{Fingerprint, Stage};

use super::{
    flaky::{FlakyStore, StoreFault},
    hold::{KIB, LoadState},
    *,
};
use crate::budget::DiskBudget;

pub(super) const BLOCK: u64 = 1000;

/// Bytes that are not decoded belong to no records.
impl From<Vec<Range<u64>>> for Wanted {
    fn from(ranges: Vec<Range<u64>>) -> Self {
        Self { ranges, records: Arc::default() }
    }
}

pub(super) struct FetchFixture {
    pub(super) store: Arc<FlakyStore>,
    pub(super) content: Vec<u8>,
    shard: Arc<ShardObject>,
}

pub(super) async fn fixture(blocks: u64) -> FetchFixture {
    let content: Vec<u8> = (0..blocks * BLOCK).map(|at| (at * 31 % 251) as u8).collect();
    let inner = Arc::new(InMemory::new());
    let path = Path::from("a.tar");
    inner.put(&path, content.clone().into()).await.unwrap();
    let store = Arc::new(FlakyStore::new(inner));
    let shard = ShardObject {
        store: store.clone().layered(),
        dataset: "data".into(),
        path,
        object: StoredObject { url: "a.tar".into(), bytes: content.len() as u64, etag: None, role: ObjectRole::Shard },
        base: None,
    };
    FetchFixture { store, content, shard: Arc::new(shard) }
}

impl FetchFixture {
    pub(super) fn block(&self, block: u32) -> BlockPlace {
        let start = u64::from(block) * BLOCK;
        let key = BlockKey { dataset: Fingerprint(1), block };
        BlockPlace { key, shard: self.shard.clone(), range: start..start + BLOCK, peers: None }
    }

    pub(super) fn fetcher(&self, memory_bytes: u64, disk: Option<&DiskBudget>) -> Arc<Fetcher> {
        Fetcher::new([memory_bytes, 4 << 10], retry(), disk, Arc::new(StageCounters::new(Stage::Fetch)))
    }

    pub(super) fn check(&self, bytes: &BlockBytes, range: Range<u64>) {
        let expected = &self.content[range.start as usize..range.end as usize];
        assert_eq!(bytes.slice(range).unwrap(), expected);
    }
}

fn retry() -> RetrySettings {
    RetrySettings {
        refusals: 2,
        first_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(1),
        request_timeout: Duration::from_secs(10),
        silence_timeout: Duration::from_millis(200),
        ..RetrySettings::default()
    }
}

/// Returns the range of a record; each is a tenth of its block.
fn record(block: &BlockPlace, record: u64) -> Range<u64> {
    let bytes = block.bytes() / 10;
    block.range.start + record * bytes..block.range.start + (record + 1) * bytes
}

#[tokio::test]
async fn a_block_that_many_want_is_fetched_once() {
    let fixture = fixture(3).await;
    let fetcher = fixture.fetcher(10 * BLOCK, None);
    let block = fixture.block(1);
    let fetches = (0..50).map(|_| fetcher.fetch(&block, vec![block.range.clone()]));
    for bytes in futures::future::join_all(fetches).await {
        fixture.check(&bytes.unwrap(), 1200..1300);
    }
    assert_eq!(fixture.store.reads(), 1);
}

/// A shard of which the first tenth of each block is read.
#[derive(Debug)]
struct Projected(Arc<ShardObject>);

impl ShardSource for Projected {
    fn url(&self) -> &str {
        self.0.url()
    }

    fn merge_gap_bytes(&self) -> u64 {
        0
    }

    fn parts(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Range<u64>>, FetchError>> {
        ready(Ok(vec![range.start..range.start + BLOCK / 10])).boxed()
    }

    fn read<'r>(
        &'r self,
        ranges: &'r [Range<u64>],
        requests: &'r StoreClient,
    ) -> BoxFuture<'r, Result<Pieces, FetchError>> {
        self.0.read(ranges, requests)
    }
}

#[tokio::test]
async fn a_block_is_kept_if_much_is_wanted_of_what_is_read_of_it() {
    let fixture = fixture(3).await;
    let fetcher = fixture.fetcher(10 * BLOCK, None);
    let block = BlockPlace { shard: Arc::new(Projected(fixture.shard.clone())), ..fixture.block(1) };
    drop(fetcher.fetch(&block, vec![1000..1020]).await.unwrap());
    assert!(fetcher.in_memory(block.key).is_none(), "less than a quarter");
    let bytes = fetcher.fetch(&block, vec![1000..1030]).await.unwrap();
    fixture.check(&bytes, 1000..1100);
    assert!(bytes.slice(1000..1101).is_none() && fetcher.in_memory(block.key).is_some());
    assert_eq!(fixture.store.bytes(), 20 + 100);
}

#[tokio::test]
async fn what_was_prefetched_is_there_and_what_is_held_stays_within_the_budget() {
    let fixture = fixture(20).await;
    let fetcher = fixture.fetcher(3 * BLOCK, None);
    let holds: Vec<_> =
        (0..20).filter_map(|block| fetcher.prefetch(fixture.block(block).key, || fixture.block(block))).collect();
    let is_settled = |hold: &BlockHold| !matches!(*hold.load.state.borrow(), LoadState::Pending);
    while !holds.iter().all(is_settled) {
        tokio::task::yield_now().await;
    }
    assert_eq!(fetcher.memory_bytes(), 3 * BLOCK, "the others have no room");
    for number in 0..20 {
        let block = fixture.block(number);
        let wanted = record(&block, 4);
        let bytes = fetcher.fetch(&block, vec![wanted.clone()]).await.unwrap();
        fixture.check(&bytes, wanted);
        assert_eq!(bytes.slice(block.range.clone()).is_some(), number < 3, "only records of those without room");
        assert!(fetcher.memory_bytes() <= 3 * BLOCK);
    }
    assert_eq!(fixture.store.bytes(), 3 * BLOCK + 17 * BLOCK / 10);
    drop(holds);
    assert!(fetcher.prefetch(fixture.block(9).key, || fixture.block(9)).is_some(), "room of blocks that are not held");
}

#[tokio::test]
async fn memory_beside_a_block_is_waited_for_together_with_the_blocks_own() {
    let fixture = fixture(2).await;
    let fetcher = fixture.fetcher(BLOCK, None);
    let free = || fetcher.transit.available_permits();
    let all = free();
    let (held, other) = (fixture.block(0), fixture.block(1));
    let hold = fetcher.prefetch(held.key, || held.clone()).unwrap();
    // A block in memory takes none of its own.
    let (bytes, beside) = fetcher.fetch_beside(&held, vec![held.range.clone()], 3 * KIB).await.unwrap();
    assert!(bytes.is_held());
    assert_eq!(all - free(), 3);
    drop(beside);
    assert_eq!(free(), all);
    // One that has no room there does, and both are given back one by one.
    let (bytes, beside) = fetcher.fetch_beside(&other, vec![record(&other, 4)], 3 * KIB).await.unwrap();
    fixture.check(&bytes, record(&other, 4));
    assert!(!bytes.is_held());
    let taken = all - free();
    assert!((4..=5).contains(&taken), "{taken}");
    drop(beside);
    assert!((1..=2).contains(&(all - free())));
    drop(bytes);
    assert_eq!(free(), all);
    // More than there is at all is as much as there is, of which the block has its part first.
    let (bytes, beside) = fetcher.fetch_beside(&other, vec![record(&other, 5)], u64::MAX).await.unwrap();
    assert_eq!(free(), 0);
    drop(bytes);
    assert!(free() >= 1);
    drop((beside, hold));
    assert_eq!(free(), all);
}

#[tokio::test]
async fn a_load_without_waiters_is_cancelled() {
    let fixture = fixture(1).await;
    let fetcher = fixture.fetcher(3 * BLOCK, None);
    fixture.store.fail_next([StoreFault::Hang]);
    let hold = fetcher.prefetch(fixture.block(0).key, || fixture.block(0)).unwrap();
    while fixture.store.reads() == 0 {
        tokio::task::yield_now().await;
    }
    drop(hold);
    assert_eq!(fetcher.memory_bytes(), 0);
    let block = fixture.block(0);
    let bytes = fetcher.fetch(&block, vec![block.range.clone()]).await.unwrap();
    fixture.check(&bytes, 0..BLOCK);
}

#[tokio::test]
async fn failed_cut_and_hanging_requests_are_repeated_for_ever_and_refusals_are_not() {
    let fixture = fixture(1).await;
    // Long, so that none of the others is silent for as long on a busy machine.
    let settings = RetrySettings { silence_timeout: Duration::from_secs(3), ..retry() };
    let fetcher = Fetcher::new([0, 4 << 10], settings, None, Arc::new(StageCounters::new(Stage::Fetch)));
    let block = fixture.block(0);
    fixture.store.fail_next([StoreFault::Cut, StoreFault::Hang].into_iter().chain([StoreFault::Unavailable; 40]));
    fixture.check(&fetcher.fetch(&block, vec![10..20]).await.unwrap(), 10..20);
    assert_eq!(fixture.store.reads(), 43);
    fixture.store.fail_next([StoreFault::Denied]);
    fixture.check(&fetcher.fetch(&block, vec![10..20]).await.unwrap(), 10..20);
    fixture.store.fail_next([StoreFault::Denied, StoreFault::Unavailable, StoreFault::Denied]);
    let error = fetcher.fetch(&block, vec![10..20]).await.unwrap_err();
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("`a.tar`") && error.to_string().contains("403"), "{error}");
    let stats = fetcher.store_stats();
    assert_eq!((stats.requests, stats.retries, stats.timeouts, stats.refusals), (48, 45, 1, 3));
    assert_eq!(stats.outage_ms, 0);
}

#[tokio::test]
async fn a_store_of_which_each_answer_comes_after_the_limit_answers_in_the_end() {
    let fixture = fixture(1).await;
    let fetcher = fixture.fetcher(0, None);
    let block = fixture.block(0);
    fixture.store.fail_next([StoreFault::Late; 1000]);
    fixture.check(&fetcher.fetch(&block, vec![10..20]).await.unwrap(), 10..20);
    assert!(fetcher.store_stats().timeouts > 0);
}

#[tokio::test]
async fn the_reason_that_delays_a_shard_is_reported_while_it_lasts() {
    let fixture = fixture(1).await;
    let fetcher = fixture.fetcher(0, None);
    let block = fixture.block(0);
    fixture.store.fail_every(1);
    let reported = async {
        loop {
            match fetcher.outage("data", "a.tar") {
                Some(reported) if reported.contains("3 in all") => return reported,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let (fetched, ()) = tokio::join!(fetcher.fetch(&block, vec![10..20]), async {
        let reported = reported.await;
        assert!(reported.contains("`a.tar`") && reported.contains("503"), "{reported}");
        fixture.store.fail_every(0);
    });
    fixture.check(&fetched.unwrap(), 10..20);
    assert_eq!(fetcher.outage("data", "a.tar"), None);
}

#[tokio::test]
async fn a_failed_load_is_not_remembered() {
    let fixture = fixture(1).await;
    let fetcher = fixture.fetcher(3 * BLOCK, None);
    let block = fixture.block(0);
    fixture.store.fail_next([StoreFault::Denied; 2]);
    assert!(fetcher.fetch(&block, vec![block.range.clone()]).await.is_err());
    assert_eq!(fetcher.memory_bytes(), 0);
    fixture.check(&fetcher.fetch(&block, vec![block.range.clone()]).await.unwrap(), 0..BLOCK);
}

#[tokio::test]
async fn an_object_that_changed_is_refused_by_name() {
    let fixture = fixture(2).await;
    let other = |bytes, etag| {
        let object = StoredObject { bytes, etag, ..fixture.shard.object.clone() };
        Arc::new(ShardObject { object, ..(*fixture.shard).clone() })
    };
    let fetcher = fixture.fetcher(0, None);
    let longer = BlockPlace { shard: other(3 * BLOCK, None), ..fixture.block(0) };
    for (block, wanted, expected) in [
        (longer.clone(), 0..10, "2000 bytes"),
        (BlockPlace { range: 2 * BLOCK..3 * BLOCK, ..longer }, 2500..2600, "2000 bytes"),
    ] {
        let error = fetcher.fetch(&block, vec![wanted]).await.unwrap_err();
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("`a.tar` changed") && error.to_string().contains(expected), "{error}");
    }
    // A copy has another etag; whether its bytes are the same is decided by their checksums.
    let copied = other(2 * BLOCK, Some("\"other-9\"".into()));
    let copy = BlockPlace { shard: copied.clone(), ..fixture.block(0) };
    assert_eq!(copied.difference(&fetcher.requests), None);
    fixture.check(&fetcher.fetch(&copy, vec![0..10]).await.unwrap(), 0..10);
    let [noted, found] = copied.difference(&fetcher.requests).unwrap();
    assert!(noted == "etag \"other-9\"" && found.starts_with("etag "), "{noted}, {found}");
    // A file has no checksum that could decide.
    let object = StoredObject { role: ObjectRole::File, ..copied.object.clone() };
    let file = Arc::new(ShardObject { object, ..(*copied).clone() });
    let error = fetcher.fetch(&BlockPlace { shard: file, ..copy }, vec![0..10]).await.unwrap_err().to_string();
    assert!(error.contains("file `a.tar` changed: the manifest has etag \"other-9\", the store has etag "), "{error}");
    let object = StoredObject { url: "b.tar".into(), ..fixture.shard.object.clone() };
    let missing = ShardObject { path: Path::from("b.tar"), object, ..(*fixture.shard).clone() };
    let missing = BlockPlace { shard: Arc::new(missing), ..fixture.block(0) };
    let error = fetcher.fetch(&missing, vec![0..10]).await.unwrap_err();
    assert!(error.to_string().contains("`b.tar`") && !error.is_retryable(), "{error}");
}

#[tokio::test]
async fn the_disk_cache_serves_another_process_even_without_memory() {
    let fixture = fixture(4).await;
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskBudget { directory: directory.path().to_owned(), bytes: 10 * BLOCK };
    for memory_bytes in [0, 10 * BLOCK] {
        let fetcher = fixture.fetcher(memory_bytes, Some(&disk));
        for number in 0..4 {
            let block = fixture.block(number);
            let wanted = record(&block, 7);
            fixture.check(&fetcher.fetch(&block, vec![wanted.clone()]).await.unwrap(), wanted);
        }
        assert_eq!(fixture.store.bytes(), 4 * BLOCK, "each block came from the store once");
    }
}

#[tokio::test]
async fn parts_of_a_block_come_from_the_disk_unless_its_file_is_damaged() {
    let fixture = fixture(2).await;
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskBudget { directory: directory.path().to_owned(), bytes: 10 * BLOCK };
    let block = fixture.block(1);
    drop(fixture.fetcher(0, Some(&disk)).fetch(&block, vec![record(&block, 0)]).await.unwrap());
    assert_eq!(fixture.store.bytes(), BLOCK);
    let fetcher = fixture.fetcher(0, Some(&disk));
    let wanted = [record(&block, 2), record(&block, 9)];
    let check = async |block: &BlockPlace, wanted: &[Range<u64>], read_bytes| {
        let read = fetcher.read_ranges(block, wanted.to_vec(), 0).await.unwrap();
        for Range { start, end } in wanted {
            assert_eq!(read.slice(*start..*end).unwrap(), fixture.content[*start as usize..*end as usize]);
        }
        assert_eq!((read.bytes(), fixture.store.bytes()), (wanted.len() as u64 * BLOCK / 10, read_bytes));
    };
    check(&block, &wanted, BLOCK).await;
    check(&block, &[], BLOCK).await;
    let other = fixture.block(0);
    check(&other, &[record(&other, 5)], BLOCK + BLOCK / 10).await;
    let (beside, before) = (record(&other, 6), fetcher.store_stats().cache_faults);
    check(&block, &[beside], BLOCK + 2 * BLOCK / 10).await;
    assert_eq!(fetcher.store_stats().cache_faults, before, "a file that lacks what is beside its block is not damaged");
    // A file that takes the place of another that was read before is compared with its seal, too.
    let file = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let file = file.into_iter().find(|file| file.to_string_lossy().contains("blk-")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[250] ^= 1;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    check(&block, &wanted, BLOCK + 4 * BLOCK / 10).await;
    assert_eq!(fetcher.store_stats().cache_faults, 1);
    assert!(!file.exists(), "the damaged file is gone");
}

#[tokio::test]
async fn discarded_bytes_are_fetched_again() {
    let fixture = fixture(1).await;
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskBudget { directory: directory.path().to_owned(), bytes: 10 * BLOCK };
    let fetcher = fixture.fetcher(3 * BLOCK, Some(&disk));
    let block = fixture.block(0);
    fixture.store.fail_next([StoreFault::FlippedBit]);
    let wrong = fetcher.fetch(&block, vec![block.range.clone()]).await.unwrap();
    assert_ne!(wrong.slice(block.range.clone()).unwrap(), fixture.content);
    fetcher.discard(&block.key);
    drop(wrong);
    fixture.check(&fetcher.fetch(&block, vec![block.range.clone()]).await.unwrap(), 0..BLOCK);
}
