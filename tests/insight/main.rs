//! Plants one bottleneck at a time, and checks that the status names it. Started by `tests/insight/run`; with `--json`
//! its last line on standard output is one JSON object.

mod cases;

use std::{process::ExitCode, time::Duration};

use serde::Serialize;
use spdl_testkit::processes::set_limit;

use cases::{Bench, CASES};

/// The last line of the output.
#[derive(Debug, Default, Serialize)]
struct Report {
    cases: usize,
    right: usize,
    wrong: Vec<String>,
}

#[derive(Default)]
struct Options {
    case: Option<String>,
    json: bool,
}

impl Options {
    fn from_args() -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--case" => options.case = Some(args.next().ok_or("`--case` expects a name")?),
                "--json" => options.json = true,
                other => return Err(format!("`{other}` is none of --case NAME, --json")),
            }
        }
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        match &options.case {
            Some(name) if !names.contains(&name.as_str()) => Err(format!("`{name}` is none of {}", names.join(", "))),
            _ => Ok(options),
        }
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
    set_limit(Duration::from_secs(600));
    let bench = Bench::new();
    let mut report = Report::default();
    for case in CASES.iter().filter(|case| options.case.as_ref().is_none_or(|name| name == case.name)) {
        report.cases += 1;
        match bench.run(case) {
            Ok(verdict) => {
                report.right += 1;
                eprintln!("{}: right: {verdict}", case.name);
            }
            Err(problem) => {
                eprintln!("{}: WRONG: {problem}", case.name);
                report.wrong.push(case.name.to_owned());
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
