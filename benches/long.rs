//! Measures what long records cost a worker: CPU time and page faults for each GB that a rank's feed hands over, from files in the page cache,
//! from a plain web server and from the worker's own memory. The server is a process of its own, whose time is not counted.
//!
//! `cargo bench --bench long [-- --records N] [--megabytes N] [--batch N] [--memory-mib N] [--rounds N]`

mod arguments;
mod bucket;
mod numpy;
mod rank;

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use spdl_job::Job;
use spdl_shard::store::DatasetStore;
use spdl_worker::{budget::Budget, feed::Access};

const MB: u64 = 1_000_000;

/// What an epoch took.
struct Measured {
    seconds: f64,
    cpu_s: f64,
    faults: i64,
}

async fn job(url: &str, bytes: u64, batch: u64) -> Job {
    let manifest = DatasetStore::open(url).expect("a folder").manifest().await.expect("a dataset");
    let text = format!(
        "name = \"long\"\ndataset = \"{url}\"\nglobal_batch = {batch}\nepochs = 1000000\n{}",
        numpy::column(bytes)
    );
    rank::job(&text, &manifest.facts())
}

/// Pulls `rounds + 1` epochs within `memory_bytes`, and returns the measurements of all but the first.
async fn pull(job: &Job, steps: u64, memory_bytes: u64, rounds: u64) -> Vec<Measured> {
    let mut feed = rank::start(&rank::resources(memory_bytes, Access::default()), job, 2);
    let mut measured = Vec::new();
    for _ in 0..=rounds {
        let (began, usage) = (Instant::now(), usage());
        for _ in 0..steps {
            assert!(rank::take(&mut feed).await, "it ended");
        }
        let after = self::usage();
        let cpu_s = (after.0 - usage.0).as_secs_f64();
        measured.push(Measured { seconds: began.elapsed().as_secs_f64(), cpu_s, faults: after.1 - usage.1 });
    }
    measured.split_off(1)
}

/// Returns the CPU time and the page faults of this process.
fn usage() -> (Duration, i64) {
    let text = fs::read_to_string("/proc/self/stat").expect("the system says what a process took");
    let fields: Vec<&str> = text.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.try_into().unwrap_or_default());
    (cpu, fields[7].parse().expect("a number"))
}

/// Starts this program again, as a server of `folder`.
fn server(folder: &Path) -> (Child, String) {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("--serve").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this program starts");
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("its address");
    (child, format!("http://{}/{}", address.trim(), bucket::BUCKET))
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--serve").skip(1);
    if let Some(folder) = arguments.next() {
        println!("{}", bucket::serve(Path::new(&folder), Duration::ZERO));
        // Until the parent ends it.
        io::copy(&mut io::stdin(), &mut io::sink()).expect("standard input");
        return;
    }
    if !arguments::request_stats() {
        return;
    }
    let number = arguments::number;
    let (records, bytes, batch) = (number("--records", 7), number("--megabytes", 140) * MB, number("--batch", 1));
    let (memory_bytes, rounds) = (number("--memory-mib", 1024) << 20, number("--rounds", 5));
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(numpy::write(folder.path(), records, bytes));
    let (mut child, url) = server(folder.path());
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    let all = Budget::memory_for(3 * batch * bytes, 2 * records * bytes);
    for (name, url, memory_bytes) in
        [("files", &path, memory_bytes), ("web server", &url, memory_bytes), ("memory", &path, all)]
    {
        let steps = records / batch;
        let gb = (steps * batch * bytes) as f64 / 1e9;
        let measured =
            runtime.block_on(async { pull(&job(url, bytes, batch).await, steps, memory_bytes, rounds).await });
        for Measured { seconds, cpu_s, faults } in measured {
            let [rate, cpu, faults] = [gb / seconds, cpu_s / gb, faults as f64 / gb];
            println!("{name:>10}: {rate:6.2} GB/s, {cpu:.3} CPU s/GB, {faults:7.0} faults/GB");
        }
    }
    child.kill().expect("the server stops");
}
