//! The leading coordinator is killed again and again while ranks pull.

use serde_json::Value;
use spdl_testkit::processes::{ServerProcess, TestDataset, ctl, run, sum};

use super::coordinators::{Coordinators, has_workers};

/// Number of kills, unless the ranks end earlier.
const KILLS: usize = 4;

/// Whether both ranks send heartbeats or have left.
fn is_full(status: &Value) -> bool {
    let ranks = status["sessions"][0]["ranks"].as_array();
    let is_there = |rank: &&Value| rank["is_alive"] == true || rank["left"] == true;
    ranks.is_some_and(|ranks| ranks.iter().filter(is_there).count() == 2)
}

#[test]
fn the_leader_is_killed_again_and_again_and_every_sample_still_comes_once() {
    let dataset = TestDataset::of_pictures(48, 16);
    let Some(mut all) = Coordinators::start(2) else { return };
    let job = dataset.job("killed", "epochs = 15\nepoch_end = \"exact\"");
    all.cluster.submit(&job);
    // The trainer is slow, so that there is time for the kills.
    let start = |rank: u32| {
        let node = format!("node-{rank}");
        ServerProcess::spawn(&mut all.cluster.pull("killed", rank, 2, &node, &["--rate", "24"]))
    };
    let mut ranks: Vec<ServerProcess> = (0..2).map(start).collect();

    let mut kills = 0;
    let mut is_over = || ranks.iter_mut().any(|rank| rank.child.try_wait().expect("it is ours").is_some());
    while kills < KILLS && !is_over() {
        // A rank that ended while no coordinator led is in no status.
        let is_known = |status: &Value| (has_workers(2)(status) && is_full(status)) || is_over();
        let leader = all.wait_for_leader("a leader that knows all", is_known);
        all.each[leader].process.kill();
        let next = all.wait_for_leader("another leader", |_| true);
        assert_ne!(leader, next);
        all.restart(leader);
        kills += 1;
    }
    assert!(kills >= 2, "the ranks ended before the leader was killed twice");
    let reports: Vec<Value> = ranks.into_iter().map(ServerProcess::finish).collect();
    let audit = run(ctl().arg("audit").arg(&job).arg("--json")).json();
    assert_eq!(sum(&reports, "receipt"), audit["plan_receipt"].as_str().unwrap(), "{reports:?}");
    let again = all.cluster.pull_all("killed", 2, &["node-0", "node-1"], &["--from", "0:0"]);
    assert_eq!(sum(&reports, "content_digest"), sum(&again, "content_digest"));
}
