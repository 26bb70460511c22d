//! The values that a worker tunes, in a cluster of real processes.

use std::time::Duration;

use serde_json::Value;
use spdl_testkit::{
    http::get,
    processes::{Cluster, LIMIT, ServerProcess, ctl, run},
    proxy::FaultScript,
    stored::StoredPictures,
};

/// A store so slow that decoding waits for it, however slow the machine is.
const LATENCY: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_its_store_tries_other_values_and_reports_them() {
    let pictures = StoredPictures::new(200, 50, &[]).await;
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--memory", "16MiB", "--cores", "1"]);
    cluster.submit(&pictures.job("tuned", "epochs = 100000"));
    pictures.proxy.follow(FaultScript { latency: LATENCY, ..FaultScript::default() });
    let _rank = ServerProcess::spawn(&mut cluster.pull("tuned", 0, 1, "node-0", &[]));
    let is_tuned =
        |status: &Value| status["workers"][0]["tuning"].as_array().is_some_and(|changes| !changes.is_empty());
    let status = cluster.wait_for("a trial of another value", is_tuned);
    let change = &status["workers"][0]["tuning"][0];
    assert!(matches!(change["value"].as_str(), Some("requests" | "read_ahead")), "{change}");
    assert_ne!(change["from"], change["to"], "{change}");
    assert!(change["reason"].as_str().is_some_and(|reason| reason.contains("% of the time")), "{change}");
    let shown = run(&mut cluster.ctl("admin", ["status", "-v"])).stdout;
    assert!(shown.contains("requests, ") && shown.contains("steps ahead"), "{shown}");
}

#[test]
fn pinned_values_hold_and_are_shown_as_such() {
    let mut cluster = Cluster::start(0);
    let pinned = ["--requests", "7", "--read-ahead", "3"];
    let address = cluster.start_worker("node-0", &pinned).ready["http"].as_str().expect("an address").to_owned();
    cluster.wait_for("the worker", |status| status["workers"].as_array().is_some_and(|workers| workers.len() == 1));
    let shown = run(&mut cluster.ctl("admin", ["status", "-v"])).stdout;
    let expected = "7 requests pinned, 3 steps ahead pinned";
    assert!(shown.contains(expected), "{shown}");
    let (_, metrics) = get(&address, "/metrics", LIMIT).expect("metrics");
    assert!(metrics.contains("spdl_worker_requests_limit 7.0"), "{metrics}");
    assert!(metrics.contains("spdl_worker_read_ahead_steps 3.0"), "{metrics}");
}

#[test]
fn a_value_out_of_its_bounds_is_refused_with_the_flag() {
    for (flag, value, expected) in [
        ("--requests", "0", "0 is not 1 to 512; `auto` lets the worker choose"),
        ("--read-ahead", "1000", "1000 is not 1 to 512"),
        ("--requests", "many", "`many` is neither `auto` nor a whole number"),
    ] {
        let mut worker = ctl();
        worker.args(["worker", "--coord", "127.0.0.1:1", "--certs", "/nowhere", "--no-socket", flag, value]);
        run(&mut worker).error(&[flag, expected]);
    }
}
