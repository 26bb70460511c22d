//! The figure that workers are scaled on, in a cluster of real processes whose load changes.

use std::time::Duration;

use serde_json::Value;
use spdl_testkit::{
    http::get,
    processes::{Cluster, LIMIT, ServerProcess, TestDataset, run},
    proxy::FaultScript,
    stored::StoredPictures,
};

/// Waits until the need of the one rank is known, and returns the status.
fn measured(cluster: &Cluster, what: &str, holds: impl Fn(f64) -> bool) -> Value {
    cluster.wait_for(what, |status| {
        let scale = &status["scale"];
        let demand = &scale["demand"];
        let is_measured = demand["ranks"] == 1 && demand["measured_ranks"] == 1;
        is_measured && scale["wanted_cores"].as_f64().is_some_and(&holds)
    })
}

#[test]
fn a_trainer_that_gets_faster_wants_more_cores() {
    let dataset = TestDataset::of_pictures(64, 16);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "0.5"]);
    cluster.submit(&dataset.job("a-job", "epochs = 1000000"));
    let pull = |further: &[&str]| ServerProcess::spawn(&mut cluster.pull("a-job", 0, 1, "node-0", further));
    let mut slow = pull(&["--rate", "4"]);
    measured(&cluster, "a small need", |wanted| wanted <= 0.0);
    slow.kill();
    let _fast = pull(&["--from", "resume"]);
    let status = measured(&cluster, "a need for more", |wanted| wanted > 0.1);
    let reason = status["scale"]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("1 rank needs ") && reason.ends_with("the workers have 0.5"), "{reason}");

    let decision = run(&mut cluster.ctl("admin", ["scale", "--dry-run", "--json"])).json();
    assert_eq!((&decision["workers"], &decision["worker_cores"]), (&1.into(), &0.5.into()), "{decision}");
    assert!(decision["wanted_workers"].as_u64() > Some(1), "{decision}");
    let text = run(&mut cluster.ctl("admin", ["scale", "--dry-run", "--worker-cores", "64"])).stdout;
    assert!(text.starts_with("workers: 1 of 64 cores now, 2 wanted (1 more): 1 rank needs "), "{text}");
    run(&mut cluster.ctl("admin", ["scale"])).error(&["--dry-run"]);
    let (_, metrics) = get(&cluster.http, "/metrics", LIMIT).expect("metrics");
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).trim().parse::<f64>().expect("a number")
    };
    assert!(value("spdl_wanted_cores ") > 0.0, "{metrics}");
    assert_eq!(
        (value("spdl_wanted_pool_cores "), value("spdl_coordinator_worker_cores ")),
        (value("spdl_wanted_cores "), 0.5)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_waits_for_its_store_wants_no_more_cores() {
    let pictures = StoredPictures::new(200, 50, &[]).await;
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--memory", "16MiB", "--cores", "1", "--requests", "2", "--read-ahead", "1"]);
    cluster.submit(&pictures.job("stored", "epochs = 100000"));
    pictures.proxy.follow(FaultScript { latency: Duration::from_millis(200), ..FaultScript::default() });
    let _rank = ServerProcess::spawn(&mut cluster.pull("stored", 0, 1, "node-0", &[]));
    let status = measured(&cluster, "a known need", |_| true);
    let scale = &status["scale"];
    assert!(scale["wanted_cores"].as_f64() <= Some(0.0), "{scale}");
    let waits = "1 rank waits for something else (`store_latency`), which cores do not give";
    assert!(scale["reason"].as_str().is_some_and(|reason| reason.ends_with(waits)), "{scale}");
}
