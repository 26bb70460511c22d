//! The cluster that a bottleneck is planted in.

use std::{
    cell::OnceCell,
    fs,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess},
    proxy::{FaultScript, RequestFault},
    python::python,
    stored::StoredPictures,
    udp_link::UdpLink,
};
use spdl_types::Stage;

use super::cases::{Case, Pictures, Store, Trouble, UNLIMITED};

/// Seconds of steady running before the status is asked: its figures are of the last five to ten.
const STEADY: Duration = Duration::from_secs(10);
const JOB: &str = "planted";
/// Samples in a dataset.
const SAMPLES: u64 = 600;
/// Seconds of a worker's CPU time over which the machine is measured: those of several heartbeats.
const MEASURED_S: f64 = 3.0;
/// The fraction of the steady seconds for which a thread that only waits may be late.
const LATE: f64 = 0.01;

/// The datasets, each made at its first use.
#[derive(Default)]
pub(crate) struct Bench {
    even: OnceCell<StoredPictures>,
    uneven: OnceCell<StoredPictures>,
    bad: OnceCell<StoredPictures>,
    samples_per_cpu_s: OnceCell<f64>,
}

/// What the status says of a case.
pub(crate) enum Outcome {
    /// The verdict that it has to give.
    Right(String),
    /// Another one.
    Wrong(String),
    /// Another one, while the machine did not run what could run: then that may be the limit.
    Disturbed(String),
}

/// The processes of one case.
struct Planted<'c> {
    case: &'c Case,
    pictures: &'c StoredPictures,
    /// Samples per second that each trainer takes; `None` for as many as it gets.
    rate: Option<f64>,
    cluster: Cluster,
    ranks: Vec<ServerProcess>,
    _links: Vec<UdpLink>,
}

impl Bench {
    /// Plants a bottleneck; returns what the status says of it.
    pub(crate) fn run(&self, case: &Case) -> Outcome {
        let rate = case.trainer.cores.map(|cores| cores * self.samples_per_cpu_s());
        let mut planted = Planted::start(case, self.pictures(case.pictures), rate);
        planted.cause_trouble();
        let late = lateness(STEADY);
        let status = planted.cluster.status();
        planted.pictures.proxy.follow(FaultScript::default());
        let session = &status["sessions"][0];
        let (found, verdict) = (&rank(&status)["diagnosis"]["limit"], session["verdict"].as_str().unwrap_or_default());
        if *found == case.limit && verdict.contains(case.says) {
            return Outcome::Right(verdict.to_owned());
        }
        eprintln!("{}: {status}", case.name);
        let said = format!("`{found}`, `{verdict}` where `{}` and `{}` were planted", case.limit, case.says);
        if late > LATE {
            Outcome::Disturbed(format!("{said}, on a machine that did other things for {late:.3} of the time"))
        } else {
            Outcome::Wrong(said)
        }
    }

    /// Returns the samples that a worker makes of a second of CPU time on this machine, measured once.
    fn samples_per_cpu_s(&self) -> f64 {
        *self.samples_per_cpu_s.get_or_init(|| {
            let planted = Planted::start(&UNLIMITED, self.pictures(Pictures::Even), None);
            // The first epoch also fetches and opens blocks.
            planted.wait_past(SAMPLES);
            let before = work(&planted.cluster.status());
            let after = work(&planted.cluster.wait_for("work", |status| work(status).1 - before.1 > MEASURED_S));
            let measured = (after.0 - before.0) / (after.1 - before.1);
            eprintln!("a worker makes {measured:.0} samples of a second of CPU time");
            measured
        })
    }

    fn pictures(&self, kind: Pictures) -> &StoredPictures {
        let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
        match kind {
            Pictures::Even => self.even.get_or_init(|| runtime().block_on(StoredPictures::new(SAMPLES, 100, &[]))),
            Pictures::Bad => self.bad.get_or_init(|| {
                let bad: Vec<u64> = (0..200).filter(|number| number % 5 < 2).collect();
                runtime().block_on(StoredPictures::new(200, 100, &bad))
            }),
            Pictures::Uneven => self.uneven.get_or_init(|| {
                let large = large_picture();
                let alter = |number: u64, _: &[u8]| (number % 30 == 7).then(|| large.clone());
                runtime().block_on(StoredPictures::altered(SAMPLES, 100, alter))
            }),
        }
    }
}

impl<'c> Planted<'c> {
    /// Starts all processes, and waits for the first batches.
    fn start(case: &'c Case, pictures: &'c StoredPictures, rate: Option<f64>) -> Self {
        let mut cluster = Cluster::start(0);
        let python = case.function_s.map(|seconds| slow_function(&mut cluster, seconds));
        let links = (0..).zip(case.workers).filter_map(|(number, (cores, memory))| {
            start_worker(
                &mut cluster,
                &format!("node-{number}"),
                (cores, memory),
                case.trainer.network,
                python.as_deref(),
            )
        });
        let links: Vec<UdpLink> = links.collect();
        let job = job_file(&cluster, case, pictures);
        cluster.submit(&job);
        if case.trouble != Trouble::WarmCache {
            pictures.proxy.follow(script(case.store));
        }
        let mut planted = Self { case, pictures, rate, cluster, ranks: Vec::new(), _links: links };
        planted.ranks = (0..planted.world()).map(|number| planted.rank(number)).collect();
        planted.wait_past(64);
        planted
    }

    fn world(&self) -> u32 {
        u32::try_from(self.case.workers.len()).expect("a few workers")
    }

    /// Starts a rank.
    fn rank(&self, number: u32) -> ServerProcess {
        let trainer = &self.case.trainer;
        let rate = self.rate.map(|rate| format!("{rate:.1}"));
        let slots = trainer.slots.to_string();
        let mut args = vec!["--slots", &slots];
        args.extend(rate.iter().flat_map(|rate| ["--rate", rate.as_str()]));
        let node = if trainer.network.is_some() { "elsewhere".to_owned() } else { format!("node-{number}") };
        ServerProcess::spawn(&mut self.cluster.pull(JOB, number, self.world(), &node, &args))
    }

    /// Waits until rank 0 has taken more than `samples`.
    fn wait_past(&self, samples: u64) {
        self.cluster.wait_for("the first batches", |status| {
            let position = &rank(status)["position"];
            let [epoch, offset] = ["epoch", "offset"].map(|field| position[field].as_u64().unwrap_or_default());
            epoch * SAMPLES + offset > samples
        });
    }

    fn cause_trouble(&mut self) {
        match self.case.trouble {
            Trouble::None => {}
            Trouble::WorkerStops => self.cluster.workers[0].process.signal(Signal::STOP),
            Trouble::WorkerDies => self.cluster.workers[0].process.kill(),
            Trouble::TrainerStops => self.ranks[0].signal(Signal::STOP),
            Trouble::SecondLaunch => {
                let mut launch = self.cluster.pull(JOB, 0, self.world(), "node-0", &["--takeover", "--rate", "40"]);
                self.ranks.push(ServerProcess::spawn(launch.env("SPDL_LAUNCH_ID", "second")));
            }
            Trouble::WarmCache => {
                self.wait_past(SAMPLES);
                self.pictures.proxy.follow(script(self.case.store));
            }
        }
    }
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        // A process that is stopped is killed all the same, but its parent may wait for it.
        self.cluster.workers.iter().for_each(|worker| worker.process.signal(Signal::CONT));
        self.ranks.iter().for_each(|rank| rank.signal(Signal::CONT));
    }
}

/// Starts a worker and, if its trainers are on another node, the network to it.
fn start_worker(
    cluster: &mut Cluster,
    node: &str,
    (cores, memory): (&str, &str),
    network: Option<u64>,
    python: Option<&str>,
) -> Option<UdpLink> {
    let mut settings = vec!["--cores", cores, "--memory", memory, "--hedge-percent", "0"];
    settings.extend(python.iter().flat_map(|python| ["--python", python]));
    let Some(bytes_per_s) = network else {
        cluster.start_worker(node, &settings);
        return None;
    };
    let listen = free_address();
    let link = UdpLink::start(listen, bytes_per_s);
    let addresses = [listen, link.address()].map(|address| address.to_string());
    settings.extend(["--listen", &addresses[0], "--advertise", &addresses[1]]);
    cluster.start_worker(node, &settings);
    Some(link)
}

/// Returns a loopback address that no socket has.
fn free_address() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free loopback port");
    socket.local_addr().expect("a bound socket has an address")
}

/// Writes a module with a function that sleeps, for the processes that start after this, and returns a Python for it.
fn slow_function(cluster: &mut Cluster, seconds: f64) -> String {
    let modules = cluster.path("modules");
    cluster.environment.push(("PYTHONPATH".to_owned(), modules.display().to_string()));
    fs::create_dir_all(&modules).expect("a folder");
    let module = format!("import time\ndef slow(value, rng):\n    time.sleep({seconds})\n    return value\n");
    fs::write(modules.join("slow_function.py"), module).expect("a file");
    python().display().to_string()
}

/// Writes the job file of a case.
fn job_file(cluster: &Cluster, case: &Case, pictures: &StoredPictures) -> PathBuf {
    let file = pictures.job_of(JOB, "epochs = 100000", 64);
    let mut text = read(&file);
    for key in case.job.lines() {
        let (name, _) = key.split_once(" = ").expect("a key and a value");
        let others = text.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n"));
        text = format!("{key}\n{}", others.collect::<String>());
    }
    if case.function_s.is_some() {
        text += "transform = \"slow_function:slow\"\n";
    }
    let job = cluster.path("planted.toml");
    fs::write(&job, text).expect("a job file");
    job
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a job file")
}

/// Returns how many samples the first worker has decoded, and its CPU time in seconds.
fn work(status: &Value) -> (f64, f64) {
    let worker = &status["workers"][0];
    let stages = worker["stages"].as_array().expect("a worker has stages");
    let decode = stages.iter().find(|stage| stage["name"] == Stage::Decode.name()).expect("a worker decodes");
    let [items, cpu_ns] = [&decode["items"], &worker["cpu_ns"]].map(|value| value.as_f64().expect("a number"));
    (items, cpu_ns / 1e9)
}

/// Sleeps; returns the fraction of the time for which this thread was kept from going on, by another machine on the same cores or by
/// processes that are none of the case.
fn lateness(duration: Duration) -> f64 {
    const NAP: Duration = Duration::from_millis(5);
    // A thread that is late by less has only waited for its turn.
    const TURN: Duration = Duration::from_millis(15);
    let (start, mut late) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < duration {
        let before = Instant::now();
        std::thread::sleep(NAP);
        let by = before.elapsed() - NAP;
        late += if by > TURN { by } else { Duration::ZERO };
    }
    late.as_secs_f64() / duration.as_secs_f64()
}

fn rank(status: &Value) -> &Value {
    &status["sessions"][0]["ranks"][0]
}

/// Makes a JPEG of about 5 MB.
fn large_picture() -> Vec<u8> {
    const SIDE: u16 = 2200;
    let mut state = 1u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let pixels: Vec<u8> = noise.take(usize::from(SIDE) * usize::from(SIDE)).collect();
    let mut picture = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut picture, 95);
    encoder.encode(&pixels, SIDE, SIDE, jpeg_encoder::ColorType::Luma).expect("a picture");
    picture
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
        Store::OneSlowShard { ms } => {
            FaultScript { slow_object: Some(("2.tar".to_owned(), Duration::from_millis(ms))), ..FaultScript::default() }
        }
    }
}
