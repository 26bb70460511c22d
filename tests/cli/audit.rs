//! `audit` of a run that a coordinator knows, and of receipts given by hand.

use std::fs;

use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl, run};

/// Makes a dataset of 60 records with 25 bad ones: more than the status lists.
fn mostly_good() -> TestDataset {
    let picture = spdl_cli::pictures::Pictures::new().picture(3, 0);
    TestDataset::of_records((0..60).map(|index| {
        let is_bad = index % 2 == 1 && index < 50;
        (picture.clone(), if is_bad { "dog".to_owned() } else { (index % 7).to_string() })
    }))
}

#[test]
fn a_prolonged_run_with_many_bad_samples_is_audited_from_the_coordinators_state_and_an_altered_receipt_is_found() {
    let dataset = mostly_good();
    let job = dataset.job("many-bad", "max_bad_fraction = 0.9\nepoch_end = \"exact\"");
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let reports = cluster.pull_all("many-bad", 2, &["node-0", "elsewhere"], &["--run", "lr-1", "--epochs", "2"]);

    let audit = |cluster: &Cluster, name: &str| run(&mut cluster.ctl("client", ["audit", "--run", name]));
    let shown = audit(&cluster, "many-bad/lr-1");
    assert!(shown.status.success(), "{}{}", shown.stdout, shown.stderr);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(lines[0], "run `lr-1` of job `many-bad`: 2 epochs, 25 bad samples");
    assert_eq!(lines[1], "session 1  2 ranks, 0:0 to 2:0: 120 samples, 50 substituted");
    assert_eq!(lines[2..], ["equal: every sample from 0:0 to 2:0 once"]);

    // An audit by hand needs the run's number of epochs and the ids of all bad samples.
    let ids: Vec<String> = (0..25).map(|index| (2 * index + 1).to_string()).collect();
    let mut by_hand = ctl();
    by_hand.arg("audit").arg(&job).args(["--epochs", "2", "--bad-samples", &ids.join(","), "--json"]);
    by_hand.args(reports.iter().flat_map(|report| ["--receipt", report["receipt"].as_str().expect("a receipt")]));
    let verdict = run(&mut by_hand).json();
    assert_eq!((&verdict["equal"], &verdict["samples"]), (&true.into(), &120.into()), "{verdict}");

    // Alter only the receipt of rank 1 in the state.
    cluster.coordinator = None;
    let (state, file) = (cluster.path("state"), cluster.path("state.jsonl"));
    let of_state = |action: &str| {
        let mut command = ctl();
        command.args(["coord", "state", action]);
        command
    };
    assert!(run(of_state("export").arg("--state").arg(&state).arg("--out").arg(&file)).status.success());
    let text = fs::read_to_string(&file).expect("the state was written");
    let (receipt, altered) = (reports[1]["receipt"].as_str().expect("a receipt"), "0123456789abcdef0123456789abcdef");
    assert_eq!(text.matches(receipt).count(), 1, "{text}");
    fs::write(&file, text.replace(receipt, altered)).expect("it is written");
    assert!(run(of_state("import").arg(&file).arg("--state").arg(&state)).status.success());
    cluster.start_coordinator();

    let found = audit(&cluster, "lr-1");
    assert_eq!(found.status.code(), Some(1), "{}{}", found.stdout, found.stderr);
    let expected =
        format!("DIFFERENT: rank 1 of session 1, from 0:0 to 2:0: its receipt is {altered}, the plan's is {receipt}");
    assert_eq!(found.stdout.lines().last(), Some(expected.as_str()), "{}", found.stdout);
}

#[test]
fn an_audit_says_of_which_ranks_it_may_lack_batches() {
    let dataset = TestDataset::of_pictures(60, 30);
    let job = dataset.job("unreported", "epochs = 1000000");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let audit = || {
        let found = run(&mut cluster.ctl("client", ["audit", "--run", "unreported"]));
        assert!(found.status.success(), "{}{}", found.stdout, found.stderr);
        found.stdout.lines().last().expect("a verdict").to_owned()
    };
    let mut rank =
        ServerProcess::spawn(&mut cluster.pull("unreported", 0, 1, "node-0", &["--rate", "60", "--progress"]));
    rank.progress_to(24);
    let living = "not reported: rank 0 of session 1 may have got further than reported: rank 0 to ";
    assert!(audit().starts_with(living), "{}", audit());
    rank.kill();
    let is_over = |status: &Value| status["jobs"][0]["runs"][0]["ranks_alive"] == 0;
    cluster.wait_for("the end of the rank", is_over);
    let killed = "not reported: rank 0 of session 1 ended without a last report: rank 0 had reported ";
    assert!(audit().starts_with(killed), "{}", audit());
    // With the end of another launch, all is reported.
    let next = cluster.pull_all("unreported", 1, &["node-0"], &["--from", "resume", "--steps", "2"]);
    assert_eq!(next.len(), 1);
    assert!(audit().starts_with("equal: every sample from 0:0 to "), "{}", audit());
}

#[test]
fn a_start_that_is_not_in_the_stream_is_an_error_with_the_range_for_audit_and_replay_as_for_a_launch() {
    let dataset = TestDataset::of_pictures(30, 30);
    let job = dataset.job("range", "epochs = 2");
    for command in ["audit", "replay"] {
        for (from, problem) in [
            ("7:0", "start 7:0 of job `range`: epoch 7 is past the end: there are 2, from 0 to 1"),
            ("0:9999", "start 0:9999 of job `range`: offset 9999 is past the end of an epoch: it has 30 samples"),
            ("1:10", "start 1:10 of job `range`: no batch of 24 is left there: the last epoch is 1 and has 30 samples"),
        ] {
            run(ctl().arg(command).arg(&job).args(["--from", from])).error(&[problem, "hint: a start is `beginning`"]);
        }
    }
    let audited = run(ctl().arg("audit").arg(&job).args(["--from", "7:0", "--epochs", "8", "--json"])).json();
    assert_eq!((&audited["steps"], &audited["samples"]), (&1.into(), &24.into()));
}
