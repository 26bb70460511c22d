//! Measures the effect of helpers on a home that is short of cores: the fraction of its time that a trainer waits, and
//! the number of helpers that the coordinator lends, compared with fixed numbers of helpers. Then measures the same
//! while a helper is killed every three seconds.
//!
//! The home has a quarter of the cores that the trainer needs, and each helper half of them. All are small parts of a core, so that
//! the machine has enough for all of them.
//!
//! `cargo bench --bench helpers [-- --seconds N] [--home-millicores N]`

mod arguments;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use spdl_client::{Client, Settings};
use spdl_testkit::processes::{Cluster, TestDataset};

const JOB: &str = "helped";
const BATCH: u32 = 16;
/// The cores that the trainer needs, and those of a helper, as multiples of the cores of the home.
const NEEDED: f64 = 4.0;
const HELPER: f64 = 2.0;
/// The time between two decisions of the coordinator, and the time after which it knows a rank's need.
const DECISION: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(6);
const KILL_EVERY: Duration = Duration::from_secs(3);

/// The helpers of a measurement.
struct Case {
    what: &'static str,
    helpers: usize,
    is_killed: bool,
}

/// The waits of a trainer, and the number of its helpers.
struct Measured {
    /// The fraction of its time that the trainer waited, before and after the third decision.
    waited: [f64; 2],
    /// The mean number of helpers after the third decision.
    lent: f64,
}

fn write_job(dataset: &TestDataset) {
    let text = format!(
        "name = \"{JOB}\"\ndataset = {:?}\nseed = 5\nglobal_batch = {BATCH}\nepochs = 1000000\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
         ops = [{{ resize = [224, 224] }}, {{ aug_mix = {{ mixture_width = 6 }} }}]\n",
        dataset.path("dataset")
    );
    fs::write(dataset.path("job.toml"), text).expect("a job file is written");
}

async fn connect(cluster: &Cluster) -> Client {
    let settings = Settings {
        coordinators: cluster.address.clone(),
        certs: cluster.certs("client"),
        job: JOB.to_owned(),
        node: Some("node-0".to_owned()),
        ..Settings::default()
    };
    Client::builder().settings(settings).connect(0, 1).await.expect("the cluster lets a rank join")
}

fn start_home(cluster: &mut Cluster, cores: f64, job: &Path) {
    cluster.start_worker("node-0", &["--cores", &cores.to_string()]);
    cluster.submit(job);
}

/// Returns the CPU seconds of a sample on a worker with plenty of cores.
async fn cost_s(job: &Path) -> f64 {
    let mut cluster = Cluster::start(0);
    start_home(&mut cluster, 1.0, job);
    let mut client = connect(&cluster).await;
    client.next().await.expect("a batch");
    let cpu_s = || cluster.metric("spdl_worker_cpu_seconds_total");
    let (before, steps) = (cpu_s(), 30);
    for _ in 0..steps {
        client.next().await.expect("a batch");
    }
    (cpu_s() - before) / f64::from(steps * BATCH)
}

/// Takes batches, and trains for `step` on each. Returns for each batch when the trainer asked for it and how long it
/// waited.
async fn train(mut client: Client, step: Duration, is_over: &AtomicBool) -> Vec<(Duration, Duration)> {
    let started = Instant::now();
    let mut waits = Vec::new();
    while !is_over.load(Relaxed) {
        let asked = Instant::now();
        drop(client.next().await.expect("a batch"));
        waits.push((asked - started, asked.elapsed()));
        tokio::time::sleep(step).await;
    }
    client.close().await;
    waits
}

fn measure(case: &Case, job: &Path, home_cores: f64, step: Duration, seconds: Duration) -> Measured {
    let mut cluster = Cluster::start(0);
    start_home(&mut cluster, home_cores, job);
    for helper in 0..case.helpers {
        let cores = (HELPER * home_cores).to_string();
        cluster.start_worker(&format!("helper-{helper}"), &["--role", "helper", "--cores", &cores]);
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = runtime.block_on(connect(&cluster));
    let decided = MEASURED + 3 * DECISION;
    let is_over = AtomicBool::new(false);
    let (mut lent, mut looks, mut killed) = (0, 0, 0);
    let waits = thread::scope(|scope| {
        let trainer = scope.spawn(|| runtime.block_on(train(client, step, &is_over)));
        let started = Instant::now();
        while started.elapsed() < decided + seconds {
            thread::sleep(Duration::from_millis(500));
            if started.elapsed() > decided {
                let status = cluster.status();
                let workers = status["workers"].as_array().expect("a list of workers");
                let helpers = |worker: &serde_json::Value| worker["helpers"].as_array().map_or(0, Vec::len);
                lent += workers.iter().map(helpers).sum::<usize>();
                looks += 1;
                if case.is_killed && started.elapsed() > decided + KILL_EVERY * (killed + 1) {
                    let victim = 1 + killed as usize % case.helpers;
                    cluster.workers[victim].process.kill();
                    cluster.restart_worker(victim);
                    killed += 1;
                }
            }
        }
        is_over.store(true, Relaxed);
        trainer.join().expect("the trainer does not panic")
    });
    let part = |is_meant: fn(Duration, Duration) -> bool| {
        let meant = waits.iter().filter(|(asked, _)| is_meant(*asked, decided)).map(|(_, waited)| waited);
        let (batches, waited) = meant.fold((0, Duration::ZERO), |(batches, sum), waited| (batches + 1, sum + *waited));
        waited.as_secs_f64() / (waited + step * batches).as_secs_f64()
    };
    let waited = [part(|asked, decided| asked < decided), part(|asked, decided| asked >= decided)];
    Measured { waited, lent: lent as f64 / f64::from(looks) }
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let seconds = Duration::from_secs(arguments::number("--seconds", 30));
    let home_cores = arguments::number("--home-millicores", 100) as f64 / 1_000.0;
    let dataset = TestDataset::of_pictures(120, 32);
    write_job(&dataset);
    let job = dataset.path("job.toml");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cost_s = runtime.block_on(cost_s(&job));
    let step = Duration::from_secs_f64(cost_s * f64::from(BATCH) / (NEEDED * home_cores));
    println!(
        "a home with {home_cores} cores, helpers with {}, a trainer that needs {}",
        HELPER * home_cores,
        NEEDED * home_cores
    );
    println!("{:.2} ms of CPU a sample, {BATCH} samples every {:.0} ms", 1e3 * cost_s, 1e3 * step.as_secs_f64());
    println!("{:<40} {:>12} {:>12} {:>10}", "", "waits first", "waits then", "lent");
    for case in [
        Case { what: "no helper", helpers: 0, is_killed: false },
        Case { what: "one helper", helpers: 1, is_killed: false },
        Case { what: "two helpers", helpers: 2, is_killed: false },
        Case { what: "three helpers, lent as needed", helpers: 3, is_killed: false },
        Case { what: "three, one killed every 3 s", helpers: 3, is_killed: true },
    ] {
        let Measured { waited: [first, then], lent } = measure(&case, &job, home_cores, step, seconds);
        println!("{:<40} {:>10.1} % {:>10.1} % {lent:>10.2}", case.what, 100.0 * first, 100.0 * then);
    }
}
