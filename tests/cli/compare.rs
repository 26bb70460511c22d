//! `compare`, and the reports that it reads: of files and of a cluster.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use spdl_testkit::processes::{Cluster, Finished, ServerProcess, TestDataset, ctl, run};

/// Writes a value as a file of JSON.
fn write(folder: &Path, name: &str, value: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path
}

/// Returns the last line that `replay` prints of two epochs of a job, in which the text `old` is `new`.
fn replayed(dataset: &TestDataset, name: &str, [old, new]: [&str; 2]) -> Value {
    let job = dataset.job(name, "epochs = 2");
    let text = std::fs::read_to_string(&job).expect("a job file");
    assert!(text.contains(old), "{text}");
    std::fs::write(&job, text.replace(old, new)).expect("a job file is written");
    run(ctl().arg("replay").arg(job).args(["--all", "--json"])).json()
}

/// Returns the exit code of `compare`, and its result.
fn compare(files: [&Path; 2], further: &[&str]) -> (Option<i32>, Finished) {
    let done = run(ctl().arg("compare").args(files).args(further));
    (done.status.code(), done)
}

#[test]
fn a_build_fails_where_a_figure_is_worse_than_allowed() {
    let dataset = TestDataset::of_pictures(48, 8);
    let folder = tempfile::tempdir().unwrap();
    let whole = replayed(&dataset, "train", ["", ""]);
    let report = &whole["report"];
    assert_eq!(
        (&report["job"], &report["run"], &report["reported_by"]),
        (&"train".into(), &"train".into(), &"loader".into())
    );
    assert!(report["cpu_s_per_sample"]["decode"].as_f64().is_some_and(|cpu_s| cpu_s > 0.0), "{report}");
    let base = write(folder.path(), "base.json", &whole);
    let mut slower = report.clone();
    for figure in ["batches_per_s", "samples_per_s"] {
        slower[figure] = json!(0.9 * report[figure].as_f64().unwrap());
    }
    slower["cpu_s_per_sample"]["decode"] = json!(2.0 * report["cpu_s_per_sample"]["decode"].as_f64().unwrap());
    let slower = write(folder.path(), "slower", &slower);
    let compare = |further: &[&str]| compare([&base, &slower], further);

    let (code, shown) = compare(&[]);
    assert_eq!(code, Some(0), "{}", shown.stderr);
    for (name, change) in [("samples/s", "-10.0 %"), ("decode", "+100.0 %"), ("bytes/sample", "+0.0 %")] {
        let row = shown.stdout.lines().find(|line| line.trim().starts_with(name));
        assert!(row.is_some_and(|row| row.ends_with(change)), "{name}: {}", shown.stdout);
    }
    assert!(shown.stdout.lines().all(|line| line.chars().count() <= 100), "{}", shown.stdout);

    for (further, code, said) in [
        (
            &["--at-most", "5%"][..],
            1,
            &["worse than allowed: samples/s is 10.0 % lower, and 5 % are allowed", "CPU/sample"][..],
        ),
        (
            &["--at-most", "5%", "--at-most", "rate=15%", "--at-most", "cpu=any"],
            0,
            &["no figure is worse than allowed"],
        ),
        (&["--at-most", "cpu=10%"], 1, &["worse than allowed: CPU/sample is "]),
        (&["--at-most", "bytes=0%", "--at-most", "bad=0%"], 0, &["no figure is worse"]),
    ] {
        let (found, done) = compare(further);
        assert_eq!(found, Some(code), "{further:?}: {}{}", done.stdout, done.stderr);
        assert!(said.iter().all(|part| done.stdout.contains(part)), "{further:?}: {}", done.stdout);
    }
    let (code, done) = compare(&["--at-most", "5%", "--json"]);
    let read: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((code, &read["regressions"]), (Some(1), &json!(["samples_per_s", "cpu_s_per_sample"])));
    assert_eq!((&read["base"]["job"], &read["differences"]), (&json!("train"), &json!([])));
}

#[test]
fn what_is_not_alike_or_no_report_is_not_compared() {
    let dataset = TestDataset::of_pictures(48, 8);
    let folder = tempfile::tempdir().unwrap();
    let base = write(folder.path(), "base.json", &replayed(&dataset, "train", ["", ""]));
    let seeded = write(folder.path(), "seeded.json", &replayed(&dataset, "seeded", ["seed = 5", "seed = 77"]));
    let batches = replayed(&dataset, "batches", ["global_batch = 24", "global_batch = 16"]);
    let mut columns_of = batches["report"].clone();
    columns_of["columns"]["image"] = json!("other");
    columns_of["columns"]["mask"] = json!("more");
    let columns = write(folder.path(), "columns.json", &columns_of);
    let batches = write(folder.path(), "batches.json", &batches);
    let compare = |other: &Path, further: &[&str]| compare([&base, other], further);

    assert_eq!(compare(&seeded, &["--at-most", "bad=0%"]).0, Some(0), "another seed is alike");
    let (code, refused) = compare(&batches, &[]);
    assert_eq!((code, refused.stdout.as_str()), (Some(2), ""));
    let expected =
        "the two runs cannot be compared: the first has batches of 24 samples, and the second batches of 16 samples";
    assert!(refused.stderr.contains(expected) && refused.stderr.contains("--force"), "{}", refused.stderr);
    let refused = compare(&columns, &[]).1.stderr;
    assert!(refused.contains("column `image` is not made alike; column `mask` is only in the second"), "{refused}");
    let (code, forced) = compare(&batches, &["--force", "--at-most", "bad=0%"]);
    assert_eq!(code, Some(0), "{}", forced.stderr);
    assert!(forced.stdout.contains("not alike: the first has batches of 24 samples"), "{}", forced.stdout);

    let mut early = columns_of.clone();
    early["samples_per_s"] = Value::Null;
    let early = write(folder.path(), "early.json", &early);
    let newer = write(folder.path(), "newer.json", &json!({"spdl_report": 2}));
    let other = write(folder.path(), "other.json", &json!({"batches": 3}));
    let text = folder.path().join("text.json");
    std::fs::write(&text, "epoch 1: loss 0.3\n").unwrap();
    for (path, further, expected) in [
        (&newer, &[][..], "its report has version 2; this program reads version 1"),
        (&other, &[], "other.json` has no report of a run: it is JSON without a report"),
        (&text, &[], "neither it nor its last line is JSON"),
        (&folder.path().join("absent.json"), &[], "cannot read `"),
        (&early, &["--force", "--at-most", "rate=5%"], "`samples_per_s` is not known of both runs"),
    ] {
        let (code, refused) = compare(path, further);
        assert_eq!(code, Some(2), "{expected}: {}", refused.stdout);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    }
    let (code, wrong) = compare(&seeded, &["--at-most", "5"]);
    assert_eq!(code, Some(2), "as all wrong arguments");
    assert!(wrong.stderr.contains("`5` is no percentage such as `5%`"), "{}", wrong.stderr);
}

#[test]
fn runs_of_a_cluster_are_compared_by_name_and_kept_as_files() {
    let dataset = TestDataset::of_pictures(48, 8);
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(1);
    cluster.submit(&dataset.job("train", "epochs = 1000000"));
    for name in ["first", "second"] {
        let pulled = run(cluster.pull("train", 0, 1, "node-0", &["--steps", "4"]).args(["--run", name])).json();
        assert_eq!((&pulled["report"]["run"], &pulled["report"]["batches"]), (&json!(name), &json!(4)));
    }
    let admin = |arguments: &[&str]| run(&mut cluster.ctl("admin", arguments));
    let done = admin(&["compare", "train/first", "second", "--at-most", "100%", "--at-most", "bad=0%"]);
    assert_eq!(done.status.code(), Some(0), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.lines().next().is_some_and(|line| line.contains("train/first") && line.contains("second")));
    let mut kept = admin(&["run", "show", "first", "--json"]).json();
    assert_eq!((&kept["reported_by"], &kept["batches"], &kept["world"]), (&json!("coordinator"), &json!(4), &json!(1)));
    let shown = admin(&["run", "show", "first"]).stdout;
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["batches", "4"])), "{shown}");
    kept["samples_per_s"] = json!(1e3 * kept["samples_per_s"].as_f64().expect("it lasted a while"));
    let fast = write(folder.path(), "fast.json", &kept);
    let fast = fast.to_str().expect("a path of this test");
    let slower = admin(&["compare", fast, "second", "--at-most", "rate=50%"]);
    assert_eq!(slower.status.code(), Some(1), "{}{}", slower.stdout, slower.stderr);
    let refused = admin(&["compare", "first", "third"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("no job has had a run `third`; known are: train/first, train/second"));

    // While a worker serves a run alone, what a sample costs it is known.
    let mut live = cluster.pull("train", 0, 1, "node-0", &["--progress"]);
    let mut live = ServerProcess::spawn(live.args(["--run", "live"]));
    live.progress_to(24);
    let cpu_s = loop {
        let shown = admin(&["run", "show", "live", "--json"]).json();
        if let Some(cpu_s) = shown["cpu_s_per_sample"]["decode"].as_f64() {
            break cpu_s;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(cpu_s > 0.0);
}
