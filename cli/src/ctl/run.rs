//! `spdl-ctl run`: lists runs, shows what a run came to, and resets a run to the beginning.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
};

use clap::Subcommand;
use serde::Serialize;
use spdl_control::{
    coordinator::{JobStatus, RunStatus},
    messages::{Refusal, RunName, ToCoordinator},
};

use super::{
    CtlError, CtlResult, compare,
    coordinator::Connection,
    named_run,
    output::outln,
    report, status,
    table::{Alignment, Table},
};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    action: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    /// Lists the runs: state, position, receipt, and which launch holds each run since when.
    List {
        #[command(flatten)]
        connection: Connection,
        /// Prints the runs as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows what the newest session of a run came to: its rate, the waits of its ranks, and what limited it.
    Show {
        /// Its name, or JOB/RUN where several jobs have a run of that name.
        run: String,
        #[command(flatten)]
        connection: Connection,
        /// Prints the report as one line of JSON, which `compare` reads from a file.
        #[arg(long)]
        json: bool,
    },
    /// Resets a run: its next launch starts at the beginning, even with `resume`. Refused while the run's ranks are
    /// alive.
    Reset {
        /// Its name, or JOB/RUN where several jobs have a run of that name.
        run: String,
        #[command(flatten)]
        connection: Connection,
        /// Does not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

/// A run in the output of `run list --json`.
#[derive(Debug, Serialize)]
struct RunLine<'a> {
    job: &'a str,
    state: &'static str,
    #[serde(flatten)]
    run: &'a RunStatus,
}

/// Runs `run`.
pub(crate) fn run(args: RunArgs) -> CtlResult {
    let runtime = super::runtime()?;
    match args.action {
        RunCommand::List { connection, json } => {
            let (_, status) = runtime.block_on(status::ask(&connection))?;
            let lines: Vec<RunLine<'_>> = status.jobs.iter().flat_map(of_job).collect();
            if json { report::json(&lines)? } else { list(&lines)? }
        }
        RunCommand::Show { run, connection, json } => {
            let found = runtime.block_on(compare::of_run(&run, &connection))?;
            if json {
                report::json(&found)?;
            } else {
                compare::lines_of_one(&found).iter().try_for_each(|line| outln!("{line}"))?;
            }
        }
        RunCommand::Reset { run, connection, yes } => {
            let (_, status) = runtime.block_on(status::ask(&connection))?;
            let (job, found) = named_run::find(&status, &run)?;
            let name = RunName { job: job.name.clone(), run: found.name.clone() };
            if !yes && found.holder.is_none() {
                confirm(&name, found)?;
            }
            match runtime.block_on(connection.ask(&ToCoordinator::ResetRun(name.clone()))) {
                Err(CtlError::Refused(cause)) if matches!(*cause, Refusal::RunInUse { .. }) => {
                    return Err(CtlError::RunHeld { run: name.run, cause });
                }
                reply => reply.map(drop)?,
            }
            outln!("{name} begins at the beginning with its next launch")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn of_job(job: &JobStatus) -> impl Iterator<Item = RunLine<'_>> {
    job.runs.iter().map(|run| RunLine { job: &job.name, state: status::run_state(job, run), run })
}

fn list(lines: &[RunLine<'_>]) -> Result<(), CtlError> {
    if lines.is_empty() {
        return outln!("no runs; a job's first launch begins one");
    }
    let header = [
        ("JOB", Alignment::Left),
        ("RUN", Alignment::Left),
        ("STATE", Alignment::Left),
        ("POSITION", Alignment::Right),
        ("EPOCHS", Alignment::Right),
        ("RECEIPT", Alignment::Left),
    ];
    let mut table = Table::new(header, "");
    let mut notes = Vec::new();
    for RunLine { job, state, run } in lines {
        let receipt = run.receipt.clone().unwrap_or_else(|| "-".to_owned());
        let cells = [
            (*job).to_owned(),
            run.name.clone(),
            (*state).to_owned(),
            run.acknowledged.to_string(),
            report::grouped(run.epochs),
            receipt,
        ];
        table.push(cells, String::new());
        if let Some(holder) = &run.holder {
            let name = RunName { job: (*job).to_owned(), run: run.name.clone() };
            notes.push(format!("{name} is held by {holder}"));
        }
    }
    table.lines().iter().chain(&notes).try_for_each(|line| outln!("{line}"))
}

/// Asks for confirmation on the terminal.
fn confirm(name: &RunName, run: &RunStatus) -> Result<(), CtlError> {
    let refused = || CtlError::NotConfirmed { run: name.run.clone() };
    if !io::stdin().is_terminal() {
        return Err(refused());
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "{name} has got to {}; have it begin again at the beginning? [y/N] ", run.acknowledged);
    asked.and_then(|()| stderr.flush()).map_err(|_| refused())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|_| refused())?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
