//! `job redact` between launches: where it begins, what a file needs for the same batches, and what is refused.

use std::fs;

use serde_json::Value;
use spdl_testkit::processes::{Cluster, TestDataset, ctl, run};

/// Returns the ids in a trace, with the epochs of their batches.
fn traced(path: &std::path::Path) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .flat_map(|line| {
            let ids = line["ids"].as_array().unwrap().clone();
            ids.into_iter().map(move |id| (line["epoch"].as_u64().unwrap(), id.as_u64().unwrap())).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn redacted_samples_do_not_come_again_and_the_file_of_the_job_gives_the_same_batches_without_the_cluster() {
    let dataset = TestDataset::of_records((0..50).map(|number| (vec![number as u8; 40], (number % 5).to_string())));
    // The last batch of an epoch is filled with the first samples of it, so that a redaction begins with the next one.
    let text = format!(
        "name = \"private\"\ndataset = {:?}\nglobal_batch = 24\nepochs = 3\nepoch_end = \"pad\"\nbad_samples = \"fail\"\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n",
        dataset.path("dataset")
    );
    let job = dataset.path("private.toml");
    fs::write(&job, text).unwrap();
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    cluster.pull_all("private", 1, &["node-0"], &["--steps", "2"]);

    let keys = dataset.path("keys.txt");
    let redact = |text: &str, further: &[&str]| {
        fs::write(&keys, text).unwrap();
        run(cluster.ctl("admin", ["job", "redact", "private"]).arg("--keys").arg(&keys).args(further))
    };
    redact("./0004\n./0050\n", &[])
        .error(&["has keys that no record of job `private` has: `./0050`", "--allow-unknown"]);
    redact("./0050\n", &["--allow-unknown"]).error(&["has keys that no record"]);
    let all: String = (0..26).map(|number| format!("./{number:04}\n")).collect();
    redact(&all, &[]).error(&["have 26 of 50 samples; at most half of them can be redacted"]);
    let done = redact("./0004\n./0031\n./0050\n", &["--allow-unknown"]);
    assert!(
        done.stdout.starts_with("2 samples of job `private` are redacted from sample 50, 1:0, on\n"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    let again = redact("./0004\n", &[]);
    assert!(again.stdout.starts_with("1 sample of job `private` is redacted from sample 50"), "{}", again.stdout);
    cluster.submit(&job);
    let shown = run(&mut cluster.ctl("client", ["job", "show", "private"])).stdout;
    assert!(shown.contains("redacted      from sample 50, 1:0: 2 samples"), "{shown}");

    let trace = dataset.path("trace");
    let rest = ["--from", "resume", "--trace", trace.to_str().unwrap()];
    let reports = cluster.pull_all("private", 1, &["node-0"], &rest);
    let ids = traced(&trace);
    assert!(ids.iter().filter(|(epoch, _)| *epoch > 0).all(|(_, id)| ![4, 31].contains(id)), "{ids:?}");
    assert_eq!(ids.len(), 24 + 2 * 72, "and all batches are full");
    let verdict = run(&mut cluster.ctl("client", ["audit", "--run", "private", "--json"])).json();
    assert_eq!(verdict["equal"], true, "{verdict}");
    assert_eq!(verdict["sessions"][1]["ranks"][0]["redacted"], 4, "{verdict}");

    // The file alone lacks them, and with what the coordinator prints gives the same bytes.
    let replay = |path: &std::path::Path| {
        let mut replay = ctl();
        run(replay.arg("replay").arg(path).args(["--from", "0:48", "--all", "--json"])).json()
    };
    assert_ne!(replay(&job)["receipt"], reports[0]["receipt"]);
    let tables = run(&mut cluster.ctl("client", ["job", "redactions", "private"])).stdout;
    fs::write(&job, fs::read_to_string(&job).unwrap() + &tables).unwrap();
    let replayed = replay(&job);
    for field in ["receipt", "content_digest", "samples"] {
        assert_eq!(replayed[field], reports[0][field], "{field}");
    }
    let plan = run(ctl().arg("plan").arg(&job)).stdout;
    assert!(plan.contains("redacted"), "{plan}");
    assert!(run(cluster.ctl("admin", ["job", "submit"]).arg(&job)).status.success(), "it is the same job");
}
