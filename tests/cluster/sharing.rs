//! Sessions whose ranks share decoded samples on one worker: each gets what it would get alone, whatever becomes of the other.

use std::{fs, path::PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset, own_worker, sum, undisturbed},
    proxy::{Proxy, ReceivedRequest},
    s3::S3Server,
};

const STEPS: &str = "48";

/// Pictures that take much CPU time, numbers, and a ragged column.
const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
                       ops = [{ resize = [224, 224] }, { aug_mix = { mixture_width = 3 } }]\n\
                       [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
                       [[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n";

/// Writes a job file with these keys and columns.
fn job(dataset: &TestDataset, name: &str, keys: &str, columns: &str) -> PathBuf {
    let folder = dataset.path("dataset");
    let text =
        format!("name = \"{name}\"\ndataset = {folder:?}\nseed = 5\nglobal_batch = 8\nepochs = 12\n{keys}\n{columns}");
    let path = dataset.path(format!("{name}.toml"));
    fs::write(&path, text).expect("a job file is written");
    path
}

fn rank(cluster: &Cluster, job: &str, further: &[&str]) -> ServerProcess {
    ServerProcess::spawn(&mut cluster.pull(job, 0, 1, "node-0", further))
}

fn assert_is(report: &Value, expected: &Value) {
    let reports = std::slice::from_ref(report);
    assert_eq!(sum(reports, "content_digest"), expected["content_digest"]);
    assert_eq!(sum(reports, "receipt"), expected["receipt"]);
}

/// Pulls two jobs at the same time and compares each with what it delivers alone. Returns the samples that were shared.
fn pull_both(cluster: &Cluster, names: [&str; 2], expected: [&Value; 2]) -> f64 {
    let ranks = names.map(|name| rank(cluster, name, &["--steps", STEPS]));
    for (rank, expected) in ranks.into_iter().zip(expected) {
        assert_is(&rank.finish(), expected);
    }
    let shared = ["samples", "samples_in_part"].map(|what| cluster.metric(&format!("spdl_worker_shared_{what}_total")));
    println!("{names:?}: {shared:?} samples were taken whole and in part");
    shared.iter().sum()
}

#[test]
fn jobs_with_the_same_columns_or_some_of_them_get_what_each_gets_alone() {
    let dataset = TestDataset::of_pictures(120, 32);
    let third = COLUMNS.find("[[column]]\nname = \"raw\"").expect("the third column");
    let jobs = [
        job(&dataset, "first", "", COLUMNS),
        job(&dataset, "second", "bad_samples = \"mask\"", COLUMNS),
        job(&dataset, "fewer", "", &COLUMNS[..third]),
        job(
            &dataset,
            "more",
            "",
            &format!(
                "{COLUMNS}[[column]]\nname = \"size\"\nfrom = \"jpg\"\ndecode = \"image_size\"\nfollows = \"image\"\n"
            ),
        ),
    ];
    let steps = STEPS.parse().expect("a number");
    let [first, second, fewer, more] = jobs.each_ref().map(|job| undisturbed(job, steps, &[]));
    for (names, expected) in [
        (["first", "second"], [&first, &second]),
        (["first", "fewer"], [&first, &fewer]),
        (["more", "first"], [&more, &first]),
    ] {
        let cluster = Cluster::start(1);
        jobs.iter().for_each(|job| cluster.submit(job));
        assert!(pull_both(&cluster, names, expected) > 0.0, "{names:?} share");
    }
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--share-samples", "off"]);
    jobs.iter().for_each(|job| cluster.submit(job));
    assert_eq!(pull_both(&cluster, ["first", "second"], [&first, &second]), 0.0);
}

#[test]
fn functions_and_mixed_samples_are_shared_and_stay_what_they_are() {
    let dataset = TestDataset::of_pictures(120, 32);
    let noise = "[[function]]\ncall = \"own_worker::noise@1\"\narguments = { amplitude = 40 }\ncolumns = [\"image\"]\n\
                 returns = [{ name = \"image\" }, { name = \"brightness\", dtype = \"f32\", shape = [] }]\n";
    let mix = "mix = { mixup = 0.4, cutmix = 1.0, p = 0.8 }";
    let target = "[[column]]\nname = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 10\n";
    for (name, keys, tables) in [("noisy", "", noise), ("mixed", mix, target)] {
        let names = [name.to_owned(), format!("{name}-too")];
        let jobs = names.each_ref().map(|name| job(&dataset, name, keys, &format!("{COLUMNS}{tables}")));
        let mut cluster = Cluster::start(0);
        cluster.start_worker_of(own_worker(), "node-0", &["--share-samples", "off"]);
        cluster.submit(&jobs[0]);
        let alone = rank(&cluster, name, &["--steps", STEPS]).finish();
        let mut cluster = Cluster::start(0);
        cluster.start_worker_of(own_worker(), "node-0", &[]);
        jobs.iter().for_each(|job| cluster.submit(job));
        assert!(pull_both(&cluster, [&names[0], &names[1]], [&alone, &alone]) > 0.0, "{name} share");
    }
}

#[test]
fn a_worker_that_is_killed_and_a_trainer_that_stops_take_nothing_from_the_other_session() {
    let dataset = TestDataset::of_pictures(120, 32);
    let jobs = ["first", "second"].map(|name| job(&dataset, name, "", COLUMNS));
    let expected = undisturbed(&jobs[0], STEPS.parse().expect("a number"), &[]);
    let mut cluster = Cluster::start(1);
    jobs.iter().for_each(|job| cluster.submit(job));
    let ranks = ["first", "second"].map(|name| rank(&cluster, name, &["--steps", STEPS]));
    cluster
        .wait_for("two ranks", |status| status["workers"][0]["ranks"].as_array().is_some_and(|ranks| ranks.len() == 2));
    cluster.workers[0].process.kill();
    cluster.restart_worker(0);
    for rank in ranks {
        assert_is(&rank.finish(), &expected);
    }
    let mut stopped = rank(&cluster, "first", &["--from", "0:0", "--progress"]);
    stopped.line();
    stopped.signal(Signal::STOP);
    assert_is(&rank(&cluster, "second", &["--from", "0:0", "--steps", STEPS]).finish(), &expected);
    stopped.kill();
    cluster.wait_for("a worker that keeps nothing", |_| cluster.metric("spdl_worker_shared_bytes") == 0.0);
}

/// Returns how often each byte of the shards was read from the store while ranks of two jobs with this dataset pulled an epoch, on
/// average.
async fn reads(columns: [&str; 2], seeds: [u32; 2]) -> f64 {
    let dataset = TestDataset::of_pictures(240, 32);
    let (server, folder) = (S3Server::start_open(), dataset.path("dataset"));
    server.upload(&folder, "pictures").await;
    let proxy = Proxy::start(server.address());
    let url = proxy.before(&server.web_url("pictures"));
    let mut cluster = Cluster::start(0);
    // Requests are counted, so that there is no second one for a slow one.
    cluster.start_worker("node-0", &["--hedge-percent", "0"]);
    for (number, (columns, seed)) in columns.iter().zip(seeds).enumerate() {
        let text = format!("name = \"job-{number}\"\ndataset = {url:?}\nseed = {seed}\nglobal_batch = 8\n{columns}");
        let path = dataset.path(format!("job-{number}.toml"));
        fs::write(&path, text).expect("a job file is written");
        cluster.submit(&path);
    }
    let before = proxy.requests().len();
    let ranks = ["job-0", "job-1"].map(|name| rank(&cluster, name, &[]));
    for rank in ranks {
        assert_eq!(rank.finish()["samples"], 240);
    }
    let bytes = |request: &ReceivedRequest| {
        let (start, end) = request.range.strip_prefix("bytes=")?.split_once('-')?;
        Some(end.parse::<u64>().ok()? + 1 - start.parse::<u64>().ok()?)
    };
    let requests = proxy.requests();
    let read: u64 = requests[before..].iter().filter(|request| request.path.ends_with(".tar")).filter_map(bytes).sum();
    let tars = fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file"));
    let tars = tars.filter(|file| file.path().extension().is_some_and(|extension| extension == "tar"));
    let all: u64 = tars.map(|file| file.metadata().expect("a file").len()).sum();
    println!("seeds {seeds:?}: {read} bytes were read of {all}");
    read as f64 / all as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_of_one_dataset_read_each_block_once() {
    let bytes = "[[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n";
    // The first batch of each job does not wait for whole blocks: it reads its eight samples by themselves.
    let most = 1.02 + 2.0 * 8.0 / 240.0;
    for (columns, seeds) in [([COLUMNS, bytes], [5, 5]), ([COLUMNS, COLUMNS], [5, 6]), ([bytes, bytes], [7, 7])] {
        let times = reads(columns, seeds).await;
        assert!(times > 0.5 && times <= most, "each byte was read {times} times");
    }
}
