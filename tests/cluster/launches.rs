//! Several launches of one job, at the same time and one after another: a second launch, a restart, a notebook, a
//! sweep.

use std::process::{Command, Stdio};

use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, run};

fn cluster(name: &str, keys: &str) -> (TestDataset, Cluster) {
    let (dataset, cluster) = Cluster::with_job(1, [60, 20], name, keys);
    (dataset, cluster)
}

/// Returns a command for a rank that a user starts by hand, without a launch id.
fn by_hand(cluster: &Cluster, job: &str, further: &[&str]) -> Command {
    let mut pull = cluster.pull(job, 0, 1, "node-0", further);
    pull.env_remove("SPDL_LAUNCH_ID");
    pull
}

/// Starts a rank without end and waits for its first samples.
fn training(cluster: &Cluster, job: &str, further: &[&str]) -> ServerProcess {
    let mut pull = by_hand(cluster, job, &["--rate", "50", "--progress"]);
    let mut rank = ServerProcess::spawn(pull.args(further).stderr(Stdio::piped()));
    assert!(rank.line()["progress"].is_u64());
    rank
}

fn failure_message(mut rank: ServerProcess) -> String {
    let mut message = String::new();
    std::io::Read::read_to_string(&mut rank.child.stderr.take().unwrap(), &mut message).unwrap();
    assert!(!rank.wait().success());
    message
}

fn run_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let runs = status["jobs"][0]["runs"].as_array().expect("runs");
    runs.iter().find(|run| run["name"] == name).unwrap_or_else(|| panic!("no run `{name}` in {runs:?}"))
}

#[test]
fn a_second_launch_is_refused_naming_the_first_until_it_takes_over() {
    let (_dataset, cluster) = cluster("twice", "epochs = 1000000");
    let first = training(&cluster, "twice", &[]);
    let holder = format!("job `twice` is in use: session 1 is held by rank 0 of 1 (process {} on ", first.pid());
    run(&mut by_hand(&cluster, "twice", &["--steps", "2"])).error(&[&holder, ", since 20", "hint:", "SPDL_TAKEOVER"]);
    let second = run(&mut by_hand(&cluster, "twice", &["--steps", "2", "--takeover"])).json();
    assert_eq!(second["batches"], 2);
    let message = failure_message(first);
    for part in ["session 1 of job `twice` was superseded", "rank 0", "hint:"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_trainer_that_was_killed_and_is_started_again_at_once_just_works_and_begins_at_the_beginning() {
    let (_dataset, cluster) = cluster("crash", "epochs = 1000000");
    training(&cluster, "crash", &[]).kill();
    let again = run(&mut by_hand(&cluster, "crash", &["--steps", "2"]));
    let report: Value = serde_json::from_str(again.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(report["position"], "0:48", "{}", again.stderr);
    for part in ["is in use", "asking again", "session 2 of job `crash` starts at 0:0, the beginning"] {
        assert!(again.stderr.contains(part), "{part}: {}", again.stderr);
    }
}

#[test]
fn a_restart_with_its_launch_id_waits_for_no_timeout_and_resumes_on_demand() {
    let (_dataset, cluster) = cluster("restart", "epochs = 1000000");
    let mut first = cluster.pull("restart", 0, 1, "node-0", &["--rate", "50", "--progress"]);
    let mut first = ServerProcess::spawn(&mut first);
    first.progress_to(24);
    cluster.wait_for("an acknowledged position", |status| status["jobs"][0]["acknowledged"]["offset"] != 0);
    first.kill();
    let again = run(&mut cluster.pull("restart", 0, 1, "node-0", &["--steps", "1", "--from", "resume"]));
    assert!(again.stderr.contains("where all ranks of session 1 had got to"), "{}", again.stderr);
    assert!(!again.stderr.contains("is in use"), "{}", again.stderr);
}

#[test]
fn two_runs_of_a_job_train_side_by_side_and_each_is_resumed_where_it_was() {
    let (_dataset, cluster) = cluster("sweep", "epochs = 3");
    let first = training(&cluster, "sweep", &["--run", "lr-1", "--epochs", "1000000"]);
    let second = run(&mut by_hand(&cluster, "sweep", &["--run", "lr-2", "--steps", "1"])).json();
    assert_eq!(second["position"], "0:24");
    let status = cluster.status();
    assert_eq!(
        (&run_of(&status, "lr-1")["ranks_alive"], &run_of(&status, "lr-2")["ranks_alive"]),
        (&1.into(), &0.into())
    );
    let again = run(&mut by_hand(&cluster, "sweep", &["--run", "lr-2", "--from", "resume", "--steps", "1"])).json();
    assert_eq!(again["position"], "0:48");
    run(&mut by_hand(&cluster, "sweep", &["--run", "lr-1"])).error(&["run `lr-1` of job `sweep` is in use"]);
    drop(first);
}

#[test]
fn a_third_launch_of_a_finished_run_is_an_error_and_more_epochs_go_on() {
    let (_dataset, cluster) = cluster("finished", "epochs = 1");
    let whole = run(&mut by_hand(&cluster, "finished", &[])).json();
    let again = run(&mut by_hand(&cluster, "finished", &[])).json();
    assert_eq!(whole["receipt"], again["receipt"], "it begins at the beginning unless it is to resume");
    let third = run(&mut by_hand(&cluster, "finished", &["--from", "resume"]));
    third.error(&[
        "job `finished` is finished: session 2 got to ",
        "and no batch of its 1 epoch(s) is left",
        "hint:",
        "SPDL_EPOCHS",
    ]);
    let longer = run(&mut by_hand(&cluster, "finished", &["--from", "resume", "--epochs", "2"])).json();
    assert_eq!(longer["samples"], whole["samples"]);
    assert_ne!(longer["receipt"], whole["receipt"], "it is the second epoch");
}

#[test]
fn a_start_that_is_not_in_the_stream_is_an_error_with_the_range() {
    let (_dataset, cluster) = cluster("range", "epochs = 2");
    for (from, parts) in [
        ("7", ["start 7:0 of job `range`", "there are 2, from 0 to 1"]),
        ("0:9999", ["start 0:9999 of job `range`", "it has 60 samples"]),
        ("1:50", ["start 1:50 of job `range`", "no batch of 24 is left"]),
        ("end", ["`end`", "EPOCH:OFFSET"]),
    ] {
        run(&mut by_hand(&cluster, "range", &["--from", from])).error(&parts);
    }
}

#[test]
fn a_rank_that_disagrees_with_its_session_gets_both_values_and_the_client_that_began_it() {
    let (_dataset, cluster) = cluster("disagree", "epochs = 1000000");
    let mut first = cluster.pull("disagree", 0, 2, "node-0", &["--rate", "50", "--progress"]);
    let mut first = ServerProcess::spawn(first.env_remove("SPDL_LAUNCH_ID"));
    assert!(first.line()["progress"].is_u64());
    let who = format!("process {} on ", first.pid());
    for (world, further, values) in
        [("3", vec![], ["world 3", "with 2"]), ("2", vec!["--from", "1"], ["start 1:0", "with 0:0"])]
    {
        let mut second = cluster.pull("disagree", 1, world.parse().unwrap(), "node-0", &["--steps", "1"]);
        let second = run(second.args(further).env_remove("SPDL_LAUNCH_ID"));
        second.error(&[values[0], values[1], &who, "hint:"]);
    }
}
