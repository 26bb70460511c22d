//! Measures how the costs of the coordinator grow with ranks, workers and jobs. Each size is measured in a process of its own,
//! so that its memory is its own. Its state machine is driven directly: what QUIC and the disk cost is not in it.
//!
//! `cargo bench --bench scale [-- --json FILE]`

#[path = "../arguments/mod.rs"]
mod arguments;
mod coordinator;
mod cost;

use std::process::Command;

use serde_json::Value;

use coordinator::Size;

/// The columns of the table, with the digits that are shown of each number.
const COLUMNS: [(&str, usize); 12] = [
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
    let mut measured: Vec<Value> = Vec::new();
    for at in 0..Size::ALL.len() {
        let row = in_process("--coordinator", at);
        if at == 0 {
            println!("{}", COLUMNS.map(|(name, _)| format!("{name:>22}")).concat());
        }
        println!(
            "{}",
            COLUMNS.map(|(name, digits)| format!("{:>22.digits$}", row[name].as_f64().expect("a number"))).concat()
        );
        measured.push(row);
    }
    if let Some(path) = after("--json") {
        let all = serde_json::json!({ "coordinator": measured });
        std::fs::write(path, format!("{all:#}\n")).expect("the file is written");
    }
}

/// Measures one size in a process of its own.
fn in_process(what: &str, at: usize) -> Value {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--bench", what, &at.to_string()]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a line of JSON")
}
