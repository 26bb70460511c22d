//! Workers that ask each other for blocks: what is fetched from the store, counted by a proxy before it.

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset, ctl, run, sum, undisturbed},
    proxy::{FaultScript, Proxy, ReceivedRequest},
    s3::S3Server,
};

const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];
pub(super) const RECORDS: u64 = 4000;
const RECORD_BYTES: u64 = 4096;
pub(super) const BATCH: u64 = 16;

/// The shard of the records, made once: `tar` reads thousands of files for it.
static SHARD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let noise = |record: u64| {
        let words = (0..RECORD_BYTES / 8).map(move |word| (record << 20 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        words.flat_map(u64::to_le_bytes).collect()
    };
    let dataset = TestDataset::of_records((0..RECORDS).map(|record| (noise(record), "1".to_owned())));
    fs::read(dataset.path("dataset/part-0.tar")).expect("a shard")
});

/// Records of noise on a web server behind a proxy.
pub(super) struct StoredRecords {
    dataset: TestDataset,
    proxy: Proxy,
    _server: S3Server,
    url: String,
}

impl StoredRecords {
    pub(super) async fn new() -> Self {
        let dataset = TestDataset { folder: tempfile::tempdir().expect("a temporary folder") };
        let folder = dataset.path("dataset");
        fs::create_dir(&folder).expect("a folder is made");
        fs::write(folder.join("part-0.tar"), &*SHARD).expect("the shard is written");
        run(ctl().arg("index").arg(&folder).args([
            "--block-size",
            "128KiB",
            "--force",
            "--discard-metadata",
            "--json",
        ]))
        .json();
        let server = S3Server::start_open();
        server.upload(&folder, "records").await;
        let proxy = Proxy::start(server.address());
        let url = proxy.before(&server.web_url("records"));
        Self { dataset, proxy, _server: server, url }
    }

    /// Writes a job whose lanes neither three ranks divide nor five: a batch has four samples of each of four lanes.
    pub(super) fn job(&self, name: &str) -> PathBuf {
        let text = format!(
            "name = \"{name}\"\ndataset = {:?}\nseed = 5\nglobal_batch = {BATCH}\nepochs = 2\norder = {{ lanes = 4, window = 200 }}\n\
             [[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = {RECORD_BYTES}\n",
            self.url
        );
        let path = self.dataset.path(format!("{name}.toml"));
        fs::write(&path, text).expect("a job file is written");
        path
    }

    /// Returns the bytes of the shard that were requested, beginning with request number `from`.
    fn requested_bytes(&self, from: usize) -> u64 {
        let bytes = |request: &ReceivedRequest| {
            let (start, end) = request.range.strip_prefix("bytes=")?.split_once('-')?;
            Some(end.parse::<u64>().ok()? + 1 - start.parse::<u64>().ok()?)
        };
        let requests = self.proxy.requests();
        requests[from..].iter().filter(|request| request.path.ends_with(".tar")).filter_map(bytes).sum()
    }

    /// Returns the number of bytes of the shard.
    fn bytes(&self) -> u64 {
        self.shard().len() as u64
    }

    /// Returns the bytes of the shard.
    pub(super) fn shard(&self) -> Vec<u8> {
        fs::read(self.dataset.path("dataset/part-0.tar")).expect("a shard")
    }
}

/// Starts a cluster with a worker on each node. They make no second request for a slow one: requests are counted.
fn cluster(nodes: &[&str], further: &[&str]) -> Cluster {
    let mut cluster = Cluster::start(0);
    for node in nodes {
        cluster.start_worker(node, &[&["--hedge-percent", "0"], further].concat());
    }
    let is_whole = |status: &Value| status["workers"].as_array().is_some_and(|workers| workers.len() == nodes.len());
    cluster.wait_for("all workers", is_whole);
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_epoch_fetches_each_block_once_at_worlds_that_do_not_divide_the_lanes() {
    let records = StoredRecords::new().await;
    let job = records.job("cold");
    let steps = RECORDS / BATCH;
    let expected = undisturbed(&job, steps, &[]);
    let all = records.bytes();
    let fetch = |world: u32, further: &[&str]| {
        let cluster = cluster(&NODES, further);
        cluster.submit(&job);
        let before = records.proxy.requests().len();
        let reports = cluster.pull_all("cold", world, &NODES, &["--steps", &steps.to_string()]);
        assert_eq!(sum(&reports, "content_digest"), expected["content_digest"], "world {world}");
        assert_eq!(sum(&reports, "receipt"), expected["receipt"], "world {world}");
        let fraction = records.requested_bytes(before) as f64 / all as f64;
        let received = cluster.metric("spdl_worker_peer_received_bytes_total");
        println!("world {world}, {further:?}: {fraction:.4} of the bytes from the store, {received} bytes from peers");
        (fraction, received)
    };
    for world in [3, 5] {
        let (fraction, received) = fetch(world, &[]);
        assert!(fraction <= 1.02, "world {world}: {fraction} of the dataset came from the store");
        assert!(received > 0.1 * all as f64, "world {world}: {received} bytes of {all} came from peers");
    }
    let (fraction, received) = fetch(3, &["--peer-requests", "0"]);
    assert!(fraction > 1.2 && received == 0.0, "alone: {fraction} of the dataset, {received} bytes from peers");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_resize_nothing_is_fetched_again_that_a_living_worker_holds() {
    let records = StoredRecords::new().await;
    let nodes = ["node-0", "node-1", "node-2", "node-3"];
    let job = records.job("resized");
    let cluster = cluster(&nodes, &[]);
    cluster.submit(&job);
    let steps = (RECORDS / BATCH).to_string();
    let first = cluster.pull_all("resized", 8, &nodes, &["--steps", &steps]);
    let before = records.proxy.requests().len();
    // On three of the four nodes: the ranks of the fourth are elsewhere from now on.
    let second = cluster.pull_all("resized", 6, &nodes[..3], &["--steps", &steps, "--from", "0:0"]);
    assert_eq!(sum(&first, "content_digest"), sum(&second, "content_digest"));
    let again = records.requested_bytes(before);
    assert_eq!(again, 0, "bytes of {} came from the store again", records.bytes());
    assert!(cluster.metric("spdl_worker_peer_sent_blocks_total") > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_killed_loses_nothing() {
    assert_nothing_is_lost("killed", |worker| worker.kill()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_hangs_loses_nothing() {
    assert_nothing_is_lost("hangs", |worker| worker.signal(Signal::STOP)).await;
}

/// Checks that ranks get everything although something happens to one of their workers, which others ask for blocks.
async fn assert_nothing_is_lost(name: &str, happens: impl FnOnce(&mut ServerProcess)) {
    let records = StoredRecords::new().await;
    let job = records.job(name);
    let steps = RECORDS / BATCH;
    let expected = undisturbed(&job, steps, &[]);
    let mut cluster = cluster(&NODES, &[]);
    cluster.submit(&job);
    // So slow that the others are waiting for blocks of that worker.
    records.proxy.follow(FaultScript { latency: Duration::from_millis(100), ..FaultScript::default() });
    let further = ["--steps", &steps.to_string(), "--progress"];
    let start = |rank: u32| ServerProcess::spawn(&mut cluster.pull(name, rank, 3, NODES[rank as usize], &further));
    let mut ranks: Vec<ServerProcess> = (0..3).map(start).collect();
    ranks[0].progress_to(RECORDS / 12);
    happens(&mut cluster.workers[1].process);
    let reports: Vec<Value> = ranks.into_iter().map(ServerProcess::finish).collect();
    assert_eq!(sum(&reports, "content_digest"), expected["content_digest"]);
    assert_eq!(sum(&reports, "receipt"), expected["receipt"]);
}
