//! `spdl-ctl compare`: shows what two runs came to side by side, and fails where the second one is worse than allowed.

mod figures;
mod report_file;
mod sides;
mod threshold;

use std::process::ExitCode;

use serde::Serialize;
use spdl_client::RunReport;

use self::{
    figures::{ComparedFigure, compared, lines},
    sides::{differences, read},
    threshold::{Threshold, Thresholds},
};
use super::{CtlError, CtlResult, coordinator::Connection, output::outln, report, table::wrapped};

pub(crate) use figures::lines_of_one;
pub(crate) use sides::of_run;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// What to compare with: a file with the report of a run, as `run show --json`, `pull --json`, `replay --json` and `loader.report()` in
    /// Python write it; or a run of a cluster, as RUN or JOB/RUN.
    base: String,
    /// The run that is judged: a file or a run, likewise.
    run: String,
    /// How much worse a figure may be, such as `5%`, or of one figure, `cpu=10%`: rate, waiting, bytes, cpu or bad; `waiting=any` asks for nothing. Repeat it
    /// for several. Of waiting and bad samples, these are percentage points. If a figure is worse by more, the exit code is 1. Without it, the
    /// figures are only shown.
    #[arg(long, value_name = "[FIGURE=]PERCENT")]
    at_most: Vec<Threshold>,
    /// Compares also what is not alike: other columns, another dataset or batch, or another number of ranks.
    #[arg(long)]
    force: bool,
    /// Prints both reports and the comparison as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The exit code of a comparison that was not made.
const NOT_COMPARED: u8 = 2;

/// The output of `compare --json`.
#[derive(Debug, Serialize)]
struct RunComparison<'a> {
    base: &'a RunReport,
    run: &'a RunReport,
    /// In what the two are not alike.
    differences: &'a [String],
    figures: &'a [ComparedFigure],
    /// The figures that are worse than allowed.
    regressions: Vec<&'static str>,
}

/// Runs `compare`. Its exit code is 0 if no figure is worse than allowed, 1 if one is, and 2 if nothing was compared.
pub(crate) fn run(args: &CompareArgs) -> CtlResult {
    match compare(args) {
        Err(error @ CtlError::Output(_)) => Err(error),
        Err(error) => {
            super::fail(&error);
            Ok(ExitCode::from(NOT_COMPARED))
        }
        done => done,
    }
}

fn compare(args: &CompareArgs) -> CtlResult {
    let [base, run] = super::runtime()?.block_on(read([&args.base, &args.run], &args.connection))?;
    let differences = differences(&base, &run);
    if !differences.is_empty() && !args.force {
        return Err(CtlError::NotAlike { differences: differences.join("; ") });
    }
    let thresholds = Thresholds::new(&args.at_most);
    let figures = compared(&base, &run, &thresholds);
    if let Some(unknown) = figures.iter().find(|figure| figure.is_missed(&thresholds)) {
        return Err(CtlError::FigureUnknown { figure: unknown.name });
    }
    if thresholds.ask_for_something() && !figures.iter().any(ComparedFigure::is_judged) {
        return Err(CtlError::NothingToJudge);
    }
    let regressions: Vec<&ComparedFigure> = figures.iter().filter(|figure| figure.is_regression).collect();
    let code = if regressions.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if args.json {
        let regressions = regressions.iter().map(|figure| figure.name).collect();
        let (differences, figures) = (&differences[..], &figures[..]);
        report::json(&RunComparison { base: &base, run: &run, differences, figures, regressions })?;
        return Ok(code);
    }
    let notes = differences.iter().map(|difference| format!("not alike: {difference}"));
    let end = match &regressions[..] {
        [] if thresholds.ask_for_something() => vec!["no figure is worse than allowed".to_owned()],
        regressions => regressions.iter().map(|figure| format!("worse than allowed: {}", figure.sentence())).collect(),
    };
    let shown = lines([(&args.base, &base), (&args.run, &run)], &figures);
    let notes = notes.chain(end).flat_map(|note| wrapped(&note));
    shown.into_iter().chain(notes).try_for_each(|line| outln!("{line}"))?;
    Ok(code)
}
