//! The stream is the same in process, over shared memory, over QUIC and from replay, at each world size and number of
//! workers.

use std::fs;

use serde_json::Value;
use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};

use super::deliveries::{assert_audited, assert_delivered, digests, replay, replay_all};

#[test]
fn receipt_and_content_are_the_same_in_every_way_of_delivery() {
    let dataset = TestDataset::of_pictures(120, 32);
    let job = dataset.job("same", "epochs = 2\nepoch_end = \"exact\"");

    let alone = replay_all(&job, &[]);
    assert_eq!(alone["samples"], 240);
    let halves = ["0", "1"].map(|rank| replay(&job, &["--from", "0:0", "--all", "--rank", rank, "--world", "2"]));
    assert_eq!(digests(&halves), digests(std::slice::from_ref(&alone)), "in process at world 2");

    for workers in [1, 3] {
        let cluster = Cluster::start(workers);
        cluster.submit(&job);
        let worlds = [(1, &["node-0"][..]), (2, &["node-0"]), (4, &["elsewhere"]), (1, &["elsewhere"])];
        assert_delivered(&cluster, "same", &alone, &worlds);
    }
}

#[test]
fn a_scalable_dataset_gives_the_samples_and_bytes_of_the_plain_one() {
    let dataset = TestDataset::of_pictures(120, 32);
    let plain = dataset.job("plain", "epochs = 2\nepoch_end = \"exact\"");
    let mut pack = ctl();
    pack.arg("pack").arg(dataset.path("pictures")).arg(dataset.path("scalable"));
    pack.args(["--records-per-shard", "32", "--block-size", "8MiB", "--scalable", "--json"]);
    let packed = run(&mut pack).json();
    assert_eq!(
        (&packed["scalable_pictures"], &packed["jpegs_as_they_are"]),
        (&120.into(), &Value::Object(Default::default()))
    );
    assert!(packed["scalable_bytes"].as_u64() < packed["scalable_source_bytes"].as_u64(), "{packed}");
    // The order of samples is that of the blocks, which are the shards here.
    let mut pack = ctl();
    pack.arg("pack").arg(dataset.path("pictures")).arg(dataset.path("dataset"));
    run(pack.args(["--records-per-shard", "32", "--block-size", "8MiB", "--force", "--json"])).json();
    let text = fs::read_to_string(&plain).unwrap();
    let scalable = dataset.path("scalable.toml");
    fs::write(&scalable, text.replace("\"plain\"", "\"scalable\"").replace("/dataset\"", "/scalable\"")).unwrap();

    let expected = replay_all(&plain, &[]);
    assert_eq!(digests(&[replay_all(&scalable, &[])]), digests(std::slice::from_ref(&expected)));
    let cluster = Cluster::start(1);
    cluster.submit(&scalable);
    let worlds = [(1, &["node-0"][..]), (1, &["elsewhere"]), (2, &["node-0"]), (2, &["elsewhere"])];
    assert_delivered(&cluster, "scalable", &expected, &worlds);
}

#[test]
fn a_run_resumes_in_the_middle_of_an_epoch_at_another_world_size() {
    let dataset = TestDataset::of_pictures(120, 32);
    let job = dataset.job("resume", "epochs = 2\nepoch_end = \"exact\"");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let mut reports = cluster.pull_all("resume", 4, &["node-0"], &["--steps", "3", "--from", "0:0"]);
    assert_eq!(reports[0]["position"], "0:72");
    reports.extend(cluster.pull_all("resume", 3, &["elsewhere"], &["--from", "0:72"]));
    assert_audited(&job, &reports, &[]);
}

#[test]
fn a_launch_that_resumes_goes_on_from_the_last_acknowledged_position() {
    let dataset = TestDataset::of_pictures(60, 32);
    let job = dataset.job("again", "epochs = 1");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let first = cluster.pull_all("again", 2, &["node-0"], &["--steps", "1"]);
    let second = cluster.pull_all("again", 2, &["node-0"], &["--from", "resume"]);
    let reports: Vec<Value> = first.into_iter().chain(second).collect();
    assert_audited(&job, &reports, &[]);
}

#[test]
fn the_trace_of_every_rank_passes_the_audit_and_a_missing_one_does_not() {
    let dataset = TestDataset::of_pictures(60, 32);
    let job = dataset.job("trace", "epochs = 1");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let traces = [cluster.path("0.jsonl"), cluster.path("1.jsonl")];
    for (rank, trace) in traces.iter().enumerate() {
        let trace = trace.to_str().unwrap();
        // Whether or not rank 1 joins the session of rank 0, each rank pulls its own share.
        let mut pull = cluster.pull("trace", rank as u32, 2, "node-0", &["--from", "0:0", "--trace", trace]);
        run(&mut pull).json();
    }
    let audit = |traces: &[std::path::PathBuf]| {
        let mut command = ctl();
        command.arg("audit").arg(&job).arg("--json");
        traces.iter().for_each(|trace| {
            command.arg("--trace").arg(trace);
        });
        run(&mut command)
    };
    assert_eq!(audit(&traces).json()["equal"], true);
    let lost = audit(&traces[..1]);
    assert!(!lost.status.success());
    assert!(lost.stdout.contains("are missing"), "{}", lost.stdout);
}
