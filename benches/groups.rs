//! Measures what a group of processes on one node costs that share a rank: the rate of its slowest member beside that of one reader, how
//! often a sample is decoded, and how much memory all map. Then the same with a member that is killed and another that is suspended on the way.
//!
//! `cargo bench --bench groups [-- --members N] [--steps N] [--rounds N] [--pictures N]`

mod arguments;

use std::{collections::BTreeMap, fs, path::PathBuf};

use rustix::process::Signal;
use spdl_testkit::{
    median,
    processes::{Cluster, ServerProcess, TestDataset, cpu_time, cpu_time_of_children},
};

const GLOBAL_BATCH: u64 = 64;
const PICTURES: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
                        ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]\n\
                        [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
/// A column that costs no more than a copy.
const BYTES: &str = "[[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n";

/// What happens to a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    No,
    /// One member is killed, and another one suspended, once all have begun.
    KillAndStop,
}

/// The result of a launch.
struct Measured {
    /// Samples per second of the slowest member that came to its end.
    rate: f64,
    /// Samples that the worker decoded, for each sample of the rank.
    decoded: f64,
    /// The number of slabs that all processes map together, and their bytes.
    slabs: (usize, u64),
    /// CPU time of the worker and of all members for each batch, in milliseconds.
    cpu_ms: f64,
}

/// Adds the slabs that a process maps: their bytes by their inodes.
fn add_slabs(pid: u32, slabs: &mut BTreeMap<String, u64>) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains("/memfd:spdl-slab")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let (from, to) = fields[0].split_once('-').expect("a range");
        // A slab may be mapped in parts, and several times.
        let bytes = slabs.entry(fields[4].to_owned()).or_default();
        *bytes = (*bytes).max(number(to) - number(from));
    }
}

fn member(cluster: &Cluster, job: &str, (number, members): (usize, usize), steps: u64) -> ServerProcess {
    let mut pull =
        cluster.ctl("client", ["pull", "--json", "--progress", "--job", job, "--from", "0:0", "--rank", "0"]);
    pull.args(["--world", "1", "--steps", &steps.to_string()]).env("SPDL_NODE", "node-0");
    if members > 1 {
        pull.args(["--member", &format!("{number}/{members}")]);
    }
    ServerProcess::spawn(&mut pull)
}

fn measure(cluster: &Cluster, job: &str, members: usize, steps: u64, disturbance: Disturbance) -> Measured {
    let decoded = || cluster.metric("spdl_worker_stage_items_total{stage=\"decode\"}");
    let cpu = || cpu_time(cluster.workers[0].process.pid()) + cpu_time_of_children();
    let (decoded_before, cpu_before) = (decoded(), cpu());
    let mut all: Vec<ServerProcess> =
        (0..members).map(|number| member(cluster, job, (number, members), steps)).collect();
    for member in &mut all {
        member.progress_to(4 * GLOBAL_BATCH);
    }
    let mut slabs = BTreeMap::new();
    all.iter().for_each(|member| add_slabs(member.pid(), &mut slabs));
    let lost = if disturbance == Disturbance::KillAndStop { all.split_off(members - 2) } else { Vec::new() };
    if let [killed, suspended] = &lost[..] {
        killed.signal(Signal::KILL);
        suspended.signal(Signal::STOP);
    }
    let rates = all.into_iter().map(|member| member.finish()["images_per_s"].as_f64().expect("a number"));
    let rate = rates.fold(f64::INFINITY, f64::min);
    drop(lost);
    Measured {
        rate,
        decoded: (decoded() - decoded_before) / (steps * GLOBAL_BATCH) as f64,
        slabs: (slabs.len(), slabs.values().sum()),
        cpu_ms: (cpu() - cpu_before).as_secs_f64() * 1e3 / steps as f64,
    }
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let members = usize::try_from(arguments::number("--members", 8)).expect("few members");
    let (steps, rounds) = (arguments::number("--steps", 200), arguments::number("--rounds", 3));
    let pictures = arguments::number("--pictures", 1024);
    let dataset = TestDataset::of_pictures(pictures, pictures.div_ceil(8));
    let folder = dataset.path("dataset");
    let write = |(name, columns, _): (&str, &str, u64)| -> PathBuf {
        let path = dataset.path(format!("{name}.toml"));
        let keys = format!("seed = 5\nglobal_batch = {GLOBAL_BATCH}\nepochs = 1000000\n");
        fs::write(&path, format!("name = \"{name}\"\ndataset = {folder:?}\n{keys}{columns}")).expect("it is written");
        path
    };
    // Bytes come so much faster that a launch has more batches.
    let jobs = [("pictures", PICTURES, steps), ("bytes", BYTES, 20 * steps)];
    let mut cluster = Cluster::start(0);
    // One core: the members, which are trainers that do nothing else, have the others.
    cluster.start_worker("node-0", &["--cores", "1", "--memory", "1GiB"]);
    jobs.map(write).iter().for_each(|job| cluster.submit(job));
    println!(
        "batches of {GLOBAL_BATCH}, {steps} of pictures, median of {rounds} rounds; the rate is the slowest member's"
    );
    println!(
        "{:<34} {:>10} {:>8} {:>16} {:>6} {:>9} {:>13}",
        "", "images/s", "of one", "decoded / sample", "slabs", "MiB", "CPU ms / batch"
    );
    for (job, _, steps) in jobs {
        // The first launch reads the dataset.
        member(&cluster, job, (0, 1), 1 + pictures / GLOBAL_BATCH).finish();
        let lost = format!("{members} members, 2 are lost");
        let cases = [
            ("one reader".to_owned(), 1, Disturbance::No),
            (format!("{members} members"), members, Disturbance::No),
            (lost, members, Disturbance::KillAndStop),
        ];
        let cases = if members > 2 { &cases[..] } else { &cases[..2] };
        let round = |_| -> Vec<Measured> {
            cases.iter().map(|(_, members, lost)| measure(&cluster, job, *members, steps, *lost)).collect()
        };
        let measured: Vec<Vec<Measured>> = (0..rounds).map(round).collect();
        for (number, (what, ..)) in cases.iter().enumerate() {
            let of = |value: &dyn Fn(&[Measured]) -> f64| median(measured.iter().map(|round| value(round)).collect());
            let (slabs, bytes) = measured[0][number].slabs;
            println!(
                "{:<34} {:>10.0} {:>8.3} {:>16.3} {slabs:>6} {:>9.1} {:>13.2}",
                format!("{job}, {what}"),
                of(&|round| round[number].rate),
                of(&|round| round[number].rate / round[0].rate),
                of(&|round| round[number].decoded),
                bytes as f64 / f64::from(1 << 20),
                of(&|round| round[number].cpu_ms),
            );
        }
    }
}
