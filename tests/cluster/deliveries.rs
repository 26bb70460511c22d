//! What ranks have got, compared with what they should get: in every way of delivery, at any number of ranks, and after processes were
//! killed.

use std::path::Path;

use serde_json::Value;
use spdl_testkit::processes::{Cluster, ctl, run, sum};

/// Returns the sum of the receipts and that of the contents' digests.
pub(super) fn digests(reports: &[Value]) -> (String, String) {
    (sum(reports, "receipt"), sum(reports, "content_digest"))
}

/// Replays a job in one process, and returns its report.
pub(super) fn replay(job: &Path, further: &[&str]) -> Value {
    run(ctl().arg("replay").arg(job).arg("--json").args(further)).json()
}

/// Replays a whole job, asserts that its receipt is the plan's, and returns its report.
pub(super) fn replay_all(job: &Path, further: &[&str]) -> Value {
    let report = replay(job, &[&["--from", "0:0", "--all"], further].concat());
    assert_eq!(report["receipt"], run(ctl().arg("audit").arg(job).arg("--json")).json()["plan_receipt"]);
    report
}

/// Asserts that the receipts of ranks add up to the plan's.
pub(super) fn assert_audited(job: &Path, reports: &[Value], further: &[&str]) {
    let receipts = reports.iter().flat_map(|report| ["--receipt", report["receipt"].as_str().unwrap()]);
    let audit = run(ctl().arg("audit").arg(job).arg("--json").args(further).args(receipts)).json();
    assert_eq!(audit["equal"], true, "{audit}");
}

/// Asserts that the ranks of each world get the whole job on these nodes: through shared memory where a worker is, else through QUIC.
pub(super) fn assert_delivered(cluster: &Cluster, job: &str, whole: &Value, worlds: &[(u32, &[&str])]) {
    for (world, nodes) in worlds {
        let reports = cluster.pull_all(job, *world, nodes, &["--from", "0:0"]);
        let what = format!("job {job}, world {world} on {nodes:?}");
        for (report, node) in reports.iter().zip(nodes.iter().cycle()) {
            let is_local = cluster.workers.iter().any(|worker| worker.node == *node);
            assert_eq!(report["transport"], if is_local { "local" } else { "quic" }, "{what}: {report}");
        }
        assert_eq!(digests(&reports), digests(std::slice::from_ref(whole)), "{what}");
    }
}

/// Kills the coordinator and the first worker, and starts them again.
fn restart(cluster: &mut Cluster) {
    cluster.workers[0].process.kill();
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.start_coordinator();
    cluster.restart_worker(0);
}

/// Asserts that ranks get the whole job when they are 4 on the worker's node for some steps, and 2 elsewhere after processes were killed.
pub(super) fn assert_goes_on_after_kills(cluster: &mut Cluster, job: &str, whole: &Value, steps: &str) {
    let mut reports = cluster.pull_all(job, 4, &["node-0"], &["--steps", steps, "--from", "0:0"]);
    let position = reports[0]["position"].as_str().unwrap().to_owned();
    restart(cluster);
    reports.extend(cluster.pull_all(job, 2, &["elsewhere"], &["--from", &position]));
    assert_eq!(digests(&reports), digests(std::slice::from_ref(whole)), "{job}, after {position}");
}

/// Asserts that ranks get the whole job `resized` when they are 8, then 6, then 8, where the first two worlds end after some steps and
/// processes are killed in between. Returns the report of one process.
pub(super) fn assert_the_same_at_8_then_6_then_8_ranks(job: &Path, [first, second]: [&str; 2]) -> Value {
    let whole = replay_all(job, &[]);
    let mut cluster = Cluster::start(1);
    cluster.submit(job);
    let nodes = ["node-0", "elsewhere"];
    let mut reports = cluster.pull_all("resized", 8, &nodes, &["--steps", first, "--from", "0:0"]);
    for (world, further) in [(6, &["--steps", second][..]), (8, &[])] {
        let states: Vec<String> = reports.iter().rev().take(6).map(|report| report["state"].to_string()).collect();
        assert!(states.iter().all(|state| *state == states[0]), "the same on every rank: {states:?}");
        restart(&mut cluster);
        reports.extend(cluster.pull_all("resized", world, &nodes, &[&["--state", &states[0]], further].concat()));
    }
    assert_eq!(digests(&reports), digests(std::slice::from_ref(&whole)));
    assert_audited(job, &reports, &[]);
    whole
}
