//! Faults of real processes: they are killed, suspended and continued, asked to end, or cut off from the network, and
//! the samples stay the same. Each test's name states its failure; docs/spec/failures.md lists them.

mod changes;
mod coordinator;
mod disk;
mod network;
mod rank;
mod reliability;
mod resume;
mod signals;
mod stages;
mod worker;

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, undisturbed};

/// Samples per second of a rank: a slow training run.
const RATE: &str = "150";
/// More samples than all slots of a rank hold: after so many, some were made after the fault.
const BEYOND_SLOTS: u64 = 240;
/// Global batch of [`TestDataset::job`].
const GLOBAL_BATCH: u64 = 24;

/// A dataset with the job `j`, which has no end.
fn endless() -> (TestDataset, std::path::PathBuf) {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("j", "epochs = 1000000");
    (dataset, job)
}

/// Starts the only rank of the job `j` on `node`; it pulls until it gets a signal.
fn only_rank(cluster: &Cluster, node: &str) -> ServerProcess {
    let args = ["--from", "0:0", "--rate", RATE, "--progress"];
    ServerProcess::spawn(&mut cluster.pull("j", 0, 1, node, &args))
}

/// Ends the only rank and checks that it received what a run without faults delivers.
#[track_caller]
fn end_and_compare(mut rank: ServerProcess, job: &std::path::Path) {
    rank.signal(Signal::TERM);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut rank.output, &mut rest).expect("standard output is text");
    assert!(!rank.wait().success(), "a rank that was asked to end fails");
    let report: Value = serde_json::from_str(rest.lines().last().expect("a report")).expect("a report in JSON");
    let samples = report["samples"].as_u64().expect("a number");
    let alone = undisturbed(job, samples / GLOBAL_BATCH, &[]);
    for field in ["samples", "receipt", "content_digest", "position", "state"] {
        assert_eq!(report[field], alone[field], "{field}");
    }
}

/// Returns the name of the home of rank 0 of the newest session, if it has one.
fn home(status: &Value) -> Option<&str> {
    rank_status(status, 0)["home"].as_str()
}

/// Returns the coordinator's status of a rank of the newest session.
fn rank_status(status: &Value, rank: usize) -> &Value {
    let sessions = status["sessions"].as_array().expect("a list of sessions");
    &sessions.last().expect("a session")["ranks"][rank]
}
