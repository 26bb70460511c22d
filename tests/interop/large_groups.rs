//! Parquet in row groups that are large beside the memory of a worker.

use std::fs;

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ctl, peak_resident_bytes, run},
    python::{python, run_script},
};

/// The memory of the worker, and what it may use beside that: programs, threads and the connections.
const BUDGET_BYTES: u64 = 64 << 20;
const BESIDE_BYTES: u64 = 136 << 20;

#[test]
fn a_small_worker_delivers_large_row_groups_and_no_page_is_decoded_that_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("set");
    let written = run_script(&python(), "tests/interop/write_parquet.py", ["groups".as_ref(), dataset.as_os_str()]);
    let report = run(ctl().arg("index").arg(&dataset).arg("--json")).json();
    assert!(report["blocks"].as_u64() > Some(4 * 3), "row groups are cut at the headers of their pages: {report}");
    let job = folder.path().join("job.toml");
    let keys = "global_batch = 64\nepochs = 1\nepoch_end = \"exact\"\nbad_samples = \"mask\"\nmax_bad_fraction = 0.1\n\
                order = { lanes = 1, window = 1000 }";
    let column = "[[column]]\nname = \"blob\"\nfrom = \"blob\"\ndecode = \"bytes\"\nmax_bytes = 10000";
    fs::write(&job, format!("name = \"groups\"\ndataset = {dataset:?}\n{keys}\n{column}\n")).unwrap();

    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--memory", "64MiB", "--cores", "2"]);
    let worker = cluster.workers[0].process.pid();
    cluster.submit(&job);
    let reports = cluster.pull_all("groups", 4, &["node-0"], &[]);
    let samples: u64 = reports.iter().map(|report| report["samples"].as_u64().unwrap()).sum();
    assert_eq!(Value::from(samples - 8), written["rows"]);
    let status = cluster.wait_for("the bad samples", |status| status["jobs"][0]["bad_sample_count"] == 8);
    for bad in status["jobs"][0]["bad_sample_list"].as_array().unwrap() {
        let cause = bad["cause"].as_str().unwrap();
        assert_eq!(bad["shard"], "2-large-page.parquet");
        assert!(cause.contains("lies in row group 0, which takes ") && cause.contains(" MiB to decode"), "{cause}");
    }
    let peak = peak_resident_bytes(worker);
    assert!(peak < BUDGET_BYTES + BESIDE_BYTES, "{} MiB", peak >> 20);
}
