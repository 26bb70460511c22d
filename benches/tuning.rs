//! Compares tuned requests in flight and read-ahead with fixed ones, for stores that answer late or refuse requests, in
//! samples per second of a rank's feed. The store is an S3 server of this process, behind a proxy.
//!
//! Whole epochs are measured, so each setting reads the same samples, finds the same part of them in its cache, and begins
//! and ends with as much read ahead.
//!
//! `cargo bench --bench tuning [-- --rounds N] [--seconds N] [--warm-s N] [--settle-s N] [--only N]`

mod arguments;
mod rank;

use std::time::{Duration, Instant};

use spdl_insight::{
    StoreStats,
    tuning::{Setting, TuningChange, TuningSettings, TuningStatus},
};
use spdl_job::Job;
use spdl_testkit::{
    proxy::{FaultScript, Proxy},
    s3::S3Server,
};
use spdl_worker::feed::{Access, RankFeed};

/// Records of the dataset, and their bytes.
const RECORDS: usize = 8_000;
const RECORD_BYTES: usize = 4_000;
const GLOBAL_BATCH: usize = 64;
const STEPS_OF_EPOCH: u64 = (RECORDS / GLOBAL_BATCH) as u64;
/// About three records: a request is short, as for loose files, so that this machine is not the limit.
const BLOCK_BYTES: u64 = 16 << 10;
/// Holds the indexes, the blocks in use and those ahead, and a part of the dataset.
const MEMORY_BYTES: u64 = 20 << 20;

/// A store, and the fixed values that are compared with tuning: requests in flight and steps read ahead.
struct Case {
    name: &'static str,
    latency_ms: u64,
    /// 0 for no limit.
    requests_per_s: u64,
    fixed: &'static [(u32, u32)],
}

const CASES: [Case; 2] = [
    Case {
        name: "50 ms until the first byte",
        latency_ms: 50,
        requests_per_s: 0,
        fixed: &[(32, 16), (64, 16), (128, 16), (256, 32), (512, 32), (512, 64)],
    },
    Case {
        name: "10 ms, 200 requests/s",
        latency_ms: 10,
        requests_per_s: 200,
        fixed: &[(4, 16), (8, 16), (16, 16), (32, 16), (64, 16), (128, 16)],
    },
];

/// The values that tuning begins with.
const INITIAL: (u32, u32) = (32, 16);

/// A measured run.
struct Run {
    samples_per_s: f64,
    /// Requests that the store answered per second.
    answers_per_s: f64,
    /// Fraction of the requests that were made again.
    retried: f64,
    /// The values at its end.
    values: [u32; 2],
    changes: Vec<TuningChange>,
}

/// Pulls at least one epoch and as long as `settle`, in which nothing is measured, and then whole epochs for at least as long
/// as `measured`.
async fn pull(job: &Job, tuning: TuningSettings, settle: Duration, measured: Duration) -> Run {
    let resources = rank::resources(MEMORY_BYTES, Access { tuning, ..Access::default() });
    let mut feed = rank::start(&resources, job, 0);
    pull_epochs(&mut feed, settle).await;
    let (began, before) = (Instant::now(), resources.store_stats());
    let epochs = pull_epochs(&mut feed, measured).await;
    let (seconds, store) = (began.elapsed().as_secs_f64(), resources.store_stats());
    let counted = |value: fn(&StoreStats) -> u64| value(&store).saturating_sub(value(&before)) as f64;
    let TuningStatus { values, changes } = resources.tuning();
    Run {
        samples_per_s: (epochs * STEPS_OF_EPOCH * u64::from(job.global_batch)) as f64 / seconds,
        answers_per_s: counted(|store| store.answers) / seconds,
        retried: counted(|store| store.retries) / counted(|store| store.requests).max(1.0),
        values: [values[0].current, values[1].current],
        changes,
    }
}

/// Pulls whole epochs until some time has passed, and returns their number.
async fn pull_epochs(feed: &mut RankFeed, for_at_least: Duration) -> u64 {
    let (began, mut epochs) = (Instant::now(), 0);
    while epochs == 0 || began.elapsed() < for_at_least {
        for _ in 0..STEPS_OF_EPOCH {
            assert!(rank::take(feed).await, "it ended");
        }
        epochs += 1;
    }
    epochs
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (rounds, warm) = (arguments::number("--rounds", 2), Duration::from_secs(arguments::number("--warm-s", 4)));
    let measured = Duration::from_secs(arguments::number("--seconds", 12));
    let settle = Duration::from_secs(arguments::number("--settle-s", 40));
    let only = arguments::number("--only", 0);
    let server = S3Server::start_open();
    let proxy = Proxy::start(server.address());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a directory for temporary files");
        let store = rank::pack_records(folder.path(), RECORDS, RECORD_BYTES, BLOCK_BYTES).await;
        let facts = store.manifest().await.expect("the manifest just written").facts();
        server.upload(&folder.path().join("dataset"), "records").await;
        let url = proxy.before(&server.web_url("records"));
        let job = rank::job_of_records(&url, &facts, GLOBAL_BATCH, RECORD_BYTES);
        for (number, case) in (1..).zip(&CASES) {
            if only != 0 && only != number {
                continue;
            }
            let Case { name, latency_ms, requests_per_s, fixed } = *case;
            let latency = Duration::from_millis(latency_ms);
            proxy.follow(FaultScript { latency, requests_per_s, ..FaultScript::default() });
            for round in 0..rounds {
                println!("{name}, round {round}");
                println!(
                    "{:>8} {:>10} {:>10} {:>10} {:>8}",
                    "requests", "read ahead", "samples/s", "answers/s", "retried"
                );
                let (mut best, mut initial) = (0.0_f64, 0.0);
                for values in fixed {
                    let (requests, read_ahead) = (Setting::Pinned(values.0), Setting::Pinned(values.1));
                    let run = pull(&job, TuningSettings { requests, read_ahead }, warm, measured).await;
                    print(&run);
                    best = best.max(run.samples_per_s);
                    if *values == INITIAL {
                        initial = run.samples_per_s;
                    }
                }
                let run = pull(&job, TuningSettings::default(), settle, measured).await;
                print(&run);
                let of = |rate: f64| run.samples_per_s / rate;
                println!("  tuned: {:.2} of the best fixed, {:.2} of 32 requests and 16 steps", of(best), of(initial));
                for TuningChange { value, from, to, reason, at_ms } in &run.changes {
                    println!("  after {:.1} s {value} {from} -> {to}: {reason}", *at_ms as f64 / 1e3);
                }
            }
        }
    });
}

fn print(run: &Run) {
    let Run { samples_per_s, answers_per_s, retried, values: [requests, read_ahead], .. } = run;
    println!("{requests:>8} {read_ahead:>10} {samples_per_s:>10.0} {answers_per_s:>10.0} {retried:>8.3}");
}
