//! Resuming from a state: at another world size, with another batch size; and states of other jobs, which are refused.

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl, run, sum, undisturbed};

#[test]
fn world_batch_and_workers_can_change_in_the_middle_of_an_epoch() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("resize", "epochs = 2\nepoch_end = \"exact\"");
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let nodes = ["node-0", "elsewhere"];
    let mut history = cluster.pull_all("resize", 4, &nodes, &["--steps", "2", "--from", "0:0"]);
    for (world, further) in [(2, ["--steps", "1"]), (3, ["--global-batch", "15"])] {
        let states: Vec<String> = history.iter().rev().take(2).map(|report| report["state"].to_string()).collect();
        assert_eq!(states[0], states[1], "the same on every rank");
        assert!((60..140).contains(&states[0].len()), "about a hundred bytes: {}", states[0]);
        cluster.start_worker("node-1", &[]);
        let args = [&["--state", &states[0]], &further[..]].concat();
        history.extend(cluster.pull_all("resize", world, &nodes, &args));
    }
    let receipt = sum(&history, "receipt");
    assert_eq!(run(ctl().arg("audit").arg(&job).arg("--json")).json()["plan_receipt"], receipt);
}

#[test]
fn a_state_of_another_job_dataset_or_pipeline_is_refused_with_both_fingerprints() {
    let dataset = TestDataset::of_pictures(40, 20);
    let ours = dataset.job("ours", "");
    let cluster = Cluster::start(1);
    cluster.submit(&ours);
    let our_fingerprint = cluster.status()["jobs"][0]["fingerprint"].as_str().unwrap().to_owned();

    // Another seed, another pipeline, another version of the dataset.
    let text = std::fs::read_to_string(&ours).unwrap();
    let others = [
        ("seed", text.replace("seed = 5", "seed = 6")),
        ("pipeline", text.replace("size = 64", "size = 32")),
        ("dataset", text.clone()),
    ];
    for (name, text) in others {
        if name == "dataset" {
            let mut pack = ctl();
            pack.arg("pack").arg(dataset.path("pictures")).arg(dataset.path("dataset"));
            assert!(run(pack.args(["--force", "--seed", "99"])).status.success());
        }
        let job = dataset.path(format!("{name}.toml"));
        std::fs::write(&job, text.replace("name = \"ours\"", &format!("name = \"{name}\""))).unwrap();
        let state = undisturbed(&job, 1, &[])["state"].clone();
        let theirs = state["job"].as_str().unwrap().to_owned();
        assert_ne!(theirs, our_fingerprint, "{name}");
        let mut pull = cluster.pull("ours", 0, 1, "node-0", &["--state", &state.to_string()]);
        run(&mut pull).error(&[&theirs, &our_fingerprint, "hint:"]);
    }
}

#[test]
fn a_launch_that_resumes_goes_on_from_what_all_ranks_had_acknowledged() {
    let dataset = TestDataset::of_pictures(120, 40);
    let job = dataset.job("last", "epochs = 1000000");
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    // Rank 1 is behind rank 0. The launch resumes where both have been, also after a restart of the coordinator.
    let mut ahead = ServerProcess::spawn(&mut cluster.pull("last", 0, 2, "node-0", &["--from", "0:0", "--progress"]));
    ahead.progress_to(24);
    let behind = run(&mut cluster.pull("last", 1, 2, "node-0", &["--from", "0:0", "--steps", "1"])).json();
    assert_eq!(behind["position"], "0:24");
    ahead.signal(Signal::TERM);
    assert!(!ahead.wait().success());
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.start_coordinator();
    let mut audit = ctl();
    audit.arg("audit").arg(&job).args(["--from", "0:24", "--steps", "4", "--json"]);
    for report in cluster.pull_all("last", 3, &["node-0"], &["--steps", "4", "--from", "resume"]) {
        audit.args(["--receipt", report["receipt"].as_str().unwrap()]);
    }
    assert_eq!(run(&mut audit).json()["equal"], true);
}
