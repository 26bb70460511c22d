//! A store that is unavailable for a long time: the job waits, reports the reason, and goes on by itself.

use std::time::{Duration, Instant};

use spdl_testkit::{
    http,
    processes::{Cluster, LIMIT, ServerProcess, ctl, run},
    proxy::RequestFault,
    stored::StoredPictures,
};

use super::fixture::{FeedSettings, StorageFixture};

const FOR_EVER: u64 = 1 << 40;
const BUSY: RequestFault = RequestFault::Status(503, None);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_waits_for_a_store_that_went_away_and_reports_the_reason() {
    let fixture = StorageFixture::new(80, 8).await;
    for (object, stage, fault) in
        [(".tar", "fetch", BUSY), (".idx", "fetch", RequestFault::Reset), ("manifest.spdl", "open", BUSY)]
    {
        fixture.proxy.order(object, if stage == "fetch" { 3 } else { 0 }, FOR_EVER, fault);
        let mut fed = fixture.feed(&fixture.url, 1, &FeedSettings::default()).await;
        let stall = loop {
            match fed.feed.stall().map(|stall| stall.to_string()) {
                Some(stall) if stall.contains("have failed for") => break stall,
                _ => {}
            }
            tokio::select! {
                next = fed.next() => assert!(next.unwrap(), "the end came without the store"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        };
        for part in ["`here`", stage, object, "rank 0 of job `raw`", "in all, the last with"] {
            assert!(stall.contains(part), "`{part}` is not in {stall}");
        }
        fixture.proxy.forget_orders();
        let delivered = fed.rest().await.unwrap();
        assert_eq!(delivered.batches, fixture.undisturbed(1).await);
        assert!(delivered.store.retries > 0 && delivered.store.refusals == 0, "{:?}", delivered.store);
    }
}

/// Returns a worker's /metrics.
fn metrics(address: &str) -> String {
    http::get(address, "/metrics", LIMIT).expect("the worker's metrics").1
}

fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("`{name}` is not in {text}")).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_reported_to_trainer_and_operator_and_the_job_goes_on_when_it_is_back() {
    let stored = StoredPictures::new(64, 4, &[]).await;
    let job = stored.job("outage", "epochs = 1");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    stored.proxy.order(".tar", 2, FOR_EVER, BUSY);

    // The timeout error of a trainer names the stage, the worker, the shard, and the reason for the wait.
    run(&mut cluster.pull("outage", 0, 1, "node-0", &["--timeout", "3"])).error(&[
        "rank 0 has waited",
        "`fetch` of worker `node-0`",
        ".tar`",
        "have failed for",
        "the server answered 503",
    ]);

    // A trainer that waits gets all samples.
    let pull = ServerProcess::spawn(&mut cluster.pull("outage", 0, 1, "node-0", &["--timeout", "110"]));
    let status = cluster.wait_for("a stall with its cause", |status| {
        status["workers"][0]["ranks"].to_string().contains("the server answered 503")
    });
    let store = &status["workers"][0]["store"];
    assert!(store["retries"].as_u64() > Some(0) && store["outage_ms"].as_u64() > Some(0), "{store}");
    // The status shows the rank's growing wait although no batch has ended it yet.
    let rank = |status: &serde_json::Value| {
        let rank = &status["sessions"].as_array().expect("a list").last().expect("a session")["ranks"][0];
        (rank["position"].clone(), rank["waited_ms"].as_u64().expect("a number"))
    };
    let (position, waited_ms) = rank(&status);
    cluster.wait_for("a wait that grows at the same position", |status| {
        let (now_at, now_ms) = rank(status);
        assert_eq!(now_at, position, "the store is away");
        now_ms >= waited_ms + 1_000
    });
    let started = Instant::now();
    let text = loop {
        let text = metrics(cluster.workers[0].ready["http"].as_str().expect("an address"));
        if metric(&text, "spdl_worker_store_outage_seconds") > 0.0 {
            break text;
        }
        assert!(started.elapsed() < LIMIT, "no trouble with the store: {text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(metric(&text, "spdl_worker_store_retries_total") > 0.0);
    stored.proxy.forget_orders();
    let report = pull.finish();
    assert_eq!(report["samples"], 64);
    let mut audit = ctl();
    audit.arg("audit").arg(&job).args(["--json", "--receipt", report["receipt"].as_str().expect("a receipt")]);
    assert_eq!(run(&mut audit).json()["equal"], true);
}
