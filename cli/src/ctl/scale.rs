//! `spdl-ctl scale`: prints how many workers the ranks need, for a platform that starts and stops workers.

use std::process::ExitCode;

use serde::Serialize;
use spdl_control::coordinator::Status;

use super::{CtlError, CtlResult, coordinator::Connection, output::outln, report, status, table::wrapped};

/// Arguments of `scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    connection: Connection,
    /// Prints the decision and changes nothing. Needed, because starting and stopping workers is the platform's task.
    #[arg(long, required = true)]
    dry_run: bool,
    /// Cores of one worker. [default: the median of the workers that are there]
    #[arg(long, value_name = "N", value_parser = positive)]
    worker_cores: Option<f64>,
    /// The fewest workers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    min: u64,
    /// The most workers. [default: no limit]
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Prints the decision as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// How many workers are there and how many are wanted.
#[derive(Debug, PartialEq, Serialize)]
struct Decision {
    /// The workers that take ranks.
    workers: u64,
    cores: f64,
    /// The cores of one worker.
    worker_cores: f64,
    /// `None` while it is not known: nothing should change then.
    wanted_workers: Option<u64>,
    wanted_cores: Option<f64>,
    reason: String,
}

/// Runs `scale`.
pub(crate) fn run(args: &ScaleArgs) -> CtlResult {
    let (_, status) = super::runtime()?.block_on(status::ask(&args.connection))?;
    let decision = Decision::of(&status, args)?;
    if args.json {
        report::json(&decision)?;
    } else {
        for line in wrapped(&decision.text()) {
            outln!("{line}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

impl Decision {
    fn of(status: &Status, args: &ScaleArgs) -> Result<Self, CtlError> {
        let mut sizes: Vec<f64> =
            status.workers.iter().filter(|worker| !worker.draining).map(|worker| worker.cores).collect();
        sizes.sort_by(f64::total_cmp);
        let median = sizes.get(sizes.len() / 2).copied().filter(|cores| *cores > 0.0);
        let worker_cores = args.worker_cores.or(median).ok_or_else(|| CtlError::Flag {
            flag: "--worker-cores",
            problem: "there is no worker to take the number of cores from: name it".to_owned(),
        })?;
        let (workers, scale) = (sizes.len() as u64, &status.scale);
        let wanted_workers = scale.wanted_cores.map(|cores| {
            let more = (cores / worker_cores).ceil() as i64;
            let wanted = workers.saturating_add_signed(more);
            wanted.max(args.min).max(u64::from(scale.demand.ranks > 0)).min(args.max.unwrap_or(u64::MAX))
        });
        Ok(Self {
            workers,
            cores: scale.worker_cores,
            worker_cores,
            wanted_workers,
            wanted_cores: scale.wanted_cores,
            reason: scale.reason.clone(),
        })
    }

    fn text(&self) -> String {
        let &Self { workers, worker_cores, .. } = self;
        let now = format!("workers: {workers} of {} now", status::cores(worker_cores));
        let wanted = match self.wanted_workers {
            None => "it is not known how many are wanted".to_owned(),
            Some(wanted) if wanted > workers => format!("{wanted} wanted ({} more)", wanted - workers),
            Some(wanted) if wanted < workers => format!("{wanted} wanted ({} fewer)", workers - wanted),
            Some(_) => "as many wanted".to_owned(),
        };
        format!("{now}, {wanted}: {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::status::tests::{status, worker},
        *,
    };

    fn args(min: u64, max: Option<u64>) -> ScaleArgs {
        let connection = Connection { coord: None, certs: None, quic: spdl_wire::quic::QuicSettings::default() };
        ScaleArgs { connection, dry_run: true, worker_cores: Some(4.0), min, max, json: false }
    }

    fn decision(wanted_cores: Option<f64>, args: &ScaleArgs) -> Decision {
        let mut status = status(&[], &[worker("a"), worker("b")]);
        status.scale.wanted_cores = wanted_cores;
        status.scale.demand.ranks = 2;
        status.scale.reason = "so it is".to_owned();
        Decision::of(&status, args).unwrap()
    }

    #[test]
    fn workers_are_wanted_for_the_cores_that_are_and_within_the_bounds() {
        let wanted = |cores, min, max| decision(Some(cores), &args(min, max)).wanted_workers;
        for (cores, expected) in [(0.0, 2), (0.1, 3), (4.0, 3), (9.0, 5), (-3.9, 2), (-4.0, 1), (-8.0, 1), (-99.0, 1)] {
            assert_eq!(wanted(cores, 0, None), Some(expected), "{cores}");
        }
        assert_eq!((wanted(99.0, 0, Some(7)), wanted(-8.0, 2, None)), (Some(7), Some(2)));
        assert_eq!(decision(None, &args(5, None)).wanted_workers, None);
    }

    #[test]
    fn the_decision_is_one_sentence() {
        let text = |cores| decision(cores, &args(0, None)).text();
        assert_eq!(text(Some(9.0)), "workers: 2 of 4 cores now, 5 wanted (3 more): so it is");
        assert_eq!(text(Some(-4.0)), "workers: 2 of 4 cores now, 1 wanted (1 fewer): so it is");
        assert_eq!(text(Some(-1.0)), "workers: 2 of 4 cores now, as many wanted: so it is");
        assert_eq!(text(None), "workers: 2 of 4 cores now, it is not known how many are wanted: so it is");
    }

    #[test]
    fn the_size_of_a_worker_is_taken_from_those_that_are_there() {
        let mut found = status(&[], &[worker("a"), worker("b"), worker("c")]);
        found.workers[0].cores = 64.0;
        let of_status = ScaleArgs { worker_cores: None, ..args(0, None) };
        assert_eq!(Decision::of(&found, &of_status).unwrap().worker_cores, 8.0);
        found.workers.clear();
        assert!(Decision::of(&found, &of_status).unwrap_err().to_string().contains("--worker-cores"));
    }
}
