//! Measures the cost of a transfer of batches from one process to another: bytes per second of CPU time of both
//! processes, over our QUIC, a bare stream of Quinn's, TLS over TCP, and the service of tf.data, all on loopback and in
//! one run. Also measures the floor of that cost, the steps that no transfer can leave out, and the gain from
//! compressing columns.
//!
//! `cargo bench --bench transfer [-- --seconds N] [--rounds N]`
//!
//! With `--connections N`, measures batches over 1, 2, 4, ... and N connections instead, and the CPU time of each thread.
//!
//! tf.data takes a Python with TensorFlow: that of `benches/peers/run --peers tfdata --install-only`, or `SPDL_TFDATA_PYTHON`.

#[path = "../arguments/mod.rs"]
mod arguments;
mod columns;
mod connections;
mod ends;
mod floor;
mod meter;
mod udp;

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ends::{End, Way};
use meter::Mark;
use spdl_control::Role;
use spdl_testkit::{
    median,
    processes::{self, ServerProcess, TestDataset, cpu_time},
};
use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};

/// The bytes of a batch: 64 pictures of 224 x 224, as u8.
pub(crate) const BATCH_BYTES: usize = 64 * 224 * 224 * 3;
/// The transfer with which the others are compared.
const OURS: &str = "batches over QUIC";

/// A kind of transfer, with its settings.
enum Transfer {
    Rust(Way, String),
    /// tf.data with this compression.
    TfData(&'static str),
}

/// Returns all transfers, with their titles.
fn transfers() -> [(&'static str, Transfer); 10] {
    let rust = |way, settings: &str| Transfer::Rust(way, settings.to_owned());
    [
        (OURS, rust(Way::Batches, "")),
        ("batches over QUIC, two connections", rust(Way::Batches, "connections=2")),
        ("bare stream of Quinn, same settings", rust(Way::Stream, "")),
        ("TLS 1.3 over TCP, same cipher", rust(Way::Tls, "")),
        ("TCP, not encrypted", rust(Way::Tcp, "")),
        ("UDP in packets of the same size, not encrypted", rust(Way::Udp, "")),
        ("service of tf.data, not compressed or encrypted", Transfer::TfData("none")),
        ("service of tf.data as it is by default, not encrypted", Transfer::TfData("AUTO")),
        ("batches over QUIC, payloads of 1,452 bytes", rust(Way::Batches, "payload=1452")),
        ("bare stream of Quinn, payloads of 1,452 bytes", rust(Way::Stream, "payload=1452")),
    ]
}

/// What flowed from one end to the other, and figures of both, the sender first, at the beginning and at the end of that.
struct Flow<T> {
    bytes: u64,
    seconds: f64,
    ends: [[T; 2]; 2],
}

/// The results of a run.
struct Run {
    mb_per_s: f64,
    /// CPU time of each end for a batch, in milliseconds.
    sender_ms: f64,
    receiver_ms: f64,
}

impl Run {
    fn mb_per_cpu_s(&self) -> f64 {
        BATCH_BYTES as f64 / 1e3 / (self.sender_ms + self.receiver_ms)
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Some(end) = End::parse(&arguments) {
        return end.run();
    }
    if !arguments::request_stats() {
        return;
    }
    processes::set_limit(Duration::from_secs(3600));
    let (seconds, rounds) = (arguments::number("--seconds", 4), arguments::number("--rounds", 3));
    let most = arguments::number("--connections", 0);
    if most > 0 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        return connections::report(folder.path(), most, seconds, rounds);
    }
    let dataset = TestDataset::of_pictures(64, 64);
    write_batch(&dataset);
    write_certificates(dataset.path("certs").as_path());
    let transfers = transfers();
    let python = tensorflow();
    println!("batches of {BATCH_BYTES} bytes, {rounds} rounds of {seconds} s; medians, CPU time of both processes");
    let mut runs: BTreeMap<usize, Vec<Run>> = BTreeMap::new();
    let mut floors = Vec::new();
    for _ in 0..rounds {
        for (index, (_, transfer)) in transfers.iter().enumerate() {
            if let Some(ends) = ends_of(transfer, &dataset.path(""), python.as_deref(), seconds) {
                runs.entry(index).or_default().push(measure(ends));
            }
        }
        floors.push(floor::measure());
    }
    report(&transfers, &runs, &floors);
    let ours_ms = median(runs[&0].iter().map(|run| run.sender_ms + run.receiver_ms).collect());
    columns::report(&ends::batch(&dataset.path("")), ours_ms * 1e6 / BATCH_BYTES as f64);
}

/// Writes a batch of crops, as a trainer gets them.
fn write_batch(dataset: &TestDataset) {
    let mut replay = processes::ctl();
    replay.arg("replay").arg(dataset.training_job("transfer", 1)).args([
        "--position",
        "0:0",
        "--world",
        "1",
        "--rank",
        "0",
    ]);
    replay.arg("--out").arg(dataset.path("replayed")).arg("--json");
    processes::run(&mut replay).json();
}

pub(crate) fn write_certificates(folder: &Path) {
    let ca = ClusterCa::open_or_create(folder).expect("a CA is made");
    for role in [Role::Worker, Role::Client] {
        let issued = ca.issue(role, "bench", &[], LEAF_VALIDITY).expect("issued");
        issued.write(&folder.join(role.name())).expect("written");
    }
}

/// Returns a Python that has TensorFlow.
fn tensorflow() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let installed = root.join("target/peers/venvs/tfdata/bin/python");
    let python = env::var_os("SPDL_TFDATA_PYTHON").map_or(installed, PathBuf::from);
    if python.exists() {
        return Some(python);
    }
    println!(
        "without tf.data: `{}` is not there; `benches/peers/run --peers tfdata --install-only` makes it",
        python.display()
    );
    None
}

/// Returns the commands of the sender, which prints its address, and of the receiver, which takes it as its last
/// argument. Returns `None` if the transfer needs TensorFlow and there is none.
fn ends_of(transfer: &Transfer, folder: &Path, python: Option<&Path>, seconds: u64) -> Option<[Command; 2]> {
    let ends = match transfer {
        Transfer::Rust(way, settings) => ["send", "receive"].map(|end| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.args(["end", end, way.name()]).arg(folder).arg(settings).arg(seconds.to_string());
            command
        }),
        Transfer::TfData(compression) => ["send", "receive"].map(|end| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("transfer/tfdata.py");
            let mut command = Command::new(python.unwrap_or(Path::new("")));
            command.arg(script).arg(end).arg(folder.join(ends::BATCH)).arg(compression).arg(seconds.to_string());
            command.env("TF_CPP_MIN_LOG_LEVEL", "3").env("CUDA_VISIBLE_DEVICES", "").env("TF_ENABLE_ONEDNN_OPTS", "0");
            command
        }),
    };
    (matches!(transfer, Transfer::Rust(..)) || python.is_some()).then_some(ends)
}

fn measure(ends: [Command; 2]) -> Run {
    let Flow { bytes, seconds, ends } = flow(ends, cpu_time);
    let batches = bytes as f64 / BATCH_BYTES as f64;
    let ms = |[before, after]: [Duration; 2]| (after - before).as_secs_f64() * 1e3 / batches;
    Run { mb_per_s: bytes as f64 / 1e6 / seconds, sender_ms: ms(ends[0]), receiver_ms: ms(ends[1]) }
}

/// Runs both ends until the receiver has measured. The figures of a process, which `read` reads by its id, are of while batches flow.
fn flow<T>([mut send, mut receive]: [Command; 2], read: impl Fn(u32) -> T) -> Flow<T> {
    let mut sender = ServerProcess::spawn(&mut send);
    let address = sender.line();
    let mut receiver = ServerProcess::spawn(receive.arg(address.as_str().expect("an address")));
    let pids = [sender.pid(), receiver.pid()];
    let mark = |receiver: &mut ServerProcess| serde_json::from_value::<Mark>(receiver.line()).expect("a mark");
    let begin = mark(&mut receiver);
    let before = pids.map(&read);
    let end = mark(&mut receiver);
    let after = pids.map(&read);
    receiver.kill();
    sender.kill();
    let ([of_sender, of_receiver], [later_sender, later_receiver]) = (before, after);
    Flow {
        bytes: end.bytes - begin.bytes,
        seconds: end.seconds - begin.seconds,
        ends: [[of_sender, later_sender], [of_receiver, later_receiver]],
    }
}

fn report(transfers: &[(&str, Transfer)], runs: &BTreeMap<usize, Vec<Run>>, floors: &[floor::Floor]) {
    println!(
        "{:<56} {:>12} {:>10} {:>12} {:>12} {:>10}",
        "", "MB / CPU s", "ours / it", "sender ms", "receiver ms", "MB/s"
    );
    for (index, own) in runs {
        let of = |figure: fn(&Run) -> f64| median(own.iter().map(figure).collect());
        // Rounds are compared one by one: the machine's speed drifts.
        let ratios = runs[&0].iter().zip(own).map(|(ours, it)| ours.mb_per_cpu_s() / it.mb_per_cpu_s());
        let ratio = median(ratios.collect());
        println!(
            "{:<56} {:>12.0} {ratio:>10.2} {:>12.2} {:>12.2} {:>10.0}",
            transfers[*index].0,
            of(Run::mb_per_cpu_s),
            of(|run| run.sender_ms),
            of(|run| run.receiver_ms),
            of(|run| run.mb_per_s)
        );
    }
    let of = |figure: fn(&floor::Floor) -> f64| median(floors.iter().map(figure).collect());
    let (copies, seal, open) = (of(|floor| floor.copies_ms), of(|floor| floor.seal_ms), of(|floor| floor.open_ms));
    println!(
        "alone, ms for a batch: three copies {copies:.2}, AES-128-GCM {seal:.2} to encrypt and {open:.2} to decrypt"
    );
}
