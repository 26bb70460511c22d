//! Tests of long ranges, which are read into memory that is used again.

use std::path::Path as FilePath;

use spdl_store::StoreFolder;
use spdl_testkit::{
    proxy::{Proxy, RequestFault},
    s3::S3Server,
};

use super::*;

/// Longer than what is put together, and no multiple of a part or of a page.
const LONG: u64 = (20 << 20) + 12_345;
const BLOCKS: u64 = 3;

/// A file of long blocks in a folder of this machine, or on a web server.
struct LongFixture {
    content: Vec<u8>,
    folder: tempfile::TempDir,
    fetcher: Arc<Fetcher>,
    window: Option<WorkingWindow>,
}

impl LongFixture {
    fn new(memory_bytes: u64) -> Self {
        let content: Vec<u8> = (0..BLOCKS * LONG).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.tar"), &content).unwrap();
        let stage = Arc::new(StageCounters::new(Stage::Fetch));
        let settings = RetrySettings { refusals: 10, silence_timeout: Duration::from_secs(2), ..retry() };
        let fetcher = Fetcher::new([memory_bytes, 4 << 10], settings, None, stage);
        let window = Some(WorkingWindow::new(fetcher.clone(), vec![Fingerprint(1)]));
        Self { content, folder, fetcher, window }
    }

    fn path(&self) -> &FilePath {
        self.folder.path()
    }

    fn shard(&self, url: &str) -> ShardObject {
        let folder = StoreFolder::open_once(url).unwrap();
        let (bytes, role) = (self.content.len() as u64, ObjectRole::Shard);
        let object = StoredObject { url: "a.tar".into(), bytes, etag: None, role };
        let path = folder.path_of("a.tar");
        ShardObject { store: folder.object(), dataset: "data".into(), path, object, base: None }
    }

    fn local(&self) -> Arc<ShardObject> {
        Arc::new(self.shard(self.path().to_str().unwrap()))
    }

    async fn fetch(&self, shard: &Arc<ShardObject>, block: u32) -> Result<BlockBytes, FetchError> {
        let start = u64::from(block) * LONG;
        let key = BlockKey { dataset: Fingerprint(1), block };
        let place = BlockPlace { key, shard: shard.clone(), range: start..start + LONG, peers: None };
        self.fetcher.fetch(&place, vec![place.range.clone()]).await
    }

    /// Checks the bytes of a block, and that they are one piece.
    fn check(&self, bytes: &BlockBytes, block: u32) {
        let BlockContent::Stored(pieces) = &bytes.content else { panic!("stored bytes") };
        assert_eq!(pieces.iter().count(), 1);
        self.check_bytes(bytes, block);
    }

    fn check_bytes(&self, bytes: &BlockBytes, block: u32) {
        let start = u64::from(block) * LONG;
        let expected = &self.content[start as usize..(start + LONG) as usize];
        assert!(bytes.slice(start..start + LONG).unwrap() == expected, "block {block} differs");
    }

    /// Returns the bytes of memory that wait for their next use, and those that are lent.
    fn memory(&self) -> (u64, u64) {
        self.fetcher.requests.memory.bytes()
    }
}

#[tokio::test]
async fn long_blocks_of_files_are_right_in_memory_that_is_used_again() {
    let fixture = LongFixture::new(LONG);
    let shard = fixture.local();
    let mut places = Vec::new();
    for block in [0, 1, 2, 1, 0] {
        let bytes = fixture.fetch(&shard, block).await.unwrap();
        fixture.check(&bytes, block);
        assert_eq!(fixture.memory(), (0, LONG));
        let start = u64::from(block) * LONG;
        places.push(bytes.slice(start..start + 1).unwrap().as_ptr());
    }
    assert!(places.windows(2).all(|pair| pair[0] == pair[1]), "{places:?}");
}

#[tokio::test]
async fn memory_stays_within_the_budget_and_goes_back_when_that_shrinks_or_nobody_reads() {
    let mut fixture = LongFixture::new(2 * LONG);
    let shard = fixture.local();
    for block in [0, 1, 2] {
        drop(fixture.fetch(&shard, block).await.unwrap());
        let (idle, lent) = fixture.memory();
        assert!(idle + lent <= 2 * LONG, "{idle} {lent}");
        assert_eq!(lent, fixture.fetcher.memory_bytes());
    }
    // The blocks leave the cache, and their memory has no room either.
    fixture.fetcher.set_memory(LONG);
    assert_eq!(fixture.memory(), (0, LONG));
    let key = |block| BlockKey { dataset: Fingerprint(1), block };
    (0..3).for_each(|block| fixture.fetcher.discard(&key(block)));
    assert_eq!(fixture.memory(), (LONG, 0));
    fixture.window = None;
    assert_eq!(fixture.memory(), (0, 0));
}

#[tokio::test]
async fn a_read_that_is_dropped_half_way_leaves_no_memory_behind() {
    let server = S3Server::start_open();
    let fixture = LongFixture::new(2 * LONG);
    server.upload(fixture.path(), "long").await;
    let proxy = Proxy::start(server.address());
    let shard = Arc::new(fixture.shard(&proxy.before(&server.web_url("long"))));
    proxy.order("a.tar", 2, 1, RequestFault::Silence);
    let key = BlockKey { dataset: Fingerprint(1), block: 1 };
    let place = BlockPlace { key, shard: shard.clone(), range: LONG..2 * LONG, peers: None };
    let hold = fixture.fetcher.prefetch(key, || place).unwrap();
    while proxy.open_orders() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.memory().1, LONG);
    drop(hold);
    while fixture.memory().1 > 0 {
        tokio::task::yield_now().await;
    }
    fixture.check(&fixture.fetch(&shard, 1).await.unwrap(), 1);
}

#[tokio::test]
async fn long_blocks_of_a_web_server_with_faults_are_right() {
    let server = S3Server::start_open();
    let fixture = LongFixture::new(LONG);
    server.upload(fixture.path(), "long").await;
    let proxy = Proxy::start(server.address());
    let shard = Arc::new(fixture.shard(&proxy.before(&server.web_url("long"))));
    for fault in [
        RequestFault::Truncated,
        RequestFault::Short,
        RequestFault::Reset,
        RequestFault::Status(503, None),
        RequestFault::OtherRange,
        RequestFault::WholeObject,
    ] {
        for block in 0..2 {
            proxy.order("a.tar", u64::from(block), 3, fault);
            let bytes = fixture.fetch(&shard, block).await.unwrap();
            fixture.check(&bytes, block);
            assert_eq!(proxy.open_orders(), 0);
        }
    }
    assert!(fixture.fetcher.store_stats().retries > 30);
}

#[tokio::test]
async fn a_file_that_becomes_shorter_or_longer_is_refused_by_name() {
    let fixture = LongFixture::new(2 * LONG);
    let shard = fixture.local();
    let set_length = |bytes| {
        let file = std::fs::File::options().write(true).open(fixture.path().join("a.tar")).unwrap();
        file.set_len(bytes).unwrap();
    };
    for bytes in [LONG / 2, BLOCKS * LONG + 1] {
        set_length(bytes);
        let error = fixture.fetch(&shard, 0).await.unwrap_err().to_string();
        assert!(error.contains("`a.tar` changed") && error.contains(&bytes.to_string()), "{error}");
        assert_eq!(fixture.memory().1, 0);
    }
    set_length(BLOCKS * LONG);
    let bytes = fixture.fetch(&shard, 0).await.unwrap();
    assert!(bytes.slice(0..LONG / 2).unwrap() == fixture.content[..(LONG / 2) as usize]);
}
