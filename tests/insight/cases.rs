//! The planted bottlenecks, and the cluster that each is planted in.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess},
    proxy::{FaultScript, RequestFault},
    python::python_with,
    stored::StoredPictures,
};

/// Seconds of steady running before the status is asked: its figures are of the last five to ten.
const STEADY: Duration = Duration::from_secs(11);

/// A bottleneck.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The limit that the status has to name for rank 0.
    limit: Option<&'static str>,
    /// What its verdict on the session has to contain.
    says: &'static str,
    /// The CPU budget and the memory of each worker. Each has a rank on its node, in this order.
    workers: &'static [(&'static str, &'static str)],
    /// Samples per second that each trainer takes; `None` for as many as it gets.
    rate: Option<u32>,
    /// Seconds that a function of the job sleeps for each sample.
    function_s: Option<f64>,
    store: Store,
    /// Whether the worker is stopped in the middle.
    is_stopped: bool,
}

/// How the store behaves.
#[derive(Clone, Copy)]
enum Store {
    Fast,
    Latency {
        ms: u64,
    },
    Bandwidth {
        bytes_per_s: u64,
    },
    /// One request in this many is answered with this status.
    Errors {
        one_in: u64,
        status: u16,
    },
}

/// A memory that holds the dataset.
const LARGE: &str = "256MiB";
/// A memory that holds little of it.
const SMALL: &str = "16MiB";

const BASE: Case = Case {
    name: "",
    limit: None,
    says: "",
    workers: &[("1", LARGE)],
    rate: None,
    function_s: None,
    store: Store::Fast,
    is_stopped: false,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "trainer",
        limit: Some("trainer"),
        says: "nothing to gain: the trainer sets the pace",
        rate: Some(40),
        ..BASE
    },
    Case { name: "slow trainer", limit: Some("trainer"), says: "cores fewer would do", rate: Some(16), ..BASE },
    Case { name: "tenth of a core", limit: Some("cpu"), says: "is short of CPU", workers: &[("0.1", LARGE)], ..BASE },
    Case { name: "half a core", limit: Some("cpu"), says: "more cores would", workers: &[("0.5", LARGE)], ..BASE },
    Case { name: "function of 20 ms", limit: Some("function"), says: "(a call takes ", function_s: Some(0.02), ..BASE },
    Case { name: "function of 300 ms", limit: Some("function"), says: "(a call takes ", function_s: Some(0.3), ..BASE },
    Case {
        name: "store latency of 300 ms",
        limit: Some("store_latency"),
        says: "until the first byte",
        workers: &[("1", SMALL)],
        store: Store::Latency { ms: 300 },
        ..BASE
    },
    Case {
        name: "store latency of 1 s",
        limit: Some("store_latency"),
        says: "until the first byte",
        workers: &[("1", SMALL)],
        store: Store::Latency { ms: 1000 },
        ..BASE
    },
    Case {
        name: "store of 1 MB/s",
        limit: Some("store_bandwidth"),
        says: "MB/s and no more",
        workers: &[("1", SMALL)],
        store: Store::Bandwidth { bytes_per_s: 1_000_000 },
        ..BASE
    },
    Case {
        name: "store of 4 MB/s",
        limit: Some("store_bandwidth"),
        says: "MB/s and no more",
        workers: &[("1", SMALL)],
        store: Store::Bandwidth { bytes_per_s: 4_000_000 },
        ..BASE
    },
    Case {
        name: "store that fails half",
        limit: Some("store_errors"),
        says: "the store fails requests",
        workers: &[("1", SMALL)],
        store: Store::Errors { one_in: 2, status: 503 },
        ..BASE
    },
    Case {
        name: "one slow worker of two",
        limit: Some("cpu"),
        says: "1 of 2 ranks wait, all of them for worker `node-0`",
        workers: &[("0.05", LARGE), ("1", LARGE)],
        rate: Some(120),
        ..BASE
    },
    Case { name: "stopped worker", limit: Some("no_worker"), says: "no worker serves it", is_stopped: true, ..BASE },
];

/// The pictures that all cases read.
pub(crate) struct Bench {
    pictures: StoredPictures,
    /// A Python that has numpy.
    python: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let python = python_with(&["numpy==2.4.6"]).display().to_string();
        Self { pictures: runtime.block_on(StoredPictures::new(600, 100, &[])), python }
    }

    /// Plants a bottleneck; returns the verdict, or what was wrong with it.
    pub(crate) fn run(&self, case: &Case) -> Result<String, String> {
        let mut cluster = Cluster::start(0);
        let modules = cluster.path("modules");
        cluster.environment.push(("PYTHONPATH".to_owned(), modules.display().to_string()));
        fs::create_dir_all(&modules).expect("a folder");
        let sleep = "import time\ndef slow(value, rng):\n    time.sleep(float(SECONDS))\n    return value\n";
        let seconds = case.function_s.unwrap_or(0.0);
        fs::write(modules.join("slow_function.py"), sleep.replace("SECONDS", &seconds.to_string())).expect("a file");
        for (number, (cores, memory)) in (0..).zip(case.workers) {
            let settings = ["--cores", cores, "--memory", memory, "--hedge-percent", "0"];
            let mut settings = settings.to_vec();
            if case.function_s.is_some() {
                settings.extend(["--python", &self.python]);
            }
            cluster.start_worker(&format!("node-{number}"), &settings);
        }
        let name = "planted";
        let mut job = self.pictures.job_of(name, "epochs = 100000", 64);
        if case.function_s.is_some() {
            let text = fs::read_to_string(&job).expect("a job file") + "transform = \"slow_function:slow\"\n";
            job = cluster.path("planted.toml");
            fs::write(&job, text).expect("a job file");
        }
        cluster.submit(&job);
        self.pictures.proxy.follow(script(case.store));
        let world = u32::try_from(case.workers.len()).expect("a few workers");
        let rate = case.rate.map(|rate| rate.to_string());
        let further: Vec<&str> = rate.iter().flat_map(|rate| ["--rate", rate.as_str()]).collect();
        let _ranks: Vec<ServerProcess> = (0..world)
            .map(|rank| ServerProcess::spawn(&mut cluster.pull(name, rank, world, &format!("node-{rank}"), &further)))
            .collect();
        let is_fed = |status: &Value| rank(status)["position"]["offset"].as_u64() > Some(64);
        cluster.wait_for("the first batches", is_fed);
        if case.is_stopped {
            cluster.workers[0].process.signal(Signal::STOP);
        }
        std::thread::sleep(STEADY);
        let status = cluster.status();
        if case.is_stopped {
            cluster.workers[0].process.signal(Signal::CONT);
        }
        self.pictures.proxy.follow(FaultScript::default());
        let session = status["sessions"][0].clone();
        let (found, verdict) = (&rank(&status)["diagnosis"]["limit"], session["verdict"].as_str().unwrap_or_default());
        if found.as_str() == case.limit && verdict.contains(case.says) {
            Ok(verdict.to_owned())
        } else {
            Err(format!("`{found}`, `{verdict}` where {:?} and `{}` were planted; {status}", case.limit, case.says))
        }
    }
}

fn rank(status: &Value) -> &Value {
    &status["sessions"][0]["ranks"][0]
}

fn script(store: Store) -> FaultScript {
    match store {
        Store::Fast => FaultScript::default(),
        Store::Latency { ms } => FaultScript { latency: Duration::from_millis(ms), ..FaultScript::default() },
        Store::Bandwidth { bytes_per_s } => FaultScript { bytes_per_s, ..FaultScript::default() },
        Store::Errors { one_in, status } => FaultScript {
            seed: 1,
            one_request_in: one_in,
            faults: vec![RequestFault::Status(status, None)],
            ..FaultScript::default()
        },
    }
}
