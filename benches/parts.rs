//! Measures the gain from reading parts of scalable pictures for a job that a store limits: the first epoch of a
//! dataset, in turn with whole blocks and with only the parts that the crops need. The store is an S3 server of this
//! process, behind a proxy with a latency and a limited bandwidth.
//!
//! `cargo bench --bench parts -- DATASET [--rounds N] [--latency-ms N] [--mb-per-s N]`, where DATASET is a folder that `spdl-ctl pack --scalable` has written

mod arguments;
mod rank;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use spdl_job::Job;
use spdl_shard::store::DatasetStore;
use spdl_testkit::{
    proxy::{FaultScript, Proxy, RangesRead},
    s3::S3Server,
};
use spdl_worker::feed::Access;

const GLOBAL_BATCH: u32 = 32;
const MEMORY_BYTES: u64 = 1 << 30;

/// The time and the reads of an epoch.
struct Epoch {
    seconds: f64,
    read: RangesRead,
}

/// Pulls the first epoch with nothing in memory.
async fn epoch(job: &Job, proxy: &Proxy, reads_parts: bool) -> Epoch {
    let resources = rank::resources(MEMORY_BYTES, Access { reads_parts, ..Access::default() });
    let (begin, before) = (Instant::now(), proxy.read_of(".tar"));
    let mut feed = rank::start(&resources, job, 4);
    while rank::take(&mut feed).await {}
    let after = proxy.read_of(".tar");
    let read = RangesRead { requests: after.requests - before.requests, bytes: after.bytes - before.bytes };
    Epoch { seconds: begin.elapsed().as_secs_f64(), read }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let Some(folder) = std::env::args().nth(1).filter(|_| arguments::request_stats()) else { return };
    if folder.starts_with("--") {
        eprintln!("which dataset? `spdl-ctl pack --scalable` makes one");
        return;
    }
    let rounds = arguments::number("--rounds", 3);
    let latency = Duration::from_millis(arguments::number("--latency-ms", 15));
    let bytes_per_s = arguments::number("--mb-per-s", 50) * 1_000_000;
    let server = S3Server::start_open();
    server.upload(Path::new(&folder), "pictures").await;
    let proxy = Proxy::start(server.address());
    proxy.follow(FaultScript { latency, bytes_per_s, ..FaultScript::default() });
    let url = proxy.before(&server.web_url("pictures"));
    let store = DatasetStore::open(&folder).expect("a dataset");
    let facts = store.manifest().await.expect("a manifest").facts();
    let text = format!(
        "name = \"bench\"\ndataset = \"{url}\"\nglobal_batch = {GLOBAL_BATCH}\nepochs = 1\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
         ops = [{{ random_resized_crop = {{ size = 224 }} }}, {{ random_flip = {{}} }}]\n"
    );
    let job = rank::job(&text, &facts);
    let pictures = facts.samples as f64;
    println!(
        "{pictures} pictures, {} MB/s after {} ms; medians of {rounds} rounds, for each picture",
        bytes_per_s / 1_000_000,
        latency.as_millis()
    );
    println!("{:12} {:>10} {:>10} {:>10}", "read", "pictures/s", "bytes", "requests");
    let mut epochs = [vec![], vec![]];
    for _ in 0..rounds {
        for (way, epochs) in epochs.iter_mut().enumerate() {
            epochs.push(epoch(&job, &proxy, way == 1).await);
        }
    }
    for (name, epochs) in ["whole blocks", "parts"].into_iter().zip(&mut epochs) {
        epochs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Epoch { seconds, read: RangesRead { requests, bytes } } = epochs[epochs.len() / 2];
        println!(
            "{name:12} {:10.0} {:10.0} {:10.2}",
            pictures / seconds,
            bytes as f64 / pictures,
            requests as f64 / pictures
        );
    }
}
