//! The figures of one run or of two side by side.

use std::collections::BTreeSet;

use serde::Serialize;
use spdl_client::RunReport;

use super::threshold::{JudgedFigure, Thresholds};
use crate::ctl::{
    report::{bytes, rounded},
    status,
    table::{Alignment, Table, wrapped},
};

/// How a figure is written, and how a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Bytes,
    CpuSeconds,
    /// A fraction, whose change is a difference.
    Part,
}

/// A figure of both runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ComparedFigure {
    /// Its name in JSON, and for people what stands before the two values.
    pub(super) name: &'static str,
    /// The stage, if it is the CPU time of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    base: Option<f64>,
    run: Option<f64>,
    /// By what fraction the second one is larger; of a fraction, by how much.
    change: Option<f64>,
    /// By what fraction it may be worse.
    at_most: Option<f64>,
    pub(super) is_regression: bool,
    #[serde(skip)]
    unit: Unit,
    #[serde(skip)]
    judged: Option<JudgedFigure>,
    #[serde(skip)]
    label: &'static str,
}

impl ComparedFigure {
    fn new(
        (name, label, unit): (&'static str, &'static str, Unit),
        [base, run]: [Option<f64>; 2],
        judged: Option<(JudgedFigure, &Thresholds)>,
    ) -> Self {
        let change = base.zip(run).and_then(|(base, run)| match unit {
            Unit::Part => Some(run - base),
            _ if base > 0.0 => Some(run / base - 1.0),
            _ => None,
        });
        let at_most = judged.and_then(|(figure, thresholds)| thresholds.of(figure));
        let judged = judged.map(|(figure, _)| figure);
        let worse = change.map(|change| if judged == Some(JudgedFigure::Rate) { -change } else { change });
        let is_regression = worse.zip(at_most).is_some_and(|(worse, at_most)| worse > at_most);
        Self { name, stage: None, base, run, change, at_most, is_regression, unit, judged, label }
    }

    /// Returns whether it is judged, and known of both.
    pub(super) const fn is_judged(&self) -> bool {
        self.at_most.is_some() && self.change.is_some()
    }

    /// Returns whether it is judged by its name, and not known of both.
    pub(super) fn is_missed(&self, thresholds: &Thresholds) -> bool {
        self.change.is_none() && self.judged.is_some_and(|figure| thresholds.names(figure))
    }

    /// Describes a regression.
    pub(super) fn sentence(&self) -> String {
        let unit = if self.unit == Unit::Part { "percentage points" } else { "%" };
        let (change, at_most) = (self.change.unwrap_or_default(), self.at_most.unwrap_or_default());
        let direction = if change < 0.0 { "lower" } else { "higher" };
        format!(
            "{} is {:.1} {unit} {direction}, and {} {unit} are allowed",
            self.label,
            100.0 * change.abs(),
            100.0 * at_most
        )
    }

    fn cells(&self) -> [String; 4] {
        let name = self.stage.as_ref().map_or_else(|| self.label.to_owned(), |stage| format!("  {stage}"));
        let change = self.change.map_or_else(String::new, |change| match self.unit {
            Unit::Part => format!("{:+.1} points", 100.0 * change),
            _ => format!("{:+.1} %", 100.0 * change),
        });
        [name, self.unit.text(self.base), self.unit.text(self.run), change]
    }
}

impl Unit {
    fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else { return "-".to_owned() };
        match self {
            Self::PerSecond => rounded(value),
            Self::Bytes => bytes(value.round() as u64),
            Self::CpuSeconds => format!("{:.3} ms", 1e3 * value),
            Self::Part => format!("{:.1} %", 100.0 * value),
        }
    }
}

/// Returns the figures of both runs, in the order in which they are shown.
pub(super) fn compared(base: &RunReport, run: &RunReport, thresholds: &Thresholds) -> Vec<ComparedFigure> {
    let both = |value: fn(&RunReport) -> Option<f64>| [value(base), value(run)];
    let judged = |figure| Some((figure, thresholds));
    let mut figures = vec![
        ComparedFigure::new(("batches_per_s", "batches/s", Unit::PerSecond), both(|report| report.batches_per_s), None),
        ComparedFigure::new(
            ("samples_per_s", "samples/s", Unit::PerSecond),
            both(|report| report.samples_per_s),
            judged(JudgedFigure::Rate),
        ),
        ComparedFigure::new(
            ("waiting", "waiting", Unit::Part),
            both(|report| report.waiting),
            judged(JudgedFigure::Waiting),
        ),
        ComparedFigure::new(
            ("bytes_per_sample", "bytes/sample", Unit::Bytes),
            both(|report| report.bytes_per_sample),
            judged(JudgedFigure::Bytes),
        ),
        ComparedFigure::new(
            ("cpu_s_per_sample", "CPU/sample", Unit::CpuSeconds),
            both(cpu_s_per_sample),
            judged(JudgedFigure::Cpu),
        ),
    ];
    let stages: BTreeSet<&String> = base.cpu_s_per_sample.keys().chain(run.cpu_s_per_sample.keys()).collect();
    figures.extend(stages.into_iter().map(|stage| {
        let of = |report: &RunReport| report.cpu_s_per_sample.get(stage).copied();
        let figure = ("cpu_s_per_sample_of_stage", "CPU/sample", Unit::CpuSeconds);
        ComparedFigure { stage: Some(stage.clone()), ..ComparedFigure::new(figure, [of(base), of(run)], None) }
    }));
    let bad = both(|report| Some(report.bad_fraction));
    figures.push(ComparedFigure::new(("bad_fraction", "bad samples", Unit::Part), bad, judged(JudgedFigure::Bad)));
    figures
}

/// Returns the CPU time of a sample in all stages that are known.
fn cpu_s_per_sample(report: &RunReport) -> Option<f64> {
    (!report.cpu_s_per_sample.is_empty()).then(|| report.cpu_s_per_sample.values().sum())
}

/// Formats the figures of two runs, which are called by these names, and what limits each.
pub(super) fn lines(
    [(base_name, base), (run_name, run)]: [(&str, &RunReport); 2],
    figures: &[ComparedFigure],
) -> Vec<String> {
    let header = [
        ("", Alignment::Left),
        (base_name, Alignment::Right),
        (run_name, Alignment::Right),
        ("CHANGE", Alignment::Right),
    ];
    let mut table = Table::new(header, "");
    let row = |name: &str, value: fn(&RunReport) -> String| [name.to_owned(), value(base), value(run), String::new()];
    table.push(row("job", |report| report.job.clone()), String::new());
    table.push(row("run", |report| report.run.clone()), String::new());
    table.push(row("batches", batches), String::new());
    table.push(row("measured", |report| format!("{:.1} s", report.seconds)), String::new());
    for figure in figures {
        table.push(figure.cells(), if figure.is_regression { "worse than allowed".to_owned() } else { String::new() });
    }
    table.push(row("limit", limit), String::new());
    let verdicts = [(base_name, base), (run_name, run)].into_iter();
    let verdicts = verdicts.filter_map(|(name, report)| Some(format!("{name}: {}", report.verdict.as_ref()?)));
    table.lines().into_iter().chain(verdicts.flat_map(|verdict| wrapped(&verdict))).collect()
}

/// Formats the figures of one run.
pub(crate) fn lines_of_one(report: &RunReport) -> Vec<String> {
    let figures = compared(report, report, &Thresholds::new(&[]));
    let shown = figures.iter().map(|figure| {
        let [name, value, ..] = figure.cells();
        (name, value)
    });
    let about = [
        ("job", report.job.clone()),
        ("run", report.run.clone()),
        ("ranks", report.world.to_string()),
        ("batches", batches(report)),
        ("measured", format!("{:.1} s", report.seconds)),
    ];
    let mut table = Table::new([("", Alignment::Left), ("", Alignment::Right)], "");
    for (name, value) in about.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(shown) {
        table.push([name, value], String::new());
    }
    for source in &report.sources {
        table.push([format!("source {}", source.name), status::source_text(source)], String::new());
    }
    table.push(["limit".to_owned(), limit(report)], String::new());
    let verdict = report.verdict.iter().flat_map(|verdict| wrapped(verdict));
    table.lines().into_iter().skip(1).chain(verdict).collect()
}

fn batches(report: &RunReport) -> String {
    match report.repeated_batches {
        0 => report.batches.to_string(),
        repeated => format!("{}, {repeated} of them repeated", report.batches),
    }
}

fn limit(report: &RunReport) -> String {
    report.limit.map_or("-", spdl_insight::Limit::name).to_owned()
}
