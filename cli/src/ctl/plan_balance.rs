//! What `spdl-ctl plan` reports about how even the steps of ranks are.

use serde::Serialize;
use spdl_job::{Job, SampleCostFile};
use spdl_order::CostSpread;

use super::{CtlError, dealt::PaddedPlaces, output::outln};

/// How even the steps of a job with `cost` are.
#[derive(Debug, Serialize)]
pub(crate) struct BalanceReport {
    /// The job's `cost`.
    cost: String,
    world: u32,
    /// The largest cost of a rank in a step, as a multiple of the mean over ranks; the mean of all steps.
    before: f64,
    balanced: f64,
    /// What no deal can be below.
    least: f64,
    /// For a job with a bucket: the share of places that are padding, if each rank pads its samples to its longest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    padding_without_bucket: Option<f64>,
}

/// Adds up how even steps are.
#[derive(Debug, Default)]
pub(crate) struct SpreadTally {
    steps: u64,
    sums: [f64; 3],
    /// With and without buckets.
    padding: [PaddedPlaces; 2],
}

impl SpreadTally {
    pub(crate) fn add(&mut self, CostSpread { before, balanced, least }: &CostSpread) {
        self.steps += 1;
        for (sum, of_step) in self.sums.iter_mut().zip([before, balanced, least]) {
            *sum += of_step;
        }
    }

    pub(crate) fn add_padding(&mut self, of_step: [PaddedPlaces; 2]) {
        for (sum, PaddedPlaces { places, filled }) in self.padding.iter_mut().zip(of_step) {
            sum.places += places;
            sum.filled += filled;
        }
    }

    /// Returns what is reported; `None` if the job has no `cost`.
    pub(crate) fn report(&self, job: &Job, world: u32) -> Option<BalanceReport> {
        let cost = job.cost.filter(|_| self.steps > 0)?.to_string();
        let [before, balanced, least] = self.sums.map(|sum| sum / self.steps as f64);
        let share = |PaddedPlaces { places, filled }: PaddedPlaces| 1.0 - filled as f64 / places.max(1) as f64;
        let [padding, padding_without_bucket] = self.padding.map(|places| (places.places > 0).then(|| share(places)));
        Some(BalanceReport { cost, world, before, balanced, least, padding, padding_without_bucket })
    }
}

impl BalanceReport {
    pub(crate) fn print(&self) -> Result<(), CtlError> {
        let Self { cost, world, before, balanced, least, padding, padding_without_bucket } = self;
        outln!("largest / mean cost       {before:.3} without `cost`, {balanced:.3} with {cost}, at {world} ranks")?;
        outln!("  no deal is below        {least:.3}; above 1, that is the largest sample of a step with small ones")?;
        let Some((with, without)) = padding.zip(*padding_without_bucket) else { return Ok(()) };
        let [with, without] = [with, without].map(|share| 100.0 * share);
        outln!("padding to the longest    {without:.1} % of a rank's batch without `bucket`, {with:.1} % with it")
    }
}

/// Reads what a sequence costs, as a job file has it; a word needs no quotes.
pub(crate) fn parse_cost(text: &str) -> Result<SampleCostFile, String> {
    /// A job file with this key alone.
    #[derive(serde::Deserialize)]
    struct CostAlone {
        cost: SampleCostFile,
    }
    let value = if text.starts_with('{') { text.to_owned() } else { format!("{text:?}") };
    let read = toml::from_str(&format!("cost = {value}"));
    read.map(|CostAlone { cost }| cost).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_as_in_a_job_file() {
        for text in ["tokens", "tokens^2", "pixels", "{ field = \"n\" }", "{ linear = 2, quadratic = 1, within = 8 }"] {
            assert!(parse_cost(text).is_ok(), "{text}");
        }
        for (text, problem) in [("frames", "expected \"tokens\""), ("{ cubic = 2 }", "cubic"), ("{ linear = ", "")] {
            let error = parse_cost(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
