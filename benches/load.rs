//! The load generator: a real coordinator and worker on loopback, and ranks that pull as fast as they can. It also
//! measures the CPU time of worker and ranks for each batch, and bare decoding of the same samples on as many cores in the same run, so that the ratios are meaningful on a
//! noisy machine.
//!
//! `cargo bench --bench load [-- --images N] [--epochs E] [--rounds N]`

mod arguments;
mod bare;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bare::Bare;
use spdl_job::JobFile;
use spdl_shard::store::DatasetStore;
use spdl_testkit::processes::{self, Cluster, ServerProcess, TestDataset, cpu_time, cpu_time_of_children};

/// How often the ranks' progress is read.
const LOOK: Duration = Duration::from_millis(250);

/// The results of a run of all ranks.
struct Run {
    /// Images per second of all ranks together, since the first batch.
    images_per_s: f64,
    /// The ratio of the slowest rank's batches to the fastest rank's, between two instants at which all ranks were
    /// pulling. The first tenth is left out, in which the rank that joined last catches up with the others.
    evenness: f64,
    /// CPU time of the worker and all ranks for each global batch, in milliseconds.
    cpu_ms: f64,
}

fn pull(cluster: &Cluster, world: u32, node: &str) -> Run {
    let cpu = || cpu_time(cluster.workers[0].process.pid()) + cpu_time_of_children();
    let cpu_before = cpu();
    let traces: Vec<PathBuf> = (0..world).map(|rank| cluster.path(format!("trace-{rank}"))).collect();
    let start = |rank: u32| {
        let mut pull = cluster.ctl("client", ["pull", "--json", "--job", "load", "--from", "0:0"]);
        pull.args(["--rank", &rank.to_string(), "--world", &world.to_string()]).env("SPDL_NODE", node);
        ServerProcess::spawn(pull.arg("--trace").arg(&traces[rank as usize]))
    };
    let mut ranks: Vec<ServerProcess> = (0..world).map(start).collect();
    let mut looks: Vec<Vec<usize>> = Vec::new();
    while ranks.iter_mut().all(|rank| rank.child.try_wait().expect("our child").is_none()) {
        std::thread::sleep(LOOK);
        looks.push(traces.iter().map(|trace| batches(trace)).collect());
    }
    let rates = ranks.into_iter().map(|rank| rank.finish()["images_per_s"].as_f64().expect("a number"));
    let images_per_s = rates.sum();
    let cpu_ms = (cpu() - cpu_before).as_secs_f64() * 1e3 / batches(&traces[0]) as f64;
    let all = batches(&traces[0]);
    let during: Vec<_> = looks.iter().filter(|look| look.iter().all(|count| (all / 10..all).contains(count))).collect();
    let (first, last) = (during.first().expect("a longer run"), during.last().expect("a longer run"));
    let got = || first.iter().zip(last.iter()).map(|(first, last)| (last - first) as f64);
    Run { images_per_s, evenness: got().fold(f64::INFINITY, f64::min) / got().fold(0.0, f64::max), cpu_ms }
}

/// Returns the number of batches that a rank has traced.
fn batches(trace: &Path) -> usize {
    std::fs::read(trace).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

fn bare(job: &Path, cores: u64) -> Bare {
    let text = std::fs::read_to_string(job).expect("the job just written");
    let file = JobFile::parse(&text, "load").expect("a valid job");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = DatasetStore::open_once(&file.dataset).expect("the dataset just written");
        let manifest = store.manifest().await.expect("the manifest just written");
        let job = file.freeze(&manifest.facts()).expect("a valid job");
        Bare::open(&store, &job, cores as usize).await
    })
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    // One worker serves all rounds.
    processes::set_limit(Duration::from_secs(3600));
    let (images, epochs, rounds) =
        (arguments::number("--images", 2000), arguments::number("--epochs", 4), arguments::number("--rounds", 3));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let dataset = TestDataset::of_pictures(images, 256);
    let job = dataset.training_job("load", epochs);
    let bare = bare(&job, cores);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", &cores.to_string()]);
    cluster.submit(&job);
    println!("{images} pictures, {epochs} epochs, random resized crop 224, batches of 64, {cores} cores");
    println!(
        "{:<22} {:>10} {:>10} {:>10} {:>16} {:>14} {:>10}",
        "", "images/s", "bare", "of bare", "slowest/fastest", "CPU ms / batch", "of local"
    );
    for round in 0..rounds {
        println!("round {round}");
        let mut before = bare.run(0..epochs.div_ceil(2));
        let mut local_ms = [f64::NAN; 2];
        for (label, world, node) in [
            ("local, 1 rank", 1, "node-0"),
            ("local, 4 ranks", 4, "node-0"),
            ("quic, 1 rank", 1, "elsewhere"),
            ("quic, 4 ranks", 4, "elsewhere"),
        ] {
            let Run { images_per_s, evenness, cpu_ms } = pull(&cluster, world, node);
            let local_ms = &mut local_ms[usize::from(world > 1)];
            if node == "node-0" {
                *local_ms = cpu_ms;
            }
            let after = bare.run(0..epochs.div_ceil(2));
            // The machine's speed drifts: compare with the mean of the runs before and after.
            let beside = (before + after) / 2.0;
            println!(
                "{label:<22} {images_per_s:>10.0} {beside:>10.0} {:>10.2} {evenness:>16.3} {cpu_ms:>14.1} {:>10.2}",
                images_per_s / beside,
                cpu_ms / *local_ms
            );
            before = after;
        }
    }
}
