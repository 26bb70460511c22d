//! Real workers and ranks on a store with all kinds of faults: the receipts are still the plan's.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, TestDataset, ctl, run, sum},
    proxy::{FaultScript, Proxy, RequestFault},
    s3::S3Server,
    stored::StoredPictures,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_records_failing_requests_and_slow_objects_leave_the_stream_as_planned() {
    let stored = StoredPictures::new(200, 2, &[20, 133]).await;
    let keys = "epochs = 2\nepoch_end = \"exact\"\nmax_bad_fraction = 0.02";
    let job = stored.job("disturbed", keys);
    let mut cluster = Cluster::start(0);
    for node in ["node-0", "node-1"] {
        cluster.start_worker(node, &["--store-silence-s", "0.5"]);
    }
    cluster.submit(&job);
    let quiet = cluster.pull_all("disturbed", 3, &["node-0", "node-1", "elsewhere"], &["--from", "0:0"]);
    let paths: Vec<String> = stored.proxy.requests().into_iter().map(|request| request.path).collect();
    drop(cluster);

    // The same again, with new workers whose caches are empty.
    let mut cluster = Cluster::start(0);
    for node in ["node-0", "node-1"] {
        cluster.start_worker(node, &["--store-silence-s", "0.5"]);
    }
    cluster.submit(&job);
    let faults = vec![
        RequestFault::Status(503, None),
        RequestFault::Reset,
        RequestFault::Silence,
        RequestFault::Stall,
        RequestFault::Truncated,
        RequestFault::Short,
        RequestFault::FlippedByte,
        RequestFault::OtherRange,
    ];
    let latency = Duration::from_millis(3);
    let script = |seed| FaultScript {
        seed,
        one_request_in: 20,
        faults: faults.clone(),
        latency,
        one_slow_object_in: 100,
        ..FaultScript::default()
    };
    // The script makes about one shard in a hundred slow; take a seed that makes at least one slow.
    let slow =
        |script: &FaultScript| paths.iter().filter(|path| path.ends_with(".tar") && script.is_slow(path)).count();
    let script = (0..).map(script).find(|script| slow(script) > 0).expect("a seed that makes a shard slow");
    stored.proxy.follow(script.clone());
    let before = stored.proxy.requests().len();
    let loud = cluster.pull_all("disturbed", 3, &["node-0", "node-1", "elsewhere"], &["--from", "0:0"]);
    stored.proxy.follow(FaultScript::default());
    let requests = stored.proxy.requests().split_off(before);
    let met = |fault: &RequestFault| requests.iter().any(|request| request.fault == Some(*fault));
    assert!(faults.iter().filter(|fault| met(fault)).count() >= 6, "the script was kind");

    // The same samples and bytes, the same number of batches for each rank, and all substituted samples are listed.
    for field in ["receipt", "content_digest"] {
        assert_eq!(sum(&loud, field), sum(&quiet, field));
    }
    assert!(loud.iter().all(|report| report["batches"] == loud[0]["batches"]), "{loud:?}");
    let count = |field: &str| loud.iter().map(|report| report[field].as_u64().expect("a count")).sum::<u64>();
    assert_eq!((count("samples"), count("substituted")), (400, 4));
    let status = cluster.wait_for("a ledger of two", |status| status["jobs"][0]["bad_sample_count"] == 2);
    let listed = status["jobs"][0]["bad_sample_list"].as_array().expect("a list");
    let ids: Vec<String> = listed.iter().map(|sample| sample["sample"].to_string()).collect();
    let mut audit = ctl();
    audit.arg("audit").arg(&job).args(["--bad-samples", &ids.join(","), "--json"]);
    loud.iter().for_each(|report| {
        audit.args(["--receipt", report["receipt"].as_str().expect("a receipt")]);
    });
    let verdict = run(&mut audit).json();
    assert_eq!((&verdict["equal"], &verdict["substituted"]), (&Value::Bool(true), &Value::from(4)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_on_s3_survives_the_same_faults_with_its_requests_signed() {
    let dataset = TestDataset::of_pictures(48, 4);
    let server = S3Server::start();
    let url = server.upload(&dataset.path("dataset"), "pictures").await;
    let proxy = Proxy::start(server.address());
    let job = dataset.job("signed", "epochs = 2");
    let replay = |job: &PathBuf, endpoint: Option<&str>| {
        let mut command = ctl();
        command.arg("replay").arg(job).args(["--all", "--json"]).envs(server.environment());
        command.envs(endpoint.map(|endpoint| ("AWS_ENDPOINT", endpoint)));
        run(&mut command).json()
    };
    let expected = replay(&job, None);
    let text = fs::read_to_string(&job).expect("a job file");
    let local = format!("{:?}", dataset.path("dataset"));
    let remote = dataset.path("remote.toml");
    fs::write(&remote, text.replace(&local, &format!("{url:?}"))).expect("a job file is written");
    let faults =
        vec![RequestFault::Status(503, None), RequestFault::Reset, RequestFault::Truncated, RequestFault::FlippedByte];
    proxy.follow(FaultScript { seed: 4, one_request_in: 10, faults, ..FaultScript::default() });
    let report = replay(&remote, Some(&format!("http://{}", proxy.address())));
    assert_eq!((&report["receipt"], &report["content_digest"]), (&expected["receipt"], &expected["content_digest"]));
    assert!(proxy.requests().iter().any(|request| request.fault.is_some()), "the script was kind");
    server.clear().await;
}
