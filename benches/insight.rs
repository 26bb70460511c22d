//! Compares the effect of a change that the diagnosis predicts with the measured effect: cores, the store's latency and
//! bytes per second, the part of the bytes that comes from a cache, and the trainer's step. Real processes on loopback,
//! and a proxy before the store.
//!
//! `cargo bench --bench insight [-- --seconds N --rounds N]`

mod arguments;

use std::time::{Duration, Instant};

use spdl_client::{Client, Settings};
use spdl_insight::{Diagnosis, ResourceChange};
use spdl_testkit::{
    processes::{self, Cluster},
    proxy::FaultScript,
    stored::StoredPictures,
};

/// The shortest time after which the windows of the diagnosis contain nothing of the start.
const SETTLE: Duration = Duration::from_secs(4);
/// The longest time until the caches are full.
const FILL: Duration = Duration::from_secs(60);
const JOB: &str = "what-if";
/// Samples of a batch.
const BATCH: u32 = 16;
const MIB: u64 = 1 << 20;
/// The part of a worker's memory that is its cache.
const CACHE: f64 = 0.75;

/// The resources of a pipeline.
#[derive(Clone, Copy, Debug)]
struct Resources {
    cores: f64,
    latency_ms: u64,
    /// The bandwidth of the store; 0 for no limit.
    megabytes_per_s: u64,
    memory_mib: u64,
    step_ms: u64,
}

const BASE: Resources = Resources { cores: 1.0, latency_ms: 0, megabytes_per_s: 0, memory_mib: 256, step_ms: 0 };
/// Most of the dataset does not fit into its memory.
const REMOTE: Resources = Resources { memory_mib: 16, ..BASE };

/// A resource that takes several values.
struct Sweep {
    name: &'static str,
    points: Vec<Resources>,
    value: fn(&Resources) -> f64,
    /// The change from one value to another, for a pipeline that was measured.
    change: fn(&Measured, from: f64, to: f64) -> ResourceChange,
}

/// The measurements of a pipeline.
struct Measured {
    samples_per_s: f64,
    found: Diagnosis,
}

fn sweeps() -> [Sweep; 5] {
    [
        Sweep {
            name: "cores",
            points: [0.5, 1.0, 1.5, 2.0].map(|cores| Resources { cores, ..BASE }).to_vec(),
            value: |at| at.cores,
            change: |_, from, to| ResourceChange { cores: to - from, ..ResourceChange::default() },
        },
        Sweep {
            name: "latency, ms",
            points: [0, 10, 50, 200].map(|latency_ms| Resources { latency_ms, step_ms: 20, ..REMOTE }).to_vec(),
            value: |at| at.latency_ms as f64,
            // The network and the store have a latency of their own.
            change: |before, from, to| {
                let first_byte_ms = before.first_byte_ms();
                ResourceChange { latency: (first_byte_ms + to - from) / first_byte_ms, ..ResourceChange::default() }
            },
        },
        Sweep {
            name: "store, MB/s",
            points: [4, 8, 16, 32].map(|megabytes_per_s| Resources { megabytes_per_s, ..REMOTE }).to_vec(),
            value: |at| at.megabytes_per_s as f64,
            change: |_, from, to| ResourceChange { bandwidth: to / from, ..ResourceChange::default() },
        },
        Sweep {
            name: "memory, MiB",
            points: [16, 32, 48, 64].map(|memory_mib| Resources { megabytes_per_s: 16, memory_mib, ..REMOTE }).to_vec(),
            value: |at| at.memory_mib as f64,
            change: |_, from, to| ResourceChange {
                memory_bytes: (to - from) * MIB as f64 * CACHE,
                ..ResourceChange::default()
            },
        },
        Sweep {
            name: "step, ms",
            points: [400, 200, 100, 50].map(|step_ms| Resources { step_ms, ..BASE }).to_vec(),
            value: |at| at.step_ms as f64,
            change: |_, from, to| ResourceChange { step: to / from, ..ResourceChange::default() },
        },
    ]
}

impl Measured {
    /// Returns the mean time until the first byte of a reply of the store.
    fn first_byte_ms(&self) -> f64 {
        let store = &self.found.worker.as_ref().expect("the rank has a home").store;
        store.first_byte_ns as f64 / 1e6 / store.answers as f64
    }
}

/// Runs a pipeline with these resources.
async fn measure(pictures: &StoredPictures, resources: &Resources, over: Duration) -> Measured {
    let mut cluster = Cluster::start(0);
    let (cores, memory) = (resources.cores.to_string(), format!("{}MiB", resources.memory_mib));
    cluster.start_worker("node-0", &["--cores", &cores, "--memory", &memory, "--hedge-percent", "0"]);
    cluster.submit(&pictures.job_of(JOB, "epochs = 1000000", 64));
    let latency = Duration::from_millis(resources.latency_ms);
    let bytes_per_s = resources.megabytes_per_s * 1_000_000;
    pictures.proxy.follow(FaultScript { latency, bytes_per_s, ..FaultScript::default() });
    let settings = Settings {
        coordinators: cluster.address.clone(),
        certs: cluster.certs("client"),
        job: JOB.to_owned(),
        node: Some("node-0".to_owned()),
        ..Settings::default()
    };
    let mut client = Client::builder().settings(settings).connect(0, 1).await.expect("the cluster lets a rank join");
    let step = Duration::from_millis(resources.step_ms);
    let started = Instant::now();
    while started.elapsed() < SETTLE {
        train(&mut client, step, Duration::from_secs(1)).await;
    }
    while is_filling(&diagnose(&client).await) && started.elapsed() < FILL {
        train(&mut client, step, Duration::from_secs(1)).await;
    }
    let samples_per_s = train(&mut client, step, over).await;
    let found = diagnose(&client).await;
    client.close().await;
    Measured { samples_per_s, found }
}

/// Takes batches for some time, and returns the samples per second.
async fn train(client: &mut Client, step: Duration, time: Duration) -> f64 {
    let (started, mut samples) = (Instant::now(), 0);
    while started.elapsed() < time {
        let batch = client.next().await.expect("a batch").expect("the job has no end");
        tokio::time::sleep(step).await;
        drop(batch);
        samples += u64::from(BATCH);
    }
    samples as f64 / started.elapsed().as_secs_f64()
}

async fn diagnose(client: &Client) -> Diagnosis {
    client.diagnoser().diagnose().await.expect("the coordinator answers").expect("there is a history")
}

/// Returns whether the caches still fill up: they have room for the blocks that are fetched.
fn is_filling(found: &Diagnosis) -> bool {
    let worker = found.worker.as_ref().expect("the rank has a home");
    worker.cache_growth_bytes > MIB
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
        "{:<12} {:>14} {:>16} {:>10} {:>10} {:>10} {:>7}",
        "change of", "from, to", "limit before", "before", "predicted", "measured", "error"
    );
    let mut errors = Vec::new();
    for sweep in (0..rounds).flat_map(|_| sweeps()) {
        let measured: Vec<(f64, Measured)> = sweep
            .points
            .iter()
            .map(|point| ((sweep.value)(point), runtime.block_on(measure(&pictures, point, over))))
            .collect();
        for pair in measured.windows(2) {
            for [(from, before), (to, after)] in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
                let predicted = before.found.what_if(&(sweep.change)(before, *from, *to));
                let error = predicted / after.samples_per_s - 1.0;
                errors.push(error.abs());
                println!(
                    "{:<12} {:>14} {:>16} {:>10.1} {predicted:>10.1} {:>10.1} {:>5.0} %",
                    sweep.name,
                    format!("{from} -> {to}"),
                    before.found.limit().map_or("unknown", |limit| limit.name()),
                    before.samples_per_s,
                    after.samples_per_s,
                    100.0 * error
                );
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let percent = |error: Option<&f64>| 100.0 * error.copied().unwrap_or_default();
    println!("median error {:.0} %, worst {:.0} %", percent(errors.get(errors.len() / 2)), percent(errors.last()));
}
