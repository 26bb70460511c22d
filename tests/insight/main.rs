//! Plants one bottleneck at a time, and checks that the status names it. Started by `tests/insight/run`; with `--json`
//! its last line on standard output is one JSON object.

mod bench;
mod cases;

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use spdl_core::mix::splitmix64;
use spdl_testkit::{arguments::Arguments, processes::set_limit};

use bench::Bench;
use cases::{CASES, Case};

/// The time that a case may take.
const LIMIT_OF_CASE: Duration = Duration::from_secs(90);

/// The last line of the output.
#[derive(Debug, Default, Serialize)]
struct Report {
    cases: usize,
    right: usize,
    wrong: Vec<String>,
}

struct Options {
    cases: Vec<&'static Case>,
    /// How often a case is planted until it is named: on a machine that others use, what they do may be the limit.
    tries: u32,
    json: bool,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut args = Arguments::of_process();
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
    let planted = u32::try_from(options.cases.len()).unwrap_or(u32::MAX).saturating_mul(options.tries);
    set_limit(LIMIT_OF_CASE.saturating_mul(planted.saturating_add(4)));
    let bench = Bench::default();
    let mut report = Report::default();
    for case in options.cases {
        report.cases += 1;
        let is_named = (0..options.tries).any(|_| match bench.run(case) {
            Ok(verdict) => {
                eprintln!("{}: right: {verdict}", case.name);
                true
            }
            Err(problem) => {
                eprintln!("{}: WRONG: {problem}", case.name);
                false
            }
        });
        if is_named {
            report.right += 1;
        } else {
            report.wrong.push(case.name.to_owned());
        }
    }
    if options.json {
        println!("{}", serde_json::to_string(&report).expect("plain data serialises"));
    } else {
        println!("{} of {} named", report.right, report.cases);
    }
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
