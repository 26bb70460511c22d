//! The load generator: a real coordinator and worker on loopback, ranks that pull as fast as they can, and the loader
//! in one process beside them, all in one run, so that the ratios mean something on a noisy machine.
//!
//! `cargo bench --bench load -- [--images N] [--rounds N]`

#[path = "../tests/support/processes.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod processes;

use processes::{Cluster, Dataset, ctl, run};
use serde_json::Value;

fn option(name: &str, default: u64) -> u64 {
    let args: Vec<String> = std::env::args().collect();
    let value = args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    value.map_or(default, |text| text.parse().expect("a number"))
}

/// Images per second of all ranks together, and the slowest rank's rate over the fastest's.
fn rate(reports: &[Value]) -> (f64, f64) {
    let rates: Vec<f64> = reports.iter().map(|report| report["images_per_s"].as_f64().expect("a number")).collect();
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    (rates.iter().sum(), slowest / fastest)
}

fn main() {
    let (images, rounds) = (option("--images", 2000), option("--rounds", 3));
    let dataset = Dataset::of_pictures(images, 256);
    let job = dataset.training_job("load", 2);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "2"]);
    cluster.submit(&job);
    println!("{images} pictures, 2 epochs, random resized crop 224, batches of 64");
    println!("{:<22} {:>10} {:>18} {:>16}", "", "images/s", "over in process", "slowest/fastest");
    for round in 0..rounds {
        println!("round {round}");
        let mut replay = ctl();
        replay.arg("replay").arg(&job).args(["--all", "--json"]);
        let alone = rate(&[run(&mut replay).json()]).0;
        println!("{:<22} {alone:>10.0} {:>18.2}", "in process", 1.0);
        for (label, world, node) in [
            ("local, 1 rank", 1, "node-0"),
            ("local, 4 ranks", 4, "node-0"),
            ("quic, 1 rank", 1, "elsewhere"),
            ("quic, 4 ranks", 4, "elsewhere"),
        ] {
            let (images_per_s, evenness) = rate(&cluster.pull_all("load", world, &[node], &["--from", "0:0"]));
            println!("{label:<22} {images_per_s:>10.0} {:>18.2} {evenness:>16.3}", images_per_s / alone);
        }
    }
}
