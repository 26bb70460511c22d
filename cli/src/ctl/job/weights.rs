//! `spdl-ctl job weights`: other weights of a job's sources from a sample on, while ranks train or not.

use std::collections::BTreeMap;

use clap::Args;
use spdl_control::messages::{Refusal, ToCoordinator};
use spdl_job::Job;

use super::{
    describe,
    place::{self, ChangePlace},
};
use crate::ctl::{CtlError, coordinator::Connection, output::outln, report};

/// Arguments of `job weights`.
#[derive(Debug, Args)]
pub(super) struct WeightsArgs {
    /// The name of the job.
    name: String,
    /// The weights of all sources, such as photos=0.4,drawings=0.6; 0 for one that gives no samples.
    #[arg(long, value_name = "SOURCE=WEIGHT", value_delimiter = ',', required = true, value_parser = parse_weight)]
    set: Vec<(String, f64)>,
    /// Where they begin: `next`, the first sample that no rank has reached; a number of samples, counted over all epochs; or EPOCH:OFFSET.
    /// Stages that begin there or later are removed.
    #[arg(long, value_name = "WHERE", default_value = "next", value_parser = ChangePlace::parse)]
    at: ChangePlace,
    #[command(flatten)]
    connection: Connection,
}

fn parse_weight(text: &str) -> Result<(String, f64), String> {
    let (name, weight) = text.split_once('=').ok_or("write SOURCE=WEIGHT, such as photos=0.4")?;
    let weight = weight.parse().map_err(|_| format!("`{weight}` is not a number"))?;
    Ok((name.to_owned(), weight))
}

/// Runs `job weights`.
pub(super) async fn run(args: WeightsArgs) -> Result<(), CtlError> {
    let WeightsArgs { name, set, at, connection } = args;
    let mut by_name = BTreeMap::new();
    for (source, weight) in set {
        if by_name.insert(source.clone(), weight).is_some() {
            let cause = format!("`--set` has source `{source}` twice");
            return Err(Refusal::JobInvalid { job: name, cause }.into());
        }
    }
    let job = describe(&connection, &name).await?;
    let weights = job.weights_by_name(&by_name)?;
    let from = at.samples_before(&job);
    let request = ToCoordinator::SetWeights { job: name.clone(), from, weights: weights.clone() };
    place::change(&connection, &request).await?;
    let job = describe(&connection, &name).await?;
    for (what, text) in report::source_texts(&job) {
        outln!("{what} {text}")?;
    }
    if let Some(since) = job.weights_since(&weights) {
        outln!(
            "\nthe file of job `{name}` needs the same, or it cannot be submitted again:\n\n{}",
            table_of(&job, since, &by_name)
        )?;
    }
    Ok(())
}

/// Returns what a job file needs for the stage of a job that begins at a sample.
fn table_of(job: &Job, from: u64, weights: &BTreeMap<String, f64>) -> String {
    let weights: Vec<String> = weights.iter().map(|(name, weight)| format!("{} = {weight}", key(name))).collect();
    format!("total_samples = {}\n\n[[stage]]\nfrom = {from}\nweights = {{ {} }}", job.samples, weights.join(", "))
}

/// Returns a name as a key of TOML, which has no dots outside of quotes.
fn key(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_and_what_is_none_is_named() {
        assert_eq!(parse_weight("web=0.4"), Ok(("web".to_owned(), 0.4)));
        assert_eq!(parse_weight("web=a").unwrap_err(), "`a` is not a number");
        assert!(parse_weight("web").unwrap_err().contains("SOURCE=WEIGHT"));
        assert_eq!([key("a-b_1"), key("a.b")], ["a-b_1", "\"a.b\""]);
    }
}
