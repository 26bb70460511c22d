//! Plants one bottleneck at a time, and checks that the status names it. Started by `tests/insight/run`; with `--json`
//! its last line on standard output is one JSON object.

mod bench;
mod cases;

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use serde::Serialize;
use spdl_testkit::{arguments::TestArguments, processes::set_limit, skipped};
use spdl_types::mix::splitmix64;

use bench::{Bench, Outcome};
use cases::{CASES, Case};

/// The time that a case may take.
const LIMIT_OF_CASE: Duration = Duration::from_secs(90);

/// The last line of the output.
#[derive(Debug, Default, Serialize)]
struct Report {
    cases: usize,
    right: usize,
    /// What the status said of the others, by their names.
    wrong: BTreeMap<&'static str, String>,
    /// Likewise of those that were only named otherwise while the machine was disturbed.
    undecided: BTreeMap<&'static str, String>,
}

struct Options {
    cases: Vec<&'static Case>,
    /// How often a case is planted until it is named.
    tries: u32,
    json: bool,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut args = TestArguments::of_process();
        let case: Option<String> = args.value("--case", "NAME")?;
        let repeats = args.value("--repeats", "N")?.unwrap_or(1);
        let sample: Option<usize> = args.value("--sample", "N")?;
        let seed = args.value("--seed", "S")?.unwrap_or_else(|| u64::from(std::process::id()));
        let tries = args.value("--tries", "N")?.unwrap_or(1);
        let json = args.flag("--json");
        args.finish()?;
        let mut cases: Vec<&Case> =
            CASES.iter().filter(|found| case.as_ref().is_none_or(|name| name == found.name)).collect();
        if cases.is_empty() {
            let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            return Err(format!("`{}` is none of {}", case.unwrap_or_default(), names.join(", ")));
        }
        if let Some(count) = sample {
            eprintln!("a sample of {count}: --sample {count} --seed {seed}");
            cases.sort_by_key(|case| case.name.bytes().fold(seed, |hash, byte| splitmix64(hash ^ u64::from(byte))));
            cases.truncate(count);
        }
        Ok(Self { cases: cases.repeat(repeats), tries, json })
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
    let plantings = u32::try_from(options.cases.len()).unwrap_or(u32::MAX).saturating_mul(options.tries);
    set_limit(LIMIT_OF_CASE.saturating_mul(plantings.saturating_add(4)));
    let bench = Bench::default();
    let mut report = Report::default();
    for case in options.cases {
        report.cases += 1;
        match planted(&bench, case, options.tries) {
            Outcome::Right(_) => report.right += 1,
            Outcome::Wrong(said) => _ = report.wrong.insert(case.name, said),
            Outcome::Disturbed(said) => {
                skipped(format_args!("tests/insight, {}: {said}", case.name));
                report.undecided.insert(case.name, said);
            }
        }
    }
    if options.json {
        println!("{}", serde_json::to_string(&report).expect("plain data serialises"));
    } else {
        println!("{} of {} named", report.right, report.cases);
    }
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plants a case until it is named. Returns the last outcome on a machine that was not disturbed, if there is one.
fn planted(bench: &Bench, case: &Case, tries: u32) -> Outcome {
    let mut last = Outcome::Disturbed("not planted".to_owned());
    for _ in 0..tries {
        let outcome = bench.run(case);
        match &outcome {
            Outcome::Right(verdict) => eprintln!("{}: right: {verdict}", case.name),
            Outcome::Wrong(said) => eprintln!("{}: WRONG: {said}", case.name),
            Outcome::Disturbed(said) => eprintln!("{}: undecided: {said}", case.name),
        }
        match outcome {
            Outcome::Right(_) => return outcome,
            Outcome::Disturbed(_) if matches!(last, Outcome::Wrong(_)) => {}
            _ => last = outcome,
        }
    }
    last
}
