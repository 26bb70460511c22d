//! etcd hangs, and is then stopped, for `SPDL_TEST_ETCD_AWAY_S` seconds each (default 5, which is longer than a lease).

use std::time::{Duration, Instant};

use serde_json::Value;
use spdl_testkit::processes::{ServerProcess, TestDataset, ctl, run, sum};

use super::coordinators::{Coordinators, get, has_workers, wait_until};

fn away() -> Duration {
    let seconds = std::env::var("SPDL_TEST_ETCD_AWAY_S").ok();
    Duration::from_secs(seconds.map_or(5, |text| text.parse().expect("SPDL_TEST_ETCD_AWAY_S is a number")))
}

/// Reads a rank's progress for a time and asserts that the rank keeps pulling.
fn watch(rank: &mut ServerProcess, time: Duration) {
    let started = Instant::now();
    let mut last = rank.line()["progress"].as_u64().expect("progress");
    while started.elapsed() < time {
        let progress = rank.line()["progress"].as_u64().expect("progress");
        assert!(progress > last, "the rank stands at {progress}");
        last = progress;
    }
}

#[test]
fn an_etcd_that_is_away_stops_no_running_rank_and_the_cluster_recovers_by_itself() {
    let dataset = TestDataset::of_pictures(48, 16);
    let Some(mut all) = Coordinators::start(2) else { return };
    let job = dataset.job("away", "epochs = 1000000");
    all.cluster.submit(&job);
    let mut rank = ServerProcess::spawn(&mut all.cluster.pull("away", 0, 1, "node-0", &["--progress", "--rate", "60"]));
    assert!(rank.line()["progress"].is_u64());

    all.etcd.pause();
    watch(&mut rank, away());
    let what = "a coordinator that reports what is wrong";
    for one in &all.each {
        let reply = wait_until(what, || get(&one.http, "/readyz").filter(|(code, _)| *code == 503));
        assert!(reply.1.contains("etcd"), "{}", reply.1);
    }
    all.etcd.go_on();
    all.wait_for_leader("a leader, once etcd goes on", |status| has_workers(2)(status) && !is_idle(status));

    all.etcd.kill();
    watch(&mut rank, away());
    all.etcd.restart();
    all.wait_for_leader("a leader, once etcd is back", |status| has_workers(2)(status) && !is_idle(status));

    // The state in etcd can be exported while a coordinator leads.
    let mut export = ctl();
    export.args(["coord", "state", "export", "--state"]).arg(format!("etcd://{}/test", all.etcd.address));
    let exported = run(&mut export).stdout;
    assert!(exported.starts_with("{\"spdl_state\":1,") && exported.contains("\"name\":\"away\""), "{exported}");

    // A run to the end of another job: its receipts are the plan's.
    rank.kill();
    let short = dataset.job("after", "epochs = 1\nepoch_end = \"exact\"");
    all.cluster.submit(&short);
    let reports = all.cluster.pull_all("after", 2, &["node-0", "node-1"], &[]);
    let audit = run(ctl().arg("audit").arg(&short).arg("--json")).json();
    assert_eq!(sum(&reports, "receipt"), audit["plan_receipt"].as_str().unwrap(), "{reports:?}");
}

/// Whether no rank sends heartbeats.
fn is_idle(status: &Value) -> bool {
    let sessions = status["sessions"].as_array().expect("a list");
    !sessions
        .iter()
        .flat_map(|session| session["ranks"].as_array().expect("a list"))
        .any(|rank| rank["is_alive"] == true)
}
