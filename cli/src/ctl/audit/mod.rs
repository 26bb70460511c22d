//! `spdl-ctl audit`: checks against the recomputed plan that every sample was delivered once. It takes receipts and
//! traces, and needs no cluster then, or asks a coordinator about a run.

pub(crate) mod command;
mod missing;
mod run;

use std::{
    collections::{BTreeMap, HashSet},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::Serialize;
use spdl_job::BadSamples;
use spdl_order::{BatchParams, Item, ItemKind, Receipt};
use spdl_types::{Position, SampleId};

use super::{
    CtlError, CtlResult,
    coordinator::Connection,
    job_file::{self, OpenJob},
    output::outln,
    plan::StepLine,
    report,
};

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// The job file (TOML) that the receipts and traces belong to.
    #[arg(required_unless_present = "run", conflicts_with = "run")]
    job: Option<PathBuf>,
    /// Name of a run that the coordinator knows, or JOB/RUN where several jobs have a run of that name. Its receipts,
    /// positions and bad samples come from the coordinator. The dataset must be readable from this machine.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["from", "steps", "epochs", "global_batch", "receipts", "traces", "bad_samples"])]
    run: Option<String>,
    /// With `--run`: where the coordinator is.
    #[command(flatten)]
    connection: Connection,
    /// Position that the run started from.
    #[arg(long, default_value = "0:0", value_name = "EPOCH:OFFSET")]
    from: Position,
    /// Number of steps that the run made; to the end of the job when not given.
    #[arg(long)]
    steps: Option<u64>,
    /// Number of epochs of the run; the job's when not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    /// Samples of a step over all ranks; the job's when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    global_batch: Option<u32>,
    /// Receipt of a rank; give one for each rank. They are added up.
    #[arg(long = "receipt", value_name = "HEX")]
    receipts: Vec<Receipt>,
    /// Trace of a rank, as `pull --trace` writes it; give one for each rank.
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Ids of known bad samples, which the run substituted.
    #[arg(long, value_delimiter = ',', value_name = "ID,..")]
    bad_samples: Vec<u64>,
    /// Prints the verdict as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// The result of an audit.
#[derive(Debug, Default, Serialize)]
struct AuditOutcome {
    steps: u64,
    samples: u64,
    substituted: u64,
    redacted: u64,
    plan_receipt: Receipt,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
    equal: bool,
}

/// The sorted sample ids of each step, by the step's position.
type StepIds = BTreeMap<Position, Vec<u64>>;

/// What a run of the plan delivers when substitutes take the place of bad samples.
#[derive(Debug, Default)]
struct PlannedDelivery {
    samples: u64,
    substituted: u64,
    /// The samples that take the places of redacted ones.
    redacted: u64,
    receipt: Receipt,
}

impl PlannedDelivery {
    /// Counts an entry of a batch, and returns the id of the sample that it holds; `None` if it holds none.
    fn add(&mut self, open: &OpenJob, item: &Item, bad: &HashSet<SampleId>) -> Option<SampleId> {
        if item.kind == ItemKind::Invalid {
            return None;
        }
        let planned = item.located.id;
        let id = match open.job.bad_samples {
            BadSamples::Substitute => {
                open.plan.delivered_sample(item, |id| bad.contains(&id)).map_or(planned, |at| at.id)
            }
            BadSamples::Mask | BadSamples::Fail => planned,
        };
        if item.kind == ItemKind::Sample {
            self.receipt.add_sample(item.at, id);
            self.samples += 1;
            self.substituted += u64::from(id != planned);
            self.redacted += u64::from(item.redacted.is_some());
        }
        Some(id)
    }
}

/// Runs `audit`.
pub(crate) fn run(args: &AuditArgs) -> CtlResult {
    let runtime = super::runtime()?;
    let (Some(path), None) = (&args.job, &args.run) else {
        let run = args.run.as_ref().expect("clap has checked that there is a job or a run");
        return runtime.block_on(run::audit(run, &args.connection, args.json));
    };
    let mut open = runtime.block_on(job_file::open(path))?;
    open.job.epochs = args.epochs.unwrap_or(open.job.epochs);
    let batches = open.batches(args.global_batch);
    open.plan.check(&batches)?;
    open.check_start(batches.global_batch, args.from)?;
    let (mut verdict, expected) = expected(&open, args, &batches);
    if !args.receipts.is_empty() {
        let mut sum = Receipt::default();
        args.receipts.iter().for_each(|receipt| sum += *receipt);
        verdict.receipt = Some(sum);
        if sum != verdict.plan_receipt {
            verdict.difference = Some(format!("receipts add up to {sum}, the plan's is {}", verdict.plan_receipt));
        }
    }
    if !args.traces.is_empty()
        && let Some(difference) = difference(&expected, &delivered(&args.traces)?)
    {
        verdict.difference = Some(difference);
    }
    verdict.equal = verdict.difference.is_none();
    if args.json {
        report::json(&verdict)?;
    } else {
        let steps = report::count(verdict.steps, "step", "steps");
        let samples = report::count(verdict.samples, "sample", "samples");
        let redacted = redacted_text(verdict.redacted);
        outln!("{steps}, {samples}, {} substituted{redacted}", report::grouped(verdict.substituted))?;
        outln!("receipt of the plan  {}", verdict.plan_receipt)?;
        match &verdict.difference {
            Some(difference) => outln!("DIFFERENT: {difference}")?,
            None if args.receipts.is_empty() && args.traces.is_empty() => {}
            None => outln!("equal: every sample once")?,
        }
    }
    Ok(if verdict.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns what is said of redacted samples, if there are some.
fn redacted_text(redacted: u64) -> String {
    if redacted == 0 { String::new() } else { format!(", {} redacted", report::grouped(redacted)) }
}

/// Walks the plan, replaces each bad sample by its substitute, and returns the plan's receipt and steps.
fn expected(open: &OpenJob, args: &AuditArgs, batches: &BatchParams) -> (AuditOutcome, StepIds) {
    let bad: HashSet<SampleId> = args.bad_samples.iter().copied().map(SampleId).collect();
    let mut planned = PlannedDelivery::default();
    let mut steps = 0;
    let mut step_ids = StepIds::new();
    let mut items = Vec::new();
    let limit = args.steps.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    for step in open.plan.steps(args.from, batches).take(limit) {
        open.plan.rank_items(&step, 0, 1, &mut items);
        let mut ids: Vec<u64> = items.iter().filter_map(|item| planned.add(open, item, &bad)).map(|id| id.0).collect();
        if !args.traces.is_empty() {
            ids.sort_unstable();
            step_ids.insert(step.from, ids);
        }
        steps += 1;
    }
    let PlannedDelivery { samples, substituted, redacted, receipt } = planned;
    (AuditOutcome { steps, samples, substituted, redacted, plan_receipt: receipt, ..AuditOutcome::default() }, step_ids)
}

fn delivered(traces: &[PathBuf]) -> Result<StepIds, CtlError> {
    let mut steps = StepIds::new();
    for path in traces {
        read_trace(path, &mut steps)?;
    }
    steps.values_mut().for_each(|ids| ids.sort_unstable());
    Ok(steps)
}

fn read_trace(path: &Path, steps: &mut StepIds) -> Result<(), CtlError> {
    let failed = |source| CtlError::ReadFile { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    for line in BufReader::new(file).lines() {
        let line: StepLine = serde_json::from_str(&line.map_err(failed)?).map_err(|error| failed(error.into()))?;
        steps.entry(Position::new(line.epoch, line.offset)).or_default().extend(line.ids);
    }
    Ok(())
}

/// Describes the first step whose delivered samples are not the planned ones.
fn difference(expected: &StepIds, delivered: &StepIds) -> Option<String> {
    for (position, ids) in expected {
        let Some(got) = delivered.get(position) else {
            return Some(format!("the step at {position} was not delivered"));
        };
        if got != ids {
            let (missing, surplus) = (without(ids, got), without(got, ids));
            return Some(format!("at {position} samples {missing:?} are missing and {surplus:?} should not be there"));
        }
    }
    let surplus = delivered.keys().find(|position| !expected.contains_key(position))?;
    Some(format!("the step at {surplus} is not in the plan"))
}

/// Returns the first 8 values that are in sorted `a` more often than in sorted `b`.
fn without(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut b = b.iter().peekable();
    let mut rest = Vec::new();
    for id in a {
        while b.next_if(|other| *other < id).is_some() {}
        if b.next_if_eq(&id).is_none() {
            rest.push(*id);
        }
    }
    rest.truncate(8);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(list: &[(u64, &[u64])]) -> StepIds {
        list.iter().map(|(offset, ids)| (Position::new(0, *offset), ids.to_vec())).collect()
    }

    #[test]
    fn the_first_difference_is_named() {
        let plan = steps(&[(0, &[1, 2, 3]), (3, &[4, 5, 6])]);
        assert_eq!(difference(&plan, &plan), None);
        let lost = difference(&plan, &steps(&[(0, &[1, 2, 3])])).unwrap();
        assert_eq!(lost, "the step at 0:3 was not delivered");
        let repeated = difference(&plan, &steps(&[(0, &[1, 2, 2]), (3, &[4, 5, 6])])).unwrap();
        assert_eq!(repeated, "at 0:0 samples [3] are missing and [2] should not be there");
        let surplus = difference(&plan, &steps(&[(0, &[1, 2, 3]), (3, &[4, 5, 6]), (6, &[1])])).unwrap();
        assert_eq!(surplus, "the step at 0:6 is not in the plan");
    }
}
