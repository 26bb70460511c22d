//! Bad samples: with each policy, all ranks still get the same number of batches.

use serde_json::Value;
use spdl_testkit::processes::{Cluster, TestDataset, run};

use super::deliveries::assert_audited;

/// Makes a dataset of 48 pictures, of which four are bad, each in a different way.
fn dataset_with_four_bad_records() -> TestDataset {
    let pictures = spdl_cli::pictures::Pictures::new();
    TestDataset::of_records((0..48).map(|index| {
        let mut picture = pictures.picture(3, index);
        let mut label = (index % 7).to_string();
        match index {
            5 => picture.truncate(picture.len() / 2),
            14 => picture.clear(),
            23 => label = "dog".to_owned(),
            32 => picture = b"this is no picture".to_vec(),
            _ => {}
        }
        (picture, label)
    }))
}

fn two_ranks(dataset: &TestDataset, policy: &str) -> Vec<Value> {
    let job =
        dataset.job(policy, &format!("bad_samples = \"{policy}\"\nmax_bad_fraction = 0.5\nepoch_end = \"exact\""));
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let reports = cluster.pull_all(policy, 2, &["node-0", "elsewhere"], &[]);
    assert_eq!(reports[0]["batches"], reports[1]["batches"]);
    let seen = cluster.wait_for("a ledger of four bad samples", |status| status["jobs"][0]["bad_sample_count"] == 4);
    let causes = seen["jobs"][0]["bad_sample_list"].to_string();
    for part in ["part-0.tar", "0005", "0014", "0023", "dog", "0032"] {
        assert!(causes.contains(part), "`{part}` is not in {causes}");
    }
    reports
}

#[test]
fn bad_samples_are_substituted_and_every_rank_gets_the_same_number_of_batches() {
    let dataset = dataset_with_four_bad_records();
    let reports = two_ranks(&dataset, "substitute");
    let count = |field: &str| reports.iter().map(|report| report[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((count("samples"), count("substituted"), count("masked")), (48, 4, 0));

    // The receipt is the plan's when `audit` gets the ids of the bad samples.
    assert_audited(&dataset.path("substitute.toml"), &reports, &["--bad-samples", "5,14,23,32"]);
}

#[test]
fn bad_samples_are_masked_under_the_policy_mask() {
    let reports = two_ranks(&dataset_with_four_bad_records(), "mask");
    let count = |field: &str| reports.iter().map(|report| report[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((count("samples"), count("substituted"), count("masked")), (48, 0, 4));
}

#[test]
fn a_bad_sample_fails_the_job_for_all_its_ranks_under_the_policy_fail() {
    let pictures = spdl_cli::pictures::Pictures::new();
    let dataset = TestDataset::of_records((0..48).map(|index| {
        let picture = pictures.picture(3, index);
        let bytes = if index == 5 { picture.len() / 2 } else { picture.len() };
        (picture[..bytes].to_vec(), (index % 7).to_string())
    }));
    let job = dataset.job("strict", "bad_samples = \"fail\"\nshuffle = false\nepochs = 20");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    // One rank meets the bad sample; the other one is still there when the job fails, because one of them is slow.
    let texts = ["job `strict`", "`part-0.tar`", "0005", "column `image`"];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(&mut cluster.pull("strict", 1, 2, "node-0", &["--rate", "8"])).error(&texts);
        });
        run(&mut cluster.pull("strict", 0, 2, "node-0", &[])).error(&texts);
    });
}

#[test]
fn too_many_bad_samples_fail_the_job_with_the_count_and_the_causes() {
    let dataset = dataset_with_four_bad_records();
    let job = dataset.job("limit", "max_bad_fraction = 0.05\nepoch_end = \"exact\"\nepochs = 20");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    run(&mut cluster.pull("limit", 0, 1, "node-0", &[])).error(&["job `limit`", "bad", "part-0.tar"]);
}
