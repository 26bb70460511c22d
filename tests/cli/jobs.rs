//! Job files and jobs: the errors in one, the list of jobs, and the schema for editors.

use std::fs;

use spdl_testkit::{
    processes::{Cluster, TestDataset, ctl, run},
    root,
};

#[test]
fn a_wrong_job_file_is_explained_in_words_by_every_command_that_reads_one() {
    let dataset = TestDataset::of_pictures(24, 8);
    let job = dataset.job("j", "");
    let text = fs::read_to_string(&job).expect("it was written");
    let crop = "{ random_resized_crop = { size = 64 } }";
    fs::write(&job, text.replace(crop, "{ resize = {} }, { center_crop = 64 }")).expect("it is written");
    let line = 1 + text.lines().position(|line| line.starts_with("ops")).expect("steps");
    let expected = format!(
        "error: job file `{}`, line {line}: column image, ops[0]: resize expects {{ size = 256 }}; `size` is missing\n",
        job.display()
    );
    let cluster = Cluster::start(0);
    let mut submit = cluster.ctl("admin", ["job", "submit"]);
    submit.arg(&job);
    for mut command in [ctl(), ctl(), ctl()].into_iter().zip(["plan", "audit", "replay"]).map(|(mut command, name)| {
        command.arg(name).arg(&job);
        command
    }) {
        assert_eq!(run(&mut command).error(&[]), expected, "{command:?}");
    }
    assert_eq!(run(&mut submit).error(&[]), expected);

    // Short forms whose meaning is obvious are accepted.
    fs::write(&job, text.replace(crop, "{ resize = [64, 64] }, \"random_flip\"")).expect("it is written");
    assert!(run(ctl().arg("plan").arg(&job)).status.success());
}

#[test]
fn jobs_are_listed_shown_and_compared_in_words() {
    let dataset = TestDataset::of_pictures(24, 8);
    let cluster = Cluster::start(0);
    let admin = |arguments: &[&str]| run(&mut cluster.ctl("admin", arguments));
    assert_eq!(admin(&["job", "list"]).stdout, "no jobs; `spdl-ctl job submit JOB.toml` creates one\n");
    let (first, second) = (dataset.job("first", "epochs = 3"), dataset.job("second", "epochs = 1"));
    cluster.submit(&first);
    cluster.submit(&second);

    let listed = admin(&["job", "list"]).stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert_eq!(lines[0], "JOB     STATE  POSITION  EPOCHS  SAMPLES  BAD  DATASET");
    assert!(lines[1].starts_with("first   idle        0:0       3       24    0  /"), "{listed}");
    assert!(lines[2].starts_with("second  idle        0:0       1       24    0  /"), "{listed}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{listed}");
    assert_eq!(admin(&["job", "list", "--json"]).json()[1]["name"], "second");

    let shown = admin(&["job", "show", "first"]).stdout;
    for line in [
        "job           first",
        "seed          5",
        "global batch  24 samples",
        "epochs        3; samples that do not fill a batch are left out of the epoch",
        "bad samples   substitute; the job fails above 10 of them",
        "column        image: u8 [64, 64, 3] from jpg",
        "column        label: i64 a number from cls",
        "column        raw: u8 up to 391 KiB of bytes from jpg",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "`{line}` is not in\n{shown}");
    }
    assert_eq!(admin(&["job", "show", "first", "--json"]).json()["seed"], 5);

    // The error names a changed seed as it names a changed number of epochs.
    for (from, to, difference) in
        [("seed = 5", "seed = 6", "`seed` (6, was 5)"), ("epochs = 3", "epochs = 4", "`epochs` (4, was 3)")]
    {
        let text = fs::read_to_string(&first).expect("it was written");
        let changed = dataset.path("changed.toml");
        fs::write(&changed, text.replace(from, to)).expect("it is written");
        let path = changed.display().to_string();
        let refused = admin(&["job", "submit", &path]);
        refused.error(&[&format!("it is there already, and this one differs in {difference}; jobs do not change")]);
    }
}

#[test]
fn the_schema_beside_the_examples_is_the_one_that_the_command_prints() {
    let printed = run(ctl().args(["job", "schema"])).stdout;
    let kept = fs::read_to_string(root().join("examples/job.schema.json")).expect("the schema is kept");
    assert_eq!(printed, kept, "`spdl-ctl job schema >examples/job.schema.json` makes it current");
    for example in
        fs::read_dir(root().join("examples")).expect("the examples").map(|entry| entry.expect("an entry").path())
    {
        if example.extension().is_some_and(|kind| kind == "toml") {
            let text = fs::read_to_string(&example).expect("text");
            assert!(text.starts_with("#:schema job.schema.json\n"), "{} names it for editors", example.display());
        }
    }
}

#[test]
fn a_job_whose_working_set_exceeds_the_caches_is_created_with_a_warning() {
    let dataset = TestDataset::of_records((0..250).map(|record| (vec![record as u8; 100_000], record.to_string())));
    let job = dataset.job("wide", "");
    let mut cluster = Cluster::start(0);
    let submit = |cluster: &Cluster| run(cluster.ctl("admin", ["job", "submit"]).arg(&job));
    assert_eq!(submit(&cluster).stderr, "", "there is no worker to compare with");
    cluster.start_worker("node-0", &["--memory", "17MiB"]);
    cluster.wait_for("a worker", |status| status["workers"][0]["cache"]["limit_bytes"].as_u64() > Some(0));
    let warned = submit(&cluster);
    assert!(warned.status.success() && warned.stdout == "job `wide` is there\n", "{}", warned.stdout);
    for part in ["warning: the order of job `wide` has ", "and the caches of 1 worker hold ", "hint: give workers more"]
    {
        assert!(warned.stderr.contains(part), "`{part}` is not in {}", warned.stderr);
    }
    cluster.start_worker("node-1", &["--memory", "256MiB"]);
    cluster.wait_for("another worker", |status| status["workers"][1]["cache"]["limit_bytes"].as_u64() > Some(0));
    assert_eq!(submit(&cluster).stderr, "");
}
