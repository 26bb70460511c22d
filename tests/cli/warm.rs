//! `warm` fills a cache on disk with what a job reads first.

use std::{fs, path::Path};

use serde_json::Value;
use spdl_testkit::processes::{TestDataset, ctl, run};

const PICTURES: u64 = 48;

fn warm(job: &Path, cache: &Path, further: &[&str]) -> Value {
    run(ctl().arg("warm").arg(job).arg("--cache-dir").arg(cache).arg("--json").args(further)).json()
}

fn number(found: &Value, field: &str) -> u64 {
    found[field].as_u64().unwrap_or_else(|| panic!("{field} of {found} is no number"))
}

#[test]
fn what_all_nodes_warm_is_all_that_is_read_and_nothing_is_fetched_again() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "epochs = 3");
    let cache = dataset.path("cache");
    let node = |node: &str| warm(&job, &cache, &["--world", "4", "--ranks-per-node", "2", "--node", node]);
    let first = node("0");
    assert_eq!((number(&first, "samples"), number(&first, "warmed_samples")), (PICTURES / 2, PICTURES / 2), "{first}");
    assert!(number(&first, "store_bytes") > 0 && first["is_full"] == false, "{first}");
    let [blocks, again] = [&first, &node("0")].map(|found| number(found, "store_bytes"));
    assert!(again < blocks / 10, "only the indexes of shards are read again: {again} of {blocks} bytes");
    node("1");
    let whole = warm(&job, &cache, &[]);
    assert!(number(&whole, "warmed_samples") == PICTURES && number(&whole, "store_bytes") < blocks / 10, "{whole}");
    let text = run(ctl().arg("warm").arg(&job).arg("--cache-dir").arg(&cache));
    assert!(text.stdout.contains("all that an epoch of job `a-job` reads on this node is there"), "{}", text.stdout);
}

#[test]
fn a_folder_with_too_little_room_is_filled_and_no_more() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "");
    let cache = dataset.path("cache");
    let whole = number(&warm(&job, &dataset.path("large"), &[]), "cache_bytes");
    let limit = (whole / 2).to_string();
    let part = warm(&job, &cache, &["--cache-bytes", &limit]);
    assert!(part["is_full"] == true && number(&part, "warmed_samples") < PICTURES, "{part}");
    let kept: u64 = fs::read_dir(&cache)
        .expect("a folder")
        .map(|file| file.expect("a file"))
        .filter(|file| file.file_name().to_string_lossy().starts_with("blk-"))
        .map(|file| file.metadata().expect("its size").len())
        .sum();
    assert!(kept > 0 && kept <= whole / 2 && kept == number(&part, "cache_bytes"), "{kept} bytes: {part}");
    let text = run(ctl().arg("warm").arg(&job).arg("--cache-dir").arg(&cache).args(["--cache-bytes", &limit]));
    assert!(text.stdout.contains("there is no more room: at least the first "), "{}", text.stdout);
}

#[test]
fn a_job_with_a_view_that_was_never_submitted_is_warmed_and_measured() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "view = { first = 24 }");
    assert_eq!(number(&warm(&job, &dataset.path("cache"), &[]), "samples"), 24);
    let found = run(ctl().arg("profile").arg(&job).args(["--seconds", "0.1", "--memory", "256MiB", "--json"])).json();
    assert_eq!(number(&found, "samples"), 24, "{found}");
}

#[test]
fn what_cannot_be_warmed_is_refused_with_its_reason() {
    let dataset = TestDataset::of_pictures(PICTURES, 16);
    let job = dataset.job("a-job", "");
    let cache = dataset.path("cache");
    let refused = |cache: &Path, arguments: &[&str], parts: &[&str]| {
        run(ctl().arg("warm").arg(&job).arg("--cache-dir").arg(cache).args(arguments)).error(parts);
    };
    refused(&cache, &["--world", "5", "--ranks-per-node", "2"], &["`--ranks-per-node`: 2 ranks", "a world of 5"]);
    refused(&cache, &["--world", "4", "--node", "4"], &["`--node`: 4 is not below the 4 nodes"]);
    refused(&cache, &["--world", "50"], &["world 50 is more than the global batch of 24"]);
    refused(&cache, &["--requests", "0"], &["--requests"]);
    let file = dataset.path("file");
    fs::write(&file, "not a folder").expect("a file");
    refused(&file, &[], &["`--cache-dir`: `", "file` is not a folder"]);
}
