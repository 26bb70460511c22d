//! A dataset on a web server behind the proxy, and a rank that this process feeds from it.

use std::{
    fs,
    hash::{DefaultHasher, Hasher},
    path::Path,
    sync::Arc,
    time::Duration,
};

use spdl_control::messages::Session;
use spdl_insight::StoreStats;
use spdl_job::JobFile;
use spdl_shard::store::DatasetStore;
use spdl_testkit::{
    LONG,
    processes::{ctl, run},
    proxy::Proxy,
    s3::S3Server,
};
use spdl_types::{Position, SessionId};
use spdl_worker::{
    budget::{Budget, DiskBudget},
    feed::{Access, FeedError, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind, StoreAccess},
    fetch::RetrySettings,
};

/// A memory budget so small that few blocks stay cached.
const MEMORY_BYTES: u64 = 16 << 20;

/// A dataset, its server and the proxy before the server.
pub(crate) struct StorageFixture {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: S3Server,
    pub(crate) proxy: Proxy,
    /// URL of the dataset through the proxy.
    pub(crate) url: String,
}

/// What a rank received.
#[derive(Debug)]
pub(crate) struct DeliveredBatches {
    /// A hash of the bytes of each batch.
    pub(crate) batches: Vec<u64>,
    pub(crate) store: StoreStats,
}

impl StorageFixture {
    /// Packs `count` records of 20 kB, `per_shard` to a shard in blocks of two, and uploads them to a server.
    pub(crate) async fn new(count: u32, per_shard: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (records, dataset) = (folder.path().join("records/class"), folder.path().join("dataset"));
        fs::create_dir_all(&records).expect("a folder for the records");
        for index in 0..count {
            let bytes: Vec<u8> = (0..20_000u32).map(|at| (at.wrapping_mul(at ^ index) >> 3) as u8).collect();
            fs::write(records.join(format!("{index:04}.jpg")), bytes).expect("a record is written");
        }
        let mut pack = ctl();
        pack.arg("pack").arg(folder.path().join("records")).arg(&dataset).args(["--json", "--block-size", "48KiB"]);
        run(pack.args(["--records-per-shard", &per_shard.to_string()])).json();
        let server = S3Server::start_open();
        server.upload(&dataset, "set").await;
        let proxy = Proxy::start(server.address());
        let url = proxy.before(&server.web_url("set"));
        Self { folder, server, proxy, url }
    }

    /// Returns the path of the dataset on the local disk.
    pub(crate) fn local(&self) -> String {
        self.folder.path().join("dataset").display().to_string()
    }

    /// Returns the names of the shards.
    pub(crate) fn shards(&self) -> Vec<String> {
        let files = fs::read_dir(self.local()).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".tar")).collect();
        names.sort();
        names
    }

    /// Starts a feed of `epochs` epochs of the dataset at `url`.
    pub(crate) async fn feed(&self, url: &str, epochs: u32, settings: &FeedSettings) -> FedRank {
        let text = format!(
            "name = \"raw\"\ndataset = {url:?}\nseed = 3\nglobal_batch = 4\nepochs = {epochs}\n\
             [[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = 30000\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
        );
        let facts = DatasetStore::open(&self.local()).unwrap().manifest().await.unwrap().facts();
        let job = JobFile::parse(&text, "raw.toml").unwrap().freeze(&facts).unwrap();
        FedRank::start(job, settings)
    }

    /// Returns what a rank receives from the dataset behind the proxy.
    pub(crate) async fn run(&self, epochs: u32, settings: &FeedSettings) -> Result<DeliveredBatches, FeedError> {
        self.feed(&self.url, epochs, settings).await.rest().await
    }

    /// Returns the batches of a run on the local disk, without faults.
    pub(crate) async fn undisturbed(&self, epochs: u32) -> Vec<u64> {
        self.feed(&self.local(), epochs, &FeedSettings::default()).await.rest().await.unwrap().batches
    }
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct FeedSettings {
    pub(crate) retry: RetrySettings,
    pub(crate) disk: Option<DiskBudget>,
}

impl Default for FeedSettings {
    fn default() -> Self {
        let retry = RetrySettings {
            first_delay: Duration::from_millis(5),
            max_delay: Duration::from_millis(100),
            silence_timeout: Duration::from_secs(1),
            ..RetrySettings::default()
        };
        Self { retry, disk: None }
    }
}

impl FeedSettings {
    pub(crate) fn with_disk(directory: &Path) -> Self {
        Self { disk: Some(DiskBudget { directory: directory.to_owned(), bytes: 64 << 20 }), ..Self::default() }
    }
}

/// A rank and its feed.
pub(crate) struct FedRank {
    pub(crate) feed: RankFeed,
    pub(crate) resources: Arc<Resources>,
    batches: Vec<u64>,
}

impl FedRank {
    fn start(job: spdl_job::Job, settings: &FeedSettings) -> Self {
        let budget = Budget { cores: 1.0, memory_bytes: MEMORY_BYTES, disk: settings.disk.clone() };
        let stores = StoreAccess { retry: settings.retry.clone(), ..StoreAccess::default() };
        let access = Access { stores, ..Access::default() };
        let resources = Resources::with_access("here", budget, access).unwrap();
        let global_batch = job.global_batch;
        let session = Session { id: SessionId(1), job, world: 1, global_batch, start: Position::START };
        let request = FeedRequest { session, rank: 0, from: Position::START, slots: 2, slab: SlabKind::Private };
        let feed = RankFeed::start(&resources, request).unwrap();
        Self { feed, resources, batches: Vec::new() }
    }

    /// Takes one batch; returns `false` at the end.
    pub(crate) async fn next(&mut self) -> Result<bool, FeedError> {
        match tokio::time::timeout(LONG, self.feed.next()).await.expect("a batch within the limit")? {
            FeedEvent::Filled { slot, used_bytes, .. } => {
                let bytes = self.feed.slab().read(slot).expect("the slot holds a batch");
                let mut hash = DefaultHasher::new();
                hash.write(&bytes[..used_bytes as usize]);
                self.batches.push(hash.finish());
                drop(bytes);
                self.feed.free(slot)?;
                Ok(true)
            }
            FeedEvent::End { .. } => Ok(false),
        }
    }

    /// Takes all remaining batches.
    pub(crate) async fn rest(mut self) -> Result<DeliveredBatches, FeedError> {
        while self.next().await? {}
        Ok(DeliveredBatches { batches: self.batches, store: self.resources.store_stats() })
    }
}
