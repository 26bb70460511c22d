//! Compares what the diagnosis predicts of a change with what the change gives: cores, the store's latency and bytes per
//! second, the part of the bytes that comes from a cache, and the trainer's step. Real processes on loopback, and a proxy
//! before the store.
//!
//! `cargo bench --bench insight [-- --seconds N --rounds N]`

mod arguments;

use std::time::{Duration, Instant};

use spdl_client::{Client, Settings};
use spdl_core::insight::{Change, Diagnosis};
use spdl_testkit::{
    processes::{self, Cluster},
    proxy::FaultScript,
    stored::StoredPictures,
};

/// The time until caches, slots and the window of the diagnosis hold nothing of the start.
const SETTLE: Duration = Duration::from_secs(4);
const JOB: &str = "what-if";
/// Samples of a batch.
const BATCH: u32 = 16;
/// A memory that holds little of the dataset.
const LITTLE: &str = "16MiB";
/// Latency that the store has of itself, in milliseconds.
const OWN_LATENCY_MS: f64 = 1.0;

/// The resources of a pipeline.
#[derive(Clone, Copy, Debug)]
struct Resources {
    cores: f64,
    latency_ms: u64,
    /// Of the store; 0 for no limit.
    bytes_per_s: u64,
    memory: &'static str,
    step: Duration,
}

const BASE: Resources = Resources { cores: 1.0, latency_ms: 0, bytes_per_s: 0, memory: "256MiB", step: Duration::ZERO };

/// A change of the resources: what it is, before and after, and how the diagnosis is asked for it.
struct Case {
    name: String,
    before: Resources,
    after: Resources,
    change: Asked,
}

/// How the diagnosis is asked.
enum Asked {
    Known(Change),
    /// As much of the bytes comes from the store as was measured.
    Fetched,
}

/// What was measured of a pipeline.
struct Measured {
    samples_per_s: f64,
    found: Diagnosis,
    /// Bytes that came from the store, for each sample.
    fetched_bytes: f64,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, before, after, change| cases.push(Case { name, before, after, change });
    let change = Change::default();
    for cores in [0.5, 1.5, 2.0] {
        let asked = Asked::Known(Change { cores: cores - BASE.cores, ..change });
        add(format!("cores 1 -> {cores}"), BASE, Resources { cores, ..BASE }, asked);
    }
    let remote = Resources { memory: LITTLE, ..BASE };
    for (from, to) in [(10, 0), (10, 50), (50, 10), (50, 200), (200, 50)] {
        let at = |latency_ms| Resources { latency_ms, ..remote };
        let latency = (to as f64 + OWN_LATENCY_MS) / (from as f64 + OWN_LATENCY_MS);
        add(format!("latency {from} -> {to} ms"), at(from), at(to), Asked::Known(Change { latency, ..change }));
    }
    for (from, to) in [(4, 2), (2, 4), (4, 8)] {
        let at = |megabytes: u64| Resources { bytes_per_s: megabytes * 1_000_000, ..remote };
        let bandwidth = to as f64 / from as f64;
        add(format!("store {from} -> {to} MB/s"), at(from), at(to), Asked::Known(Change { bandwidth, ..change }));
    }
    let slow = Resources { bytes_per_s: 4_000_000, ..remote };
    for memory in ["24MiB", "32MiB"] {
        add(format!("memory 16 -> {memory}"), slow, Resources { memory, ..slow }, Asked::Fetched);
    }
    for (from, to) in [(100, 200), (200, 100), (400, 50)] {
        let at = |ms| Resources { step: Duration::from_millis(ms), ..BASE };
        let asked = Asked::Known(Change { step: to as f64 / from as f64, ..change });
        add(format!("step {from} -> {to} ms"), at(from), at(to), asked);
    }
    cases
}

/// Runs a pipeline with these resources.
async fn measure(pictures: &StoredPictures, resources: &Resources, over: Duration) -> Measured {
    let mut cluster = Cluster::start(0);
    let cores = resources.cores.to_string();
    cluster.start_worker("node-0", &["--cores", &cores, "--memory", resources.memory, "--hedge-percent", "0"]);
    cluster.submit(&pictures.job_of(JOB, "epochs = 1000000", 64));
    let latency = Duration::from_millis(resources.latency_ms);
    pictures.proxy.follow(FaultScript { latency, bytes_per_s: resources.bytes_per_s, ..FaultScript::default() });
    let settings = Settings {
        coordinators: cluster.address.clone(),
        certs: cluster.certs("client"),
        job: JOB.to_owned(),
        node: Some("node-0".to_owned()),
        ..Settings::default()
    };
    let mut client = Client::builder().settings(settings).connect(0, 1).await.expect("the cluster lets a rank join");
    let (started, mut samples, mut counted_since) = (Instant::now(), 0, None);
    while counted_since.is_none_or(|since: Instant| since.elapsed() < over) {
        let batch = client.next().await.expect("a batch").expect("the job has no end");
        tokio::time::sleep(resources.step).await;
        drop(batch);
        match counted_since {
            Some(_) => samples += u64::from(BATCH),
            None if started.elapsed() >= SETTLE => counted_since = Some(Instant::now()),
            None => {}
        }
    }
    let samples_per_s = samples as f64 / counted_since.expect("counting began").elapsed().as_secs_f64();
    let found = client.diagnoser().diagnose().await.expect("the coordinator answers").expect("there is a history");
    client.close().await;
    let worker = found.worker.as_ref().expect("the rank has a home");
    let fetched_per_s =
        worker.stages.iter().find(|stage| stage.stage.name() == "fetch").map_or(0.0, |stage| stage.bytes_per_s);
    let fetched_bytes = fetched_per_s / found.samples_per_s();
    Measured { samples_per_s, found, fetched_bytes }
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let over = Duration::from_secs(arguments::number("--seconds", 11));
    let rounds = arguments::number("--rounds", 1);
    processes::set_limit(Duration::from_secs(3_600));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let pictures = runtime.block_on(StoredPictures::new(600, 100, &[]));
    println!("crops of 64 pixels, batches of {BATCH}; samples/s over {} s", over.as_secs());
    println!(
        "{:<22} {:>16} {:>10} {:>10} {:>10} {:>7}",
        "change", "limit before", "before", "predicted", "measured", "error"
    );
    let mut errors = Vec::new();
    for case in (0..rounds).flat_map(|_| cases()) {
        let before = runtime.block_on(measure(&pictures, &case.before, over));
        let after = runtime.block_on(measure(&pictures, &case.after, over));
        let change = match case.change {
            Asked::Known(change) => change,
            Asked::Fetched => Change { fetched: after.fetched_bytes / before.fetched_bytes, ..Change::default() },
        };
        let predicted = before.found.what_if(&change);
        let error = predicted / after.samples_per_s - 1.0;
        errors.push(error.abs());
        println!(
            "{:<22} {:>16} {:>10.1} {predicted:>10.1} {:>10.1} {:>6.0} %",
            case.name,
            before.found.limit().map_or("unknown", |limit| limit.name()),
            before.samples_per_s,
            after.samples_per_s,
            100.0 * error
        );
    }
    errors.sort_by(f64::total_cmp);
    let percent = |error: Option<&f64>| 100.0 * error.copied().unwrap_or_default();
    println!("median error {:.0} %, worst {:.0} %", percent(errors.get(errors.len() / 2)), percent(errors.last()));
}
