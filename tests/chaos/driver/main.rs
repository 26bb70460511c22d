//! The chaos test: trains on real processes that are killed again and again, and proves that the trainer received what
//! a run without faults delivers. Started by `tests/chaos/run`; its last line on standard output is one JSON object.

mod accounts;
mod faults;
mod launch;
mod surroundings;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use accounts::Accounts;
use faults::{Faults, Random};
use launch::{Ended, LaunchParams};
use serde::Serialize;
use serde_json::Value;
use spdl_testkit::{
    arguments::TestArguments,
    processes::{Cluster, TestDataset, ctl, run, set_limit, sum, undisturbed},
};
use surroundings::Surroundings;

const WORKERS: usize = 3;
/// World sizes of the launches after each checkpoint, in a cycle.
const WORLDS: [u32; 3] = [4, 2, 3];
/// Samples per second of the whole trainer: slow enough for a machine with two cores.
const RATE: u32 = 90;
/// Global batch of the test's job.
const GLOBAL_BATCH: u32 = 24;
/// Seconds from one checkpoint and resize to the next.
const LAUNCH_S: u32 = 7;
/// One launch in this many is killed before its checkpoint.
const KILLED_LAUNCHES: u64 = 3;
/// A rank that waits longer for a batch hangs. How long it may wait at all is measured, not tested: that is up to the machine,
/// whose disk alone has held a coordinator's first write for seconds.
const HANGS_MS: u64 = 120_000;

struct Options {
    seconds: u64,
    seed: u64,
    json: bool,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut args = TestArguments::of_process();
        let seconds = args.value("--seconds", "N")?.unwrap_or(120);
        let seed = args.value("--seed", "S")?.unwrap_or(1);
        let json = args.flag("--json");
        args.finish()?;
        Ok(Self { seconds, seed, json })
    }
}

fn main() -> ExitCode {
    let options = match Options::from_args() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("error: {problem}");
            return ExitCode::FAILURE;
        }
    };
    // All child processes end with this process; the limit is for a process that hangs.
    set_limit(Duration::from_secs(options.seconds + 600));
    let (report, problems) = chaos(&options);
    for problem in &problems {
        eprintln!("WRONG: {problem}");
    }
    if options.json {
        println!("{}", serde_json::to_string(&report).expect("plain data serialises"));
    } else {
        println!("{report:#?}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The last line of the output.
#[derive(Debug, Serialize)]
struct Report {
    delivered: u64,
    lost: u64,
    repeated: u64,
    worker_kills: u64,
    coordinator_kills: u64,
    resizes: u64,
    stall_ms_max: u64,
    receipt: String,
    plan_receipt: String,
}

/// Runs the chaos test; returns its report and the problems found.
fn chaos(options: &Options) -> (Report, Vec<String>) {
    let dataset = TestDataset::of_pictures(400, 50);
    let job = dataset.job("chaos", "epochs = 1000000");
    let surroundings = Surroundings::new(dataset.path("tmp"));
    let mut cluster = Cluster::start_with(WORKERS, &[], surroundings.environment());
    cluster.submit(&job);
    let mut trainer = Trainer::default();
    let mut random = Random::new(options.seed);
    let mut faults = Faults::new(Random::new(options.seed.wrapping_add(1)));
    let until = Instant::now() + Duration::from_secs(options.seconds);
    for world in WORLDS.into_iter().cycle() {
        if Instant::now() >= until && trainer.launches > WORLDS.len() as u64 {
            break;
        }
        trainer.launch(&mut cluster, &mut faults, &mut random, world);
    }
    let mut problems = stop(&mut cluster);
    let folder = cluster.folder.path().to_owned();
    problems.extend(surroundings.leftovers(&folder));
    drop(cluster);
    if folder.exists() {
        problems.push(format!("`{}` is still there", folder.display()));
    }
    let report = settle(&job, &dataset, &trainer, &faults, &mut problems);
    (report, problems)
}

/// Asks all servers to end; returns a problem for each that failed.
fn stop(cluster: &mut Cluster) -> Vec<String> {
    let mut problems = Vec::new();
    let coordinator = cluster.coordinator.as_mut().expect("a coordinator");
    let workers = cluster.workers.iter_mut().map(|worker| &mut worker.process);
    for process in workers.chain([coordinator]) {
        process.signal(rustix::process::Signal::TERM);
        let status = process.wait();
        if !status.success() {
            problems.push(format!("a server ended with {status}"));
        }
    }
    problems
}

/// A trainer over all its launches, with the content of its last checkpoint.
#[derive(Default)]
struct Trainer {
    /// The state in the last checkpoint.
    state: Option<String>,
    steps: u64,
    launches: u64,
    killed_launches: u64,
    reports: Vec<Value>,
    accounts: Accounts,
}

impl Trainer {
    /// Trains from the last checkpoint to the next at this world size; repeats a launch that was killed.
    fn launch(&mut self, cluster: &mut Cluster, faults: &mut Faults, random: &mut Random, world: u32) {
        let steps = u64::from(LAUNCH_S * RATE / GLOBAL_BATCH);
        loop {
            self.launches += 1;
            let kill_after = (random.below(KILLED_LAUNCHES) == 0)
                .then(|| Duration::from_millis(500 + random.below(u64::from(LAUNCH_S) * 800)));
            let launch = LaunchParams {
                number: self.launches,
                world,
                steps,
                state: self.state.as_deref(),
                rate: f64::from(RATE) / f64::from(world),
                kill_after,
            };
            match launch.run(cluster, faults, random) {
                Ended::Checkpointed { reports, traces } => {
                    let state = reports[0]["state"].to_string();
                    let same = reports.iter().all(|report| report["state"].to_string() == state);
                    assert!(same, "the ranks of a launch have different states: {reports:?}");
                    traces.iter().for_each(|trace| self.accounts.keep(trace));
                    self.state = Some(state);
                    self.steps += steps;
                    self.reports.extend(reports);
                    return;
                }
                Ended::Killed { traces } => {
                    self.killed_launches += 1;
                    traces.iter().for_each(|trace| self.accounts.abandon(trace));
                }
            }
        }
    }
}

/// Compares the deliveries with the plan and with a run without faults.
fn settle(
    job: &std::path::Path,
    dataset: &TestDataset,
    trainer: &Trainer,
    faults: &Faults,
    problems: &mut Vec<String>,
) -> Report {
    let steps = trainer.steps.to_string();
    let planned = run(ctl().arg("audit").arg(job).args(["--steps", &steps, "--json"])).json();
    let trace = dataset.path("undisturbed.jsonl");
    let alone = undisturbed(job, trainer.steps, &["--trace", trace.to_str().expect("a path in UTF-8")]);
    let balance = trainer.accounts.balance(&trace);
    let (receipt, plan_receipt) = (sum(&trainer.reports, "receipt"), planned["plan_receipt"].clone());
    let mut expect = |holds: bool, problem: String| {
        if !holds {
            problems.push(problem);
        }
    };
    expect(balance.lost == 0 && balance.repeated == 0, format!("{balance:?}"));
    expect(balance.unlike == 0, format!("{} samples of killed launches were others later", balance.unlike));
    expect(plan_receipt == receipt, format!("receipts add up to {receipt}, the plan's is {plan_receipt}"));
    let (ours, theirs) = (sum(&trainer.reports, "content_digest"), &alone["content_digest"]);
    expect(*theirs == ours, format!("content digest is {ours}, of an undisturbed run {theirs}"));
    let stall_ms_max = trainer.accounts.longest_wait_ms;
    expect(stall_ms_max <= HANGS_MS, format!("a rank waited {stall_ms_max} ms for a batch"));
    eprintln!(
        "{} launches, of which {} were killed, with {} samples that came again",
        trainer.launches, trainer.killed_launches, trainer.accounts.abandoned
    );
    Report {
        delivered: balance.delivered,
        lost: balance.lost,
        repeated: balance.repeated,
        worker_kills: faults.worker_kills,
        coordinator_kills: faults.coordinator_kills,
        resizes: trainer.launches - trainer.killed_launches - 1,
        stall_ms_max,
        receipt,
        plan_receipt: plan_receipt.as_str().unwrap_or_default().to_owned(),
    }
}
