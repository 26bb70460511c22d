//! Workers that decode samples for a home which is short of cores: the batches stay what they are, whatever becomes of a helper.

use std::{
    fs,
    path::PathBuf,
    sync::LazyLock,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, own_worker, sum, undisturbed};

const STEPS: u64 = 32;

/// What the first steps of a heavy job are without helpers, whatever its name.
static EXPECTED: LazyLock<Value> = LazyLock::new(|| undisturbed(&HeavyJob::new("undisturbed", "").job, STEPS, &[]));

/// Pictures, and a job that takes much CPU time for each: with a column of numbers, one of a fixed shape and two ragged ones.
struct HeavyJob {
    _dataset: TestDataset,
    job: PathBuf,
}

impl HeavyJob {
    /// Creates a job with these tables added.
    fn new(name: &str, tables: &str) -> Self {
        let dataset = TestDataset::of_pictures(120, 32);
        let text = format!(
            "name = \"{name}\"\ndataset = {:?}\nseed = 5\nglobal_batch = 8\nepochs = 12\n\
             [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
             ops = [{{ resize = [448, 448] }}, {{ aug_mix = {{ mixture_width = 3 }} }}]\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
             [[column]]\nname = \"list\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{{ resize = [64, 64] }}]\nmax_rows = 2\n\
             [[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n{tables}",
            dataset.path("dataset")
        );
        let job = dataset.path(format!("{name}.toml"));
        fs::write(&job, text).expect("a job file is written");
        Self { _dataset: dataset, job }
    }
}

/// Starts a cluster whose home has a small part of a core, with helpers that have little more.
fn cluster(helpers: usize) -> Cluster {
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "0.1"]);
    for helper in 0..helpers {
        cluster.start_worker(&format!("helper-{helper}"), &["--role", "helper", "--cores", "0.2"]);
    }
    wait_for_workers(&cluster);
    cluster
}

fn wait_for_workers(cluster: &Cluster) {
    let are_there = |status: &Value| workers(status).len() == cluster.workers.len();
    cluster.wait_for("all workers", are_there);
}

fn workers(status: &Value) -> &[Value] {
    status["workers"].as_array().expect("a list of workers")
}

/// Returns how many samples a worker has decoded for others.
fn made_samples(worker: &Value) -> u64 {
    worker["help"]["stats"]["made_samples"].as_u64().expect("a number")
}

fn assert_is(reports: &[Value], expected: &Value) {
    assert_eq!(sum(reports, "content_digest"), expected["content_digest"]);
    assert_eq!(sum(reports, "receipt"), expected["receipt"]);
}

#[test]
fn helpers_make_the_samples_of_a_home_that_is_short_of_cores_and_nothing_else_changes() {
    let heavy = HeavyJob::new("heavy", "");
    let cluster = cluster(2);
    cluster.submit(&heavy.job);
    // Also on the node of a helper: that serves no rank, wherever the rank is.
    let reports = cluster.pull_all("heavy", 2, &["node-0", "helper-0"], &["--steps", &STEPS.to_string()]);
    assert_is(&reports, &EXPECTED);
    let [received, made] = ["received", "made"].map(|what| {
        let name = format!("spdl_worker_help_{what}_samples_total");
        cluster.metric(&name)
    });
    println!("{received} of {} samples came from helpers, which made {made}", 8 * STEPS);
    assert!(received > 0.0 && made >= received, "{received} samples came from helpers, which made {made}");
}

#[test]
fn helpers_that_are_killed_or_hang_lose_nothing() {
    let heavy = HeavyJob::new("killed", "");
    let mut cluster = cluster(3);
    cluster.submit(&heavy.job);
    let rank = ServerProcess::spawn(&mut cluster.pull("killed", 0, 1, "node-0", &["--steps", &STEPS.to_string()]));
    cluster.wait_for("two helpers at work", |status| {
        workers(status).iter().filter(|worker| made_samples(worker) > 0).count() > 1
    });
    cluster.workers[1].process.kill();
    cluster.workers[2].process.signal(Signal::STOP);
    assert_is(&[rank.finish()], &EXPECTED);
}

#[test]
fn helpers_that_are_killed_every_three_seconds_lose_and_repeat_nothing() {
    let heavy = HeavyJob::new("killed-often", "");
    let mut cluster = cluster(3);
    cluster.submit(&heavy.job);
    let mut rank = cluster.pull("killed-often", 0, 1, "node-0", &["--steps", &STEPS.to_string()]);
    let rank = std::thread::spawn(move || ServerProcess::spawn(&mut rank).finish());
    cluster.wait_for("a helper at work", |status| workers(status).iter().any(|worker| made_samples(worker) > 0));
    let mut killed = 0;
    while !rank.is_finished() {
        let helper = 1 + killed % 3;
        cluster.workers[helper].process.kill();
        cluster.restart_worker(helper);
        killed += 1;
        let next = Instant::now() + Duration::from_secs(3);
        while Instant::now() < next && !rank.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let report = rank.join().expect("the rank ends");
    let status = cluster.status();
    let home = workers(&status).iter().find(|worker| worker["name"] == "node-0").expect("node-0");
    println!("{killed} helpers were killed: {}", home["help"]["stats"]);
    assert!(home["help"]["stats"]["received_samples"].as_u64() > Some(0), "{home}");
    assert_is(&[report], &EXPECTED);
}

#[test]
fn a_helper_that_lacks_a_jobs_functions_gives_its_samples_back() {
    let noise = "[[function]]\ncall = \"own_worker::noise@1\"\narguments = { amplitude = 40 }\ncolumns = [\"image\"]\n\
                 returns = [{ name = \"image\" }, { name = \"brightness\", dtype = \"f32\", shape = [] }]\n";
    let heavy = HeavyJob::new("noisy", noise);
    let further = ["--steps", &STEPS.to_string(), "--from", "0:0"];
    let mut cluster = Cluster::start(0);
    cluster.start_worker_of(own_worker(), "node-0", &[]);
    cluster.submit(&heavy.job);
    let expected = cluster.pull_all("noisy", 1, &["node-0"], &further).remove(0);
    cluster.workers[0].process.kill();
    cluster.start_worker_of(own_worker(), "node-1", &["--cores", "0.1"]);
    cluster.start_worker("lacks-them", &["--role", "helper", "--cores", "0.2"]);
    cluster.start_worker_of(own_worker(), "has-them", &["--role", "helper", "--cores", "0.2"]);
    let reports = cluster.pull_all("noisy", 1, &["node-1"], &further);
    assert_is(&reports, &expected);
    let status = cluster.status();
    let made = |name: &str| made_samples(workers(&status).iter().find(|worker| worker["name"] == name).expect(name));
    assert_eq!(made("lacks-them"), 0);
    assert!(made("has-them") > 0);
    let home = workers(&status).iter().find(|worker| worker["name"] == "node-1").expect("node-1");
    assert!(home["help"]["stats"]["returned_samples"].as_u64() > Some(0), "{home}");
}
