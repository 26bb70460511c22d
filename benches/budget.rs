//! Measures how many cores a worker uses, compared with its budget: while a trainer pulls as fast as it can, and while
//! the trainer is stopped with all slots full.
//!
//! `cargo bench --bench budget [-- --seconds N]`

mod arguments;

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use spdl_testkit::processes::{self, Cluster, ServerProcess, TestDataset, cpu_time};

/// The time until memory and slots are filled.
const SETTLE: Duration = Duration::from_secs(3);

/// Returns the cores that a process uses, on average over some time.
fn cores_used(pid: u32, over: Duration) -> f64 {
    let (started, before) = (Instant::now(), cpu_time(pid));
    thread::sleep(over);
    (cpu_time(pid) - before).as_secs_f64() / started.elapsed().as_secs_f64()
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let seconds = arguments::number("--seconds", 20);
    let over = Duration::from_secs(seconds);
    processes::set_limit(30 * (over + SETTLE));
    let dataset = TestDataset::of_pictures(1000, 256);
    let job = dataset.training_job("budget", 1_000_000);
    let mut cluster = Cluster::start(0);
    cluster.submit(&job);
    println!("random resized crop 224, batches of 64; cores that the worker used, on average over {seconds} s");
    println!("{:<10} {:<10} {:>14} {:>17}", "--cores", "trainer", "it pulls", "it is stopped");
    for cores in ["0.5", "1", "1.5", "2"] {
        for transport in ["local", "quic"] {
            let node = format!("node-{cores}-{transport}");
            let worker = cluster.start_worker(&node, &["--cores", cores]).process.pid();
            let mut pull = cluster.ctl("client", ["pull", "--json", "--job", "budget", "--rank", "0", "--world", "1"]);
            pull.args(["--from", "0:0"]).env("SPDL_NODE", if transport == "local" { &node } else { "elsewhere" });
            let trainer = ServerProcess::spawn(&mut pull);
            thread::sleep(SETTLE);
            let pulling = cores_used(worker, over);
            trainer.signal(Signal::STOP);
            thread::sleep(SETTLE);
            let stopped = cores_used(worker, over);
            println!("{cores:<10} {transport:<10} {pulling:>14.3} {stopped:>17.4}");
            drop(trainer);
            cluster.workers.pop();
        }
    }
}
