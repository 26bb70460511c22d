//! A rank is killed or suspended.

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, sum, undisturbed};

use super::{RATE, rank_status};

/// Returns the state in a rank's report, as an argument for `--state`.
fn state_of(report: &serde_json::Value) -> String {
    report["state"].to_string()
}

#[test]
fn a_killed_rank_and_a_trainer_restarted_from_its_checkpoint_lose_and_repeat_nothing() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("restart", "epochs = 1000000");
    let cluster = Cluster::start(2);
    cluster.submit(&job);
    let nodes = ["node-0", "elsewhere", "node-1"];
    let mut history = cluster.pull_all("restart", 2, &nodes, &["--steps", "5", "--from", "0:0"]);
    let checkpoint = state_of(&history[0]);

    let args = ["--state", &checkpoint, "--rate", RATE, "--progress"];
    let pull = |rank| ServerProcess::spawn(&mut cluster.pull("restart", rank, 2, nodes[rank as usize], &args));
    let mut lost = [0, 1].map(pull);
    lost.iter_mut().for_each(|rank| {
        rank.progress_to(48);
    });
    lost[1].kill();
    // The batches after the checkpoint are delivered again. The new launch starts before the old ranks notice it.
    history.extend(cluster.pull_all("restart", 3, &nodes, &["--steps", "7", "--state", &checkpoint]));
    assert!(!lost[0].wait().success(), "its session has a successor");

    let alone = undisturbed(&job, 12, &[]);
    for field in ["receipt", "content_digest"] {
        assert_eq!(alone[field], sum(&history, field), "{field}");
    }
    assert_eq!(history.last().unwrap()["state"], alone["state"]);
}

#[test]
fn a_rank_that_hangs_holds_up_no_other_and_goes_on_in_its_session() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("pause", "epochs = 1000000");
    let cluster = Cluster::start_with(1, &["--liveness-ms", "1000"], Vec::new());
    cluster.submit(&job);
    for node in ["node-0", "elsewhere"] {
        let args = ["--steps", "40", "--from", "0:0", "--rate", RATE, "--progress"];
        let pull = |rank| ServerProcess::spawn(&mut cluster.pull("pause", rank, 2, node, &args));
        let [mut first, mut second] = [0, 1].map(pull);
        second.progress_to(1);
        second.signal(Signal::STOP);
        cluster.wait_for("a silent rank", |status| {
            rank_status(status, 0)["is_alive"] == true && rank_status(status, 1)["is_alive"] == false
        });
        first.progress_to(240);
        second.signal(Signal::CONT);
        let reports = [first.finish(), second.finish()];
        assert_eq!(undisturbed(&job, 40, &[])["receipt"], sum(&reports, "receipt"));
    }
}
