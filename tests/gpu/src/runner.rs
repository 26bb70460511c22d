//! Runs steps one after another, each as a process of its own with a time limit, whatever happens to the others: a step
//! that crashes, hangs, or leaves the device unusable costs only its own result.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Output, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value, json};

use crate::report::{Outcome, StepReport};

/// How long a killed process may take to end. A process that waits inside of the driver may not end at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The end of a failed step's output that the JSON keeps.
const LOG_BYTES: usize = 2000;

/// A step to run.
#[derive(Debug)]
pub struct PlannedStep {
    /// Its name.
    pub name: String,
    /// The process, which prints a [`StepReport`] as its last line; or the reason why the step cannot run here.
    pub command: Result<Command, String>,
    /// The weight of its share of the time, relative to the other steps.
    pub weight: u32,
}

/// A step that was run.
#[derive(Clone, Debug)]
pub struct FinishedStep {
    /// Its name.
    pub name: String,
    /// Its result.
    pub report: StepReport,
    /// How long it took.
    pub seconds: f64,
    /// The end of its output if it failed, otherwise empty.
    pub log: String,
}

/// The first row of the table.
pub const HEADINGS: &str = "result  step                        time      what was found";

impl FinishedStep {
    /// Returns the step's row of the table.
    #[must_use]
    pub fn row(&self) -> String {
        let Self { name, report, seconds, .. } = self;
        format!("{:<8}{name:<26}{seconds:>6.1} s  {}", report.outcome.word(), report.words.replace('\n', " | "))
    }

    fn json(&self) -> Value {
        let Self { name, report, seconds, log } = self;
        let mut value = json!({
            "step": name, "outcome": report.outcome, "words": report.words, "seconds": (seconds * 1e3).round() / 1e3,
        });
        if !report.figures.is_empty() {
            value["figures"] = Value::Object(report.figures.clone());
        }
        if !log.is_empty() {
            value["log"] = json!(log);
        }
        value
    }
}

/// Runs the steps in their order, in `budget` altogether. Each has its share of the time that is left when it begins, so
/// the time that one does not need goes to those after it. Calls `on_finished` after each.
pub fn run_steps(
    steps: Vec<PlannedStep>,
    budget: Duration,
    mut on_finished: impl FnMut(&FinishedStep),
) -> Vec<FinishedStep> {
    let until = Instant::now() + budget;
    let mut weight_left: u32 = steps.iter().filter(|step| step.command.is_ok()).map(|step| step.weight).sum();
    let run = |step: PlannedStep| {
        let start = Instant::now();
        let (report, log) = match step.command {
            Err(reason) => (StepReport::skipped(reason), String::new()),
            Ok(command) => {
                let left = until.saturating_duration_since(start);
                let limit = left.mul_f64(f64::from(step.weight) / f64::from(weight_left.max(1)));
                weight_left -= step.weight;
                run_process(command, limit)
            }
        };
        let step = FinishedStep { name: step.name, report, seconds: start.elapsed().as_secs_f64(), log };
        on_finished(&step);
        step
    };
    steps.into_iter().map(run).collect()
}

/// Returns how many steps ended in each way, for the end of the table.
#[must_use]
pub fn summary(steps: &[FinishedStep]) -> String {
    let counts = OUTCOMES.map(|outcome| format!("{} {}", count(steps, outcome), outcome.word()));
    counts.join(", ")
}

const OUTCOMES: [Outcome; 5] = [Outcome::Ok, Outcome::Below, Outcome::Skipped, Outcome::Wrong, Outcome::Timeout];

fn count(steps: &[FinishedStep], outcome: Outcome) -> usize {
    steps.iter().filter(|step| step.report.outcome == outcome).count()
}

/// Returns everything that was found, with `about` beside it, as one JSON object.
#[must_use]
pub fn json_of(steps: &[FinishedStep], about: Map<String, Value>) -> Value {
    let mut value = Value::Object(about);
    for outcome in OUTCOMES {
        value[outcome.word().to_lowercase()] = json!(count(steps, outcome));
    }
    value["steps"] = steps.iter().map(FinishedStep::json).collect();
    value
}

/// Runs a process for at most `limit`, and kills it and its children then. Returns its report, and the end of its
/// output if it failed.
pub fn run_process(mut command: Command, limit: Duration) -> (StepReport, String) {
    // A process group of its own, so that killing the step ends the processes that it has started, too.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return (StepReport::new(Outcome::Wrong, format!("`{program}` does not start: {error}")), String::new());
        }
    };
    let group = Pid::from_child(&child);
    let (ended, end) = channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    if let Ok(output) = end.recv_timeout(limit) {
        return match output {
            Ok(output) => report_of(&output),
            Err(error) => (StepReport::new(Outcome::Wrong, format!("`{program}`: {error}")), String::new()),
        };
    }
    // Fails only if the process has just ended.
    let _ = kill_process_group(group, Signal::KILL);
    let words = format!(
        "not done after {:.1} s, its share of the time; a larger `--minutes` gives it more",
        limit.as_secs_f64()
    );
    match end.recv_timeout(KILL_TIMEOUT) {
        Ok(output) => {
            (StepReport::new(Outcome::Timeout, words), output.map_or_else(|_| String::new(), |output| log_of(&output)))
        }
        Err(_) => (StepReport::new(Outcome::Timeout, words + ", and it could not be killed"), String::new()),
    }
}

fn report_of(output: &Output) -> (StepReport, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let report = match StepReport::parse(&text) {
        Some(report) if output.status.success() || report.outcome.is_failure() => report,
        Some(report) => StepReport {
            outcome: Outcome::Wrong,
            words: format!("{}; but then the process ended with {}", report.words, output.status),
            ..report
        },
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("note:"));
            let words =
                format!("the process ended with {} and no result: {}", output.status, last.unwrap_or("no words"));
            StepReport::new(Outcome::Wrong, words)
        }
    };
    let log = if report.outcome.is_failure() { log_of(output) } else { String::new() };
    (report, log)
}

/// Returns the end of a process's output and errors.
fn log_of(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    let mut start = text.len().saturating_sub(LOG_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}
