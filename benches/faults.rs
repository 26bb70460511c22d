//! Measures the cost of a faulty store: in each round one worker reads through a proxy that injects faults, and another
//! reads through the same proxy without faults.
//!
//! The disturbed run has 1 % bad records, a store that fails one request in twenty, and one object in a hundred that is
//! ten times slower. The undisturbed run has the same dataset without bad records, and the same latency.
//!
//! `cargo bench --bench faults -- [--images N] [--rounds N] [--latency-ms N]`

mod arguments;

use std::{path::Path, time::Duration};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, run},
    proxy::{FaultScript, RequestFault},
    stored::StoredPictures,
};

/// The number of pictures in a shard: an object of some 350 kB.
const PER_SHARD: u64 = 8;
const RANKS: u32 = 2;

/// Returns the images per second of all ranks together, from a worker with empty caches, and the worker's statistics of
/// its stores.
fn pull(job: &Path, name: &str, stored: &StoredPictures, script: FaultScript) -> (f64, Value) {
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "1", "--store-silence-s", "2"]);
    cluster.submit(job);
    stored.proxy.follow(script);
    let reports = cluster.pull_all(name, RANKS, &["node-0"], &["--from", "0:0"]);
    stored.proxy.follow(FaultScript::default());
    let rate = reports.iter().map(|report| report["images_per_s"].as_f64().expect("a number")).sum();
    let status = run(cluster.ctl("admin", ["status"]).arg("--json")).json();
    (rate, status["workers"][0]["store"].clone())
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (images, rounds) = (arguments::number("--images", 1600), arguments::number("--rounds", 3));
    let latency = Duration::from_millis(arguments::number("--latency-ms", 15));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bad: Vec<u64> = (0..images).filter(|image| image % 100 == 50).collect();
    let good = runtime.block_on(StoredPictures::new(images, PER_SHARD, &[]));
    let hurt = runtime.block_on(StoredPictures::new(images, PER_SHARD, &bad));
    let keys = "epochs = 2\nmax_bad_fraction = 0.02";
    let (good_job, hurt_job) = (good.job_of("undisturbed", keys, 224), hurt.job_of("disturbed", keys, 224));
    println!(
        "{images} pictures in {} objects, 2 epochs, crop 224, {RANKS} ranks, {latency:?} a request",
        images / PER_SHARD
    );
    println!("{:<14} {:>10} {:>8}  store", "", "images/s", "ratio");
    for round in 0..rounds {
        let quiet = FaultScript { latency, ..FaultScript::default() };
        let (base, _) = pull(&good_job, "undisturbed", &good, quiet.clone());
        println!("{:<14} {base:>10.0} {:>8.2}", "undisturbed", 1.0);
        let faults = vec![
            RequestFault::Status(503, None),
            RequestFault::Reset,
            RequestFault::Truncated,
            RequestFault::FlippedByte,
        ];
        let script = FaultScript { seed: round + 1, one_request_in: 20, faults, one_slow_object_in: 100, ..quiet };
        let (rate, store) = pull(&hurt_job, "disturbed", &hurt, script);
        println!("{:<14} {rate:>10.0} {:>8.2}  {store}", "disturbed", rate / base);
    }
}
