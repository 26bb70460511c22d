//! What several connections give a rank: the rate, and the CPU time of each thread at both ends. A connection has one thread at either end, so
//! the busiest thread bounds what flows, however many cores there are. Needs no other program, and so runs wherever this one does.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use spdl_testkit::{median, processes};
use spdl_types::mix::splitmix64;

use crate::{BATCH_BYTES, Flow, Transfer, ends, ends_of, flow, write_certificates};

/// What flowed over some connections.
struct Run {
    mb_per_s: f64,
    /// Cores that the busiest thread of the sender and of the receiver used, and all threads of each.
    busiest: [f64; 2],
    all: [f64; 2],
}

impl Run {
    fn of(Flow { bytes, seconds, ends }: &Flow<BTreeMap<u32, Duration>>) -> Self {
        let used = |end: &[BTreeMap<u32, Duration>; 2]| -> Vec<f64> {
            let before = |thread| end[0].get(thread).copied().unwrap_or_default();
            end[1].iter().map(|(thread, after)| (*after - before(thread)).as_secs_f64() / seconds).collect()
        };
        let used = [used(&ends[0]), used(&ends[1])];
        Self {
            mb_per_s: *bytes as f64 / 1e6 / seconds,
            busiest: [0, 1].map(|end: usize| used[end].iter().copied().fold(0.0, f64::max)),
            all: [0, 1].map(|end: usize| used[end].iter().sum()),
        }
    }

    /// Returns the rate at which the busiest thread would use a whole core.
    fn mb_per_thread_s(&self) -> f64 {
        self.mb_per_s / self.busiest[0].max(self.busiest[1])
    }
}

/// Measures 1, 2, 4, ... and `most` connections in turn, and prints a row for each.
pub(crate) fn report(folder: &Path, most: u64, seconds: u64, rounds: u64) {
    write_noise(folder);
    write_certificates(&folder.join("certs"));
    let mut counts: Vec<u64> = (0..64).map(|power| 1_u64 << power).take_while(|count| *count < most).collect();
    counts.push(most);
    let cores = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!(
        "batches of {BATCH_BYTES} bytes on {cores} cores, {rounds} rounds of {seconds} s; medians, cores of threads"
    );
    let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    for _ in 0..rounds {
        for count in &counts {
            let transfer = Transfer::Rust(ends::Way::Batches, format!("connections={count}"));
            let ends = ends_of(&transfer, folder, None, seconds).expect("it needs no TensorFlow");
            runs.entry(*count).or_default().push(Run::of(&flow(ends, processes::thread_cpu_times)));
        }
    }
    println!(
        "{:>11} {:>8} {:>16} {:>16} {:>16} {:>16} {:>24}",
        "connections", "MB/s", "sender: busiest", "all", "receiver: busiest", "all", "MB/s with a whole core"
    );
    for (count, own) in &runs {
        let of = |figure: &dyn Fn(&Run) -> f64| median(own.iter().map(figure).collect());
        println!(
            "{count:>11} {:>8.0} {:>16.2} {:>16.2} {:>16.2} {:>16.2} {:>24.0}",
            of(&|run| run.mb_per_s),
            of(&|run| run.busiest[0]),
            of(&|run| run.all[0]),
            of(&|run| run.busiest[1]),
            of(&|run| run.all[1]),
            of(&Run::mb_per_thread_s)
        );
    }
}

/// Writes a batch of noise where both ends read theirs.
fn write_noise(folder: &Path) {
    let noise: Vec<u8> = (0..BATCH_BYTES as u64 / 8).flat_map(|number| splitmix64(number).to_le_bytes()).collect();
    let file = folder.join(ends::BATCH);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder is made");
    fs::write(file, noise).expect("a batch is written");
}
