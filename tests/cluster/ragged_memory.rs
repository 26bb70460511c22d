//! Values of any length on a worker whose memory holds the batches that there are, and not the largest that there could be.

use std::{
    fs,
    path::{Path, PathBuf},
};

use spdl_testkit::processes::{Cluster, TestDataset, peak_resident_bytes, run, sum, undisturbed};

/// Makes a dataset whose samples hold a value of a length.
fn dataset(samples: usize, length: impl Fn(usize) -> usize) -> TestDataset {
    TestDataset::of_records((0..samples).map(|index| (vec![index as u8; length(index)], index.to_string())))
}

/// Writes a job that delivers the values, of at most a mebibyte each.
fn job(dataset: &TestDataset, name: &str, global_batch: usize) -> PathBuf {
    let folder = dataset.path("dataset");
    let text = format!(
        "name = \"{name}\"\ndataset = {folder:?}\nseed = 5\nglobal_batch = {global_batch}\nepochs = 2\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
         [[column]]\nname = \"value\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = 1048576\n"
    );
    let path = dataset.path(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path
}

/// Delivers a job with four steps to two ranks at once, over shared memory and over QUIC, and returns the most resident memory that
/// the worker had, in bytes.
fn deliver(job: &Path, name: &str, memory: &str) -> u64 {
    let expected = undisturbed(job, 4, &[]);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "2", "--memory", memory]);
    cluster.submit(job);
    for (node, transport) in [("node-0", "local"), ("elsewhere", "quic")] {
        let reports = cluster.pull_all(name, 2, &[node], &["--from", "0:0"]);
        assert!(reports.iter().all(|report| report["transport"] == transport), "{reports:?}");
        assert_eq!(sum(&reports, "content_digest"), expected["content_digest"], "{transport}");
        assert_eq!(sum(&reports, "receipt"), expected["receipt"], "{transport}");
    }
    peak_resident_bytes(cluster.workers[0].process.pid())
}

#[test]
fn a_job_whose_values_are_far_below_their_bound_runs_in_little_memory() {
    let dataset = dataset(1024, |index| 1000 + index % 50);
    // A slot for 256 samples of a mebibyte has 256 MiB of address space.
    let job = job(&dataset, "captions", 512);
    let peak = deliver(&job, "captions", "32MiB");
    assert!(peak < 128 << 20, "the worker had {} MiB", peak >> 20);
}

#[test]
fn ranks_whose_batches_do_not_all_fit_get_them_one_after_the_other() {
    // Four batches of about a megabyte for each rank do not fit in the 8 MiB for slots, beside what a batch takes while it is made.
    let dataset = dataset(48, |index| 10_000 + (index * index * 397) % 150_000);
    let job = job(&dataset, "uneven", 24);
    let peak = deliver(&job, "uneven", "16MiB");
    assert!(peak < 96 << 20, "the worker had {} MiB", peak >> 20);
}

#[test]
fn a_batch_that_can_never_fit_ends_the_rank_with_the_memory_that_it_needs() {
    let dataset = dataset(24, |_| 900_000);
    let job = job(&dataset, "large", 24);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--memory", "16MiB"]);
    cluster.submit(&job);
    run(&mut cluster.pull("large", 0, 1, "node-0", &[])).error(&[
        "a batch for rank 0 of job `large` takes 43",
        "of the worker's 16777216 bytes",
        "raise its memory budget to",
    ]);
    cluster.start_worker("node-1", &["--memory", "192MiB"]);
    // A rank whose node's worker is not known yet has its home elsewhere.
    cluster.wait_for("two workers", |status| status["workers"].as_array().is_some_and(|workers| workers.len() == 2));
    assert_eq!(cluster.pull_all("large", 1, &["node-1"], &["--from", "0:0"])[0]["samples"], 48);
}
