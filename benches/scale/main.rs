//! Measures how the costs of the coordinator grow with ranks, workers and jobs, and those of a dataset with its shards. Each size
//! is measured in a process of its own, so that its memory is its own. The coordinator's state machine is driven directly; then a
//! coordinator's process has as many peers over QUIC.
//!
//! `cargo bench --bench scale [-- --json FILE]`

#[path = "../arguments/mod.rs"]
mod arguments;
mod coordinator;
mod cost;
mod dataset;
mod network;

use std::{path::Path, process::Command};

use serde_json::Value;

use coordinator::Size;

/// The columns of a table, with the digits that are shown of each number.
type Columns = [(&'static str, usize)];

const OF_COORDINATOR: &Columns = &[
    ("ranks", 0),
    ("workers", 0),
    ("jobs", 0),
    ("join_us", 1),
    ("joins_s", 3),
    ("heartbeat_with_map_us", 1),
    ("rank_heartbeat_us", 2),
    ("worker_heartbeat_us", 1),
    ("tick_us", 1),
    ("cpu_per_s", 4),
    ("restart_s", 3),
    ("resident_mb", 1),
];

const OF_NETWORK: &Columns = &[
    ("ranks", 0),
    ("workers", 0),
    ("joined_s", 2),
    ("join_coordinator_ms", 2),
    ("join_peer_ms", 2),
    ("beat_coordinator_us", 1),
    ("beat_peer_us", 1),
    ("coordinator_cores", 3),
    ("beats_per_s", 1),
    ("coordinator_mb", 1),
    ("connection_kb", 1),
    ("peer_kb", 1),
];

const OF_DATASET: &Columns = &[
    ("shards", 0),
    ("samples", 0),
    ("manifest_mb", 1),
    ("open_s", 3),
    ("plan_s", 3),
    ("first_us", 2),
    ("sample_us", 2),
    ("memory_mb", 1),
    ("mapped_mb", 1),
];

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let size = arguments::number("--coordinator", u64::MAX);
    if let Some(size) = Size::ALL.get(size as usize) {
        println!("{}", coordinator::run(*size));
        return;
    }
    if let Some(folder) = after("--dataset") {
        println!("{}", dataset::run(Path::new(folder)));
        return;
    }
    let ranks = arguments::number("--network", u64::MAX);
    if let Some(ranks) = network::RANKS.iter().find(|at| u64::from(**at) == ranks) {
        println!("{}", network::run(*ranks));
        return;
    }
    let coordinator =
        table(OF_COORDINATOR, (0..Size::ALL.len()).map(|at| in_process("--coordinator", &at.to_string())));
    println!();
    let network = table(OF_NETWORK, network::RANKS.iter().map(|ranks| in_process("--network", &ranks.to_string())));
    println!();
    let datasets = dataset::SHARDS.map(|shards| {
        let folder = tempfile::tempdir().expect("a folder");
        dataset::write(folder.path(), shards);
        folder
    });
    let datasets = datasets.iter().map(|folder| in_process("--dataset", folder.path().to_str().expect("UTF-8")));
    let dataset = table(OF_DATASET, datasets);
    if let Some(path) = after("--json") {
        let all = serde_json::json!({ "coordinator": coordinator, "network": network, "dataset": dataset });
        std::fs::write(path, format!("{all:#}\n")).expect("the file is written");
    }
}

/// Prints rows as they are measured, and returns them.
fn table(columns: &Columns, rows: impl Iterator<Item = Value>) -> Vec<Value> {
    println!("{}", columns.iter().map(|(name, _)| format!("{name:>22}")).collect::<String>());
    let shown =
        |row: &Value, (name, digits): &(&str, usize)| format!("{:>22.digits$}", row[name].as_f64().expect("a number"));
    rows.inspect(|row| println!("{}", columns.iter().map(|column| shown(row, column)).collect::<String>())).collect()
}

/// Measures one size in a process of its own.
fn in_process(what: &str, size: &str) -> Value {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--bench", what, size]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a line of JSON")
}
