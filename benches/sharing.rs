//! Measures what the second of two sessions on one worker costs: CPU time of the worker for two sessions that have the same samples,
//! beside one; started one after the other; with nothing in common; and with sharing switched off. Then what two different jobs of one
//! dataset read from its store.
//!
//! `cargo bench --bench sharing [-- --steps N] [--rounds N] [--pictures N] [--cases N]`: `--cases` measures only the first ones.

mod arguments;
mod rank;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use spdl_shard::{manifest::Manifest, store::DatasetStore};
use spdl_testkit::{
    median,
    processes::{Cluster, ServerProcess, TestDataset},
    proxy::Proxy,
    s3::S3Server,
};
use spdl_types::SessionId;
use spdl_worker::{
    budget::Budget,
    feed::{RankFeed, Resources},
};

const GLOBAL_BATCH: u32 = 64;
const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
                       ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]\n\
                       [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
/// A column that is cheap to decode: as fast as a copy.
const BYTES: &str = "[[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n";

/// Sessions of jobs on one worker.
struct Case<'c> {
    what: &'c str,
    jobs: &'c [&'c str],
    /// Time between the starts of two sessions.
    apart: Duration,
    arguments: &'c [&'c str],
}

/// The result of a case: CPU seconds of the worker, and samples that were taken and kept.
struct Measured {
    cpu_s: f64,
    taken: f64,
    kept: f64,
}

fn job_text(name: &str, dataset: &str, seed: u32, columns: &str) -> String {
    format!(
        "name = \"{name}\"\ndataset = {dataset:?}\nseed = {seed}\nglobal_batch = {GLOBAL_BATCH}\nepochs = 1000000\n{columns}"
    )
}

fn measure(jobs: &[PathBuf], Case { jobs: names, apart, arguments, .. }: &Case<'_>, steps: u64) -> Measured {
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &[&["--cores", "2", "--memory", "1GiB"][..], arguments].concat());
    jobs.iter().for_each(|job| cluster.submit(job));
    let steps = steps.to_string();
    let before = cluster.metric("spdl_worker_cpu_seconds_total");
    let mut ranks = Vec::new();
    for (number, name) in names.iter().enumerate() {
        if number > 0 {
            thread::sleep(*apart);
        }
        ranks.push(ServerProcess::spawn(&mut cluster.pull(name, 0, 1, "node-0", &["--steps", &steps])));
    }
    for rank in ranks {
        assert_eq!(rank.finish()["transport"], "local");
    }
    let metric = |name: &str| cluster.metric(&format!("spdl_worker_{name}_total"));
    let [taken, kept] = ["shared_samples", "shared_samples_kept"].map(metric);
    Measured { cpu_s: metric("cpu_seconds") - before, taken, kept }
}

/// Measures all cases, in turn in each round, and prints the medians beside that of one session.
fn cpu(pictures: u64, steps: u64, rounds: u64, count: usize) {
    let dataset = TestDataset::of_pictures(pictures, pictures.div_ceil(8));
    let folder = dataset.path("dataset").to_string_lossy().into_owned();
    let write = |(name, seed, columns): (&str, u32, &str)| {
        let path = dataset.path(format!("{name}.toml"));
        fs::write(&path, job_text(name, &folder, seed, columns)).expect("a job file is written");
        path
    };
    let jobs = [
        ("first", 5, COLUMNS),
        ("second", 5, COLUMNS),
        ("other-seed", 6, COLUMNS),
        ("raw", 5, BYTES),
        ("raw-too", 5, BYTES),
    ]
    .map(write);
    let (now, off) = (Duration::ZERO, ["--share-samples", "off"]);
    let case = |what, jobs, apart, arguments| Case { what, jobs, apart, arguments };
    let cases = [
        case("one session", &["first"][..], now, &[][..]),
        case("two sessions of one job", &["first", "second"], now, &[]),
        case("the same, not shared", &["first", "second"], now, &off),
        case("the same, 2 s apart", &["first", "second"], Duration::from_secs(2), &[]),
        case("one session, not shared", &["first"], now, &off),
        case("nothing in common", &["first", "other-seed"], now, &[]),
        case("the same, not shared", &["first", "other-seed"], now, &off),
        case("one session of bytes", &["raw"], now, &[]),
        case("two sessions of bytes", &["raw", "raw-too"], now, &[]),
        case("the same, not shared", &["raw", "raw-too"], now, &off),
    ];
    let cases = &cases[..count.min(cases.len())];
    let rounds_of = |_| cases.iter().map(|case| measure(&jobs, case, steps)).collect();
    let measured: Vec<Vec<Measured>> = (0..rounds).map(rounds_of).collect();
    println!("{steps} batches of {GLOBAL_BATCH} for each session, median of {rounds} rounds");
    println!("{:<26} {:>7} {:>8} {:>8} {:>8}", "", "CPU, s", "of one", "taken", "kept");
    let mut one = 0;
    for (number, case) in cases.iter().enumerate() {
        if case.jobs.len() == 1 && case.arguments.is_empty() {
            one = number;
        }
        let median_of =
            |value: fn(&Measured) -> f64| median(measured.iter().map(|round| value(&round[number])).collect());
        // Compare within a round, because the machine's speed changes from round to round.
        let of_one = measured.iter().map(|round| round[number].cpu_s / round[one].cpu_s).collect();
        let [cpu_s, taken, kept] =
            [|m: &Measured| m.cpu_s, |m: &Measured| m.taken, |m: &Measured| m.kept].map(median_of);
        println!("{:<26} {cpu_s:>7.2} {:>8.2} {taken:>8} {kept:>8}", case.what, median(of_one));
    }
}

/// Pulls `steps` batches of jobs with the same dataset on one worker, the jobs in turn. Returns the requests for bytes of shards, and
/// the mean number of times that one of these bytes was read.
async fn reads(server: &S3Server, folder: &Path, jobs: &[(u32, &str)], memory_bytes: u64) -> (usize, f64) {
    let proxy = Proxy::start(server.address());
    let url = proxy.before(&server.web_url("pictures"));
    let store = DatasetStore::open(folder.to_str().expect("UTF-8")).expect("a dataset");
    let manifest: Manifest = store.manifest().await.expect("its manifest");
    let facts = manifest.facts();
    let resources = Resources::new("bench", Budget { cores: 2.0, memory_bytes, disk: None }).expect("threads");
    let feed = |(number, (seed, columns)): (usize, &(u32, &str))| {
        let text = job_text(&format!("job-{number}"), &url, *seed, columns);
        let mut request = rank::request(&rank::job(&text, &facts), 1, 0, 2);
        request.session.id = SessionId(number as u64);
        RankFeed::start(&resources, request).expect("memory")
    };
    let mut feeds: Vec<RankFeed> = jobs.iter().enumerate().map(feed).collect();
    // One epoch.
    for _ in 0..facts.samples / u64::from(GLOBAL_BATCH) {
        for feed in &mut feeds {
            assert!(rank::take(feed).await, "it ended");
        }
    }
    drop(feeds);
    let requests = proxy.requests();
    let ranges = requests.iter().filter(|request| request.path.ends_with(".tar")).map(|request| {
        let (start, end) =
            request.range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).expect("a range");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        number(end) + 1 - number(start)
    });
    let ranges: Vec<u64> = ranges.collect();
    let bytes: u64 = manifest.shards().map(|shard| shard.bytes).sum();
    (ranges.len(), ranges.iter().sum::<u64>() as f64 / bytes as f64)
}

async fn store(pictures: u64) {
    let dataset = TestDataset::of_pictures(pictures, pictures.div_ceil(8));
    let (server, folder) = (S3Server::start_open(), dataset.path("dataset"));
    server.upload(&folder, "pictures").await;
    println!("\nan epoch of {pictures} pictures from a store, with memory for all of them");
    println!("{:<34} {:>9} {:>18}", "", "requests", "reads of each byte");
    for (what, jobs) in [
        ("one job", &[(5, COLUMNS)][..]),
        ("two jobs with other columns", &[(5, COLUMNS), (5, BYTES)][..]),
        ("two jobs with other orders", &[(5, COLUMNS), (6, COLUMNS)][..]),
        ("two sessions of one job", &[(5, COLUMNS), (5, COLUMNS)][..]),
    ] {
        let (requests, times) = reads(&server, &folder, jobs, 1 << 30).await;
        println!("{what:<34} {requests:>9} {times:>18.3}");
    }
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let pictures = arguments::number("--pictures", 1024);
    let (steps, rounds) = (arguments::number("--steps", 60), arguments::number("--rounds", 3));
    let cases = arguments::number("--cases", u64::MAX);
    cpu(pictures, steps, rounds, usize::try_from(cases).unwrap_or(usize::MAX));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(store(pictures));
}
