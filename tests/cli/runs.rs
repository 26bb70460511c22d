//! The output and the errors of `run list` and `run reset`.

use spdl_testkit::processes::{Cluster, ServerProcess, run};

#[test]
fn runs_are_listed_with_their_holders_and_an_idle_one_begins_again() {
    let (dataset, cluster) = Cluster::with_job(1, [24, 8], "first", "epochs = 1000000");
    cluster.submit(&dataset.job("second", "epochs = 3"));
    let admin = |arguments: &[&str]| run(&mut cluster.ctl("admin", arguments));
    assert_eq!(admin(&["run", "list"]).stdout, "no runs; a job's first launch begins one\n");
    let pull = |job: &str, name: &str, further: &[&str]| {
        let mut pull = cluster.pull(job, 0, 1, "node-0", further);
        pull.args(["--run", name]);
        pull
    };
    let report = run(&mut pull("second", "lr-1", &["--steps", "2", "--epochs", "9"])).json();
    run(&mut pull("first", "lr-1", &["--steps", "1"])).json();
    let mut held = ServerProcess::spawn(&mut pull("first", "first", &["--progress", "--rate", "24"]));
    held.progress_to(24);

    let listed = admin(&["run", "list"]).stdout;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["JOB", "RUN", "STATE", "POSITION", "EPOCHS", "RECEIPT"], "{listed}");
    assert_eq!(rows[1][..3], ["first", "first", "running"], "{listed}");
    assert_eq!(rows[2][..4], ["first", "lr-1", "idle", "1:0"], "{listed}");
    let receipt = report["receipt"].as_str().expect("a receipt");
    assert_eq!(rows[3], ["second", "lr-1", "idle", "2:0", "9", receipt], "{listed}");
    assert!(listed.lines().last().is_some_and(|line| line.starts_with("job `first` is held by rank 0 of 1 (")));
    assert!(listed.lines().all(|line| line.chars().count() <= 100), "{listed}");
    let json = admin(&["run", "list", "--json"]).json();
    assert_eq!((&json[2]["job"], &json[2]["state"], &json[2]["epochs"]), (&"second".into(), &"idle".into(), &9.into()));

    for (arguments, parts) in [
        (
            &["first", "--yes"][..],
            &["run `first` is not reset: job `first` is in use: session 3 is held by rank 0 of 1"][..],
        ),
        (&["lr-1", "--yes"], &["several jobs have a run `lr-1`: first/lr-1, second/lr-1", "hint: write JOB/RUN"]),
        (&["lr-2", "--yes"], &["no job has had a run `lr-2`; known are: first/first, first/lr-1, second/lr-1"]),
        (&["second/lr-1"], &["run `lr-1` is kept: nothing was confirmed", "hint: answer `y`", "`--yes`"]),
    ] {
        admin(&[&["run", "reset"], arguments].concat()).error(parts);
    }
    run(&mut cluster.ctl("client", ["run", "reset", "second/lr-1", "--yes"]))
        .error(&["a client may not send ResetRun"]);
    let done = admin(&["run", "reset", "second/lr-1", "--yes"]);
    assert_eq!(
        done.stdout, "run `lr-1` of job `second` begins at the beginning with its next launch\n",
        "{}",
        done.stderr
    );
    let again = run(&mut pull("second", "lr-1", &["--from", "resume", "--steps", "1"])).json();
    assert_eq!(again["position"], "1:0", "one batch of 24 from the beginning");
    let audited = run(&mut cluster.ctl("client", ["audit", "--run", "second/lr-1", "--json"])).json();
    let sessions = audited["sessions"].as_array().expect("sessions");
    assert_eq!((sessions.len(), &sessions[0]["session"]), (1, &4.into()), "what was before the reset does not count");

    let status = admin(&["status"]).stdout;
    assert!(status.lines().any(|line| line.starts_with("job first ")), "{status}");
}
