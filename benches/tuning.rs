//! Compares tuned requests in flight and read-ahead with fixed ones, for stores that answer late or refuse requests, in
//! samples per second of a rank's feed. The store is an S3 server of this process, behind a proxy.
//!
//! `cargo bench --bench tuning [-- --rounds N] [--seconds N] [--warm-s N] [--settle-s N]`

mod arguments;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use spdl_core::{
    Position,
    job::{Job, JobFile},
    messages::{Session, SessionId},
    tuning::{Setting, TuningChange, TuningSettings},
};
use spdl_shard::{
    dataset::{PackOptions, PackSource, pack},
    store::DatasetStore,
};
use spdl_testkit::{
    proxy::{FaultScript, Proxy},
    s3::S3Server,
};
use spdl_worker::{
    budget::Budget,
    feed::{Access, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind},
};

/// Records of the dataset, and their bytes.
const RECORDS: usize = 16_000;
const RECORD_BYTES: usize = 4_000;
/// About three records: a request is short, as for loose files, so that this machine is not the limit.
const BLOCK_BYTES: u64 = 16 << 10;
/// Holds the indexes, the blocks in use and those ahead, and a third of the dataset at most.
const MEMORY_BYTES: u64 = 32 << 20;
/// The fixed values that are compared: requests in flight and steps read ahead.
const FIXED: [(u32, u32); 9] =
    [(2, 16), (4, 16), (8, 16), (16, 16), (32, 16), (64, 16), (128, 16), (256, 16), (512, 64)];

/// Packs the records into a folder.
async fn dataset(folder: &Path) -> DatasetStore {
    let files = folder.join("files");
    fs::create_dir_all(&files).expect("a folder");
    let mut list = String::new();
    for record in 0..RECORDS {
        let name = format!("{record:05}.bin");
        let bytes: Vec<u8> = (0..RECORD_BYTES).map(|at| (record * 31 + at * 7) as u8).collect();
        fs::write(files.join(&name), bytes).expect("a file");
        list.push_str(&format!("{name}\t{}\n", record % 10));
    }
    fs::write(files.join("list.txt"), list).expect("a file");
    let path = folder.join("dataset");
    let store = DatasetStore::create_with(path.to_str().expect("UTF-8"), &Default::default()).expect("a folder");
    let options =
        PackOptions { block_bytes: BLOCK_BYTES, ..PackOptions::new(PackSource::FileList(files.join("list.txt"))) };
    pack(&store, &options, &|_| {}).await.expect("files are packed");
    store
}

async fn job(url: &str) -> Job {
    let text = format!(
        "name = \"bench\"\ndataset = \"{url}\"\nglobal_batch = 64\nepochs = 1000000\n\
         [[column]]\nname = \"bytes\"\nfrom = \"bin\"\ndecode = \"bytes\"\nmax_bytes = {RECORD_BYTES}\n"
    );
    let manifest = DatasetStore::open(url).expect("a URL").manifest().await.expect("a dataset");
    JobFile::parse(&text, "bench").and_then(|file| file.freeze(&manifest.facts())).expect("a valid job")
}

/// A measured run.
struct Run {
    samples_per_s: f64,
    /// The values at its end.
    values: [u32; 2],
    retries: u64,
    changes: Vec<TuningChange>,
}

/// Pulls for some seconds after others in which nothing is measured.
async fn pull(job: &Job, tuning: TuningSettings, settle: Duration, measured: Duration) -> Run {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let budget = Budget { cores, memory_bytes: MEMORY_BYTES, disk: None };
    let access = Access { tuning, ..Access::default() };
    let resources = Resources::with_access("bench", budget, access).expect("threads");
    let (global_batch, start) = (job.global_batch, Position::START);
    let session = Session { id: SessionId(1), job: job.clone(), world: 1, global_batch, start };
    let request = FeedRequest { session, rank: 0, from: start, slots: 0, slab: SlabKind::Private };
    let mut feed = RankFeed::start(&resources, request).expect("memory for the slots");
    let began = Instant::now();
    let (mut samples, mut since) = (0_u64, None);
    while began.elapsed() < settle + measured {
        let FeedEvent::Filled { slot, .. } = feed.next().await.expect("a good dataset") else { panic!("it ended") };
        feed.free(slot).expect("a lent slot");
        if began.elapsed() >= settle {
            match since {
                None => since = Some(Instant::now()),
                Some(_) => samples += u64::from(global_batch),
            }
        }
    }
    let samples_per_s = samples as f64 / since.expect("a longer run").elapsed().as_secs_f64();
    let values = resources.tuning().values;
    let values = [values[0].current, values[1].current];
    let (retries, changes) = (resources.store_stats().retries, resources.tuning().changes);
    Run { samples_per_s, values, retries, changes }
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (rounds, warm) = (arguments::number("--rounds", 2), Duration::from_secs(arguments::number("--warm-s", 6)));
    let measured = Duration::from_secs(arguments::number("--seconds", 6));
    let settle = Duration::from_secs(arguments::number("--settle-s", 40));
    let server = S3Server::start_open();
    let proxy = Proxy::start(server.address());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = tempfile::tempdir().expect("a directory for temporary files");
        dataset(folder.path()).await;
        server.upload(&folder.path().join("dataset"), "records").await;
        let job = job(&proxy.before(&server.web_url("records"))).await;
        let latency = |ms| FaultScript { latency: Duration::from_millis(ms), ..FaultScript::default() };
        for (name, script) in [
            ("50 ms until the first byte", latency(50)),
            ("10 ms, 200 requests/s", FaultScript { requests_per_s: 200, ..latency(10) }),
        ] {
            proxy.follow(script);
            for round in 0..rounds {
                println!("{name}, round {round}");
                println!(
                    "{:>8} {:>10} {:>10} {:>9} {:>8}",
                    "requests", "read ahead", "samples/s", "of best", "retries"
                );
                let mut runs = Vec::new();
                for (requests, read_ahead) in FIXED {
                    let (requests, read_ahead) = (Setting::Pinned(requests), Setting::Pinned(read_ahead));
                    let fixed = TuningSettings { requests, read_ahead };
                    runs.push(("fixed", pull(&job, fixed, warm, measured).await));
                }
                runs.push(("tuned", pull(&job, TuningSettings::default(), settle, measured).await));
                let best = runs.iter().map(|(_, run)| run.samples_per_s);
                let best = best.take(FIXED.len()).fold(0.0, f64::max);
                for (kind, Run { samples_per_s, values: [requests, read_ahead], retries, changes }) in runs {
                    let part = samples_per_s / best;
                    println!("{requests:>8} {read_ahead:>10} {samples_per_s:>10.0} {part:>9.2} {retries:>8} {kind}");
                    for TuningChange { value, from, to, reason, at_ms } in changes {
                        println!("  after {:.1} s {value} {from} -> {to}: {reason}", at_ms as f64 / 1e3);
                    }
                }
            }
        }
    });
}
