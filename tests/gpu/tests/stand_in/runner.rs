//! Tests of the runner of the steps: what one step does never costs another its result.

use std::{process::Command, time::Duration};

use spdl_gpu_tests::{
    report::Outcome,
    runner::{FinishedStep, PlannedStep, run_steps},
};

/// A report as a step prints it.
const OK: &str = r#"echo '{"outcome":"ok","words":"fine"}'"#;

fn shell(name: &str, script: &str) -> PlannedStep {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    PlannedStep { name: name.into(), command: Ok(command), weight: 1 }
}

fn run(steps: Vec<PlannedStep>, budget: Duration) -> Vec<FinishedStep> {
    let mut seen = 0;
    let finished = run_steps(steps, budget, |_| seen += 1);
    assert_eq!(seen, finished.len(), "each step is reported when it ends");
    finished
}

fn outcomes(steps: &[FinishedStep]) -> Vec<Outcome> {
    steps.iter().map(|step| step.report.outcome).collect()
}

#[test]
fn a_step_that_hangs_is_killed_with_its_children_and_the_next_one_runs() {
    // The share of the first one is 2 s.
    let runs = PlannedStep { weight: 49, ..shell("runs", OK) };
    let steps = vec![shell("hangs", "echo before; sleep 1000 & sleep 1000"), runs];
    let steps = run(steps, Duration::from_secs(100));
    assert_eq!(outcomes(&steps), [Outcome::Timeout, Outcome::Ok]);
    // The output ends only when the last child that could write to it is gone.
    assert!(!steps[0].report.words.contains("could not be killed"), "{}", steps[0].report.words);
    assert!(steps[0].log.contains("before") && steps[1].log.is_empty());
}

#[test]
fn a_step_that_crashes_is_wrong_whatever_it_had_reported() {
    let crash = format!("{OK}; kill -SEGV $$");
    let steps = vec![shell("crashes", &crash), shell("dies", "echo no memory >&2; exit 3"), shell("runs", OK)];
    let steps = run(steps, Duration::from_secs(100));
    assert_eq!(outcomes(&steps), [Outcome::Wrong, Outcome::Wrong, Outcome::Ok]);
    let words = |at: usize| steps[at].report.words.as_str();
    assert!(words(0).starts_with("fine; but then") && words(0).contains("SIGSEGV"), "{}", words(0));
    assert!(words(1).contains("exit status: 3") && words(1).ends_with("no memory"), "{}", words(1));
}

#[test]
fn a_step_that_cannot_run_here_is_skipped_with_its_reason() {
    let absent = PlannedStep { name: "absent".into(), command: Err("there is no torch".into()), weight: 5 };
    let missing = PlannedStep { name: "missing".into(), command: Ok(Command::new("/no/such/program")), weight: 1 };
    let steps = run(vec![absent, missing, shell("runs", OK)], Duration::from_secs(100));
    assert_eq!(outcomes(&steps), [Outcome::Skipped, Outcome::Wrong, Outcome::Ok]);
    assert!(steps[0].row().contains("there is no torch"), "{}", steps[0].row());
    assert!(steps[1].report.words.contains("does not start"), "{}", steps[1].report.words);
}

#[test]
fn what_a_program_writes_after_the_report_does_not_hide_it() {
    let steps = run(vec![shell("watched", &format!("{OK}; echo ERROR SUMMARY: 0 errors"))], Duration::from_secs(100));
    assert_eq!(steps[0].report.words, "fine");
}
