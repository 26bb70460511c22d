//! What a run came to, as a text that outlives it: `spdl-ctl compare` reads two of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spdl_control::coordinator::SourceStatus;
use spdl_insight::{Diagnosis, Limit};
use spdl_job::Job;
use spdl_types::{Fingerprint, Stage, StageStats};

use crate::{Loader, Source, Stats};

/// The version of the text that [`RunReport`] is written as.
pub const REPORT_VERSION: u32 = 1;

/// Who measured a run. The figures of different ones are not of the same time: a loader counts from its first batch on, the coordinator
/// from the first rank that joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedBy {
    /// The loader of one rank.
    Loader,
    /// The coordinator, for all ranks of the run's newest session.
    Coordinator,
}

/// What a run came to: how fast it was, what a sample cost, and what limited it. In JSON it is one object; [`Loader::report`] makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The version of the text, [`REPORT_VERSION`].
    pub spdl_report: u32,
    /// Who measured it.
    pub reported_by: ReportedBy,
    /// The job's name.
    pub job: String,
    /// The run's name.
    pub run: String,
    /// Fingerprint of the dataset, and of the view of it or what packs its documents; of several, also of their weights and views.
    pub dataset: String,
    /// Fingerprint of each column, by name: what is decoded, and what is done with it.
    pub columns: BTreeMap<String, String>,
    /// The number of ranks.
    pub world: u32,
    /// Samples of a step over all ranks.
    pub global_batch: u32,
    /// The batches that a rank got.
    pub batches: u64,
    /// Those of them that [came again](Loader::repeat_batches).
    #[serde(default)]
    pub repeated_batches: u64,
    /// Seconds that were measured: of a loader since its first batch.
    pub seconds: f64,
    /// Batches per second of a rank; unknown before the second batch.
    pub batches_per_s: Option<f64>,
    /// Samples per second of all ranks; from a loader, as if all were as fast as its own.
    pub samples_per_s: Option<f64>,
    /// The fraction of that time in which the trainer waited for batches.
    pub waiting: Option<f64>,
    /// Bytes of the batches, for each sample.
    pub bytes_per_sample: Option<f64>,
    /// Seconds of CPU time for each sample, by stage: those of the stages that the one who measured knows.
    #[serde(default)]
    pub cpu_s_per_sample: BTreeMap<String, f64>,
    /// The fraction of the samples that were bad.
    pub bad_fraction: f64,
    /// What each source has given, if the job has several and the coordinator has measured: over all launches of the run, and the bad
    /// samples that any run of the job has found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// What limited it at the end.
    pub limit: Option<Limit>,
    /// The same in a sentence.
    pub verdict: Option<String>,
}

/// Returns the fingerprints of a job's dataset and of its columns, by which reports of other jobs are recognised: neither its name, its
/// seed nor its order is in them.
#[must_use]
pub fn report_content(job: &Job) -> (String, BTreeMap<String, String>) {
    fn text(value: &impl Serialize) -> String {
        Fingerprint::of(&serde_json::to_vec(value).expect("plain data serialises")).to_string()
    }
    let sources: Vec<_> = job.sources.iter().map(|source| (source.weight, &source.view)).collect();
    let dataset = match &job.stages[..] {
        [] => text(&(&job.dataset_fingerprint, &job.view, &job.sequence, sources)),
        stages => text(&(&job.dataset_fingerprint, &job.view, &job.sequence, sources, stages)),
    };
    (dataset, job.columns.iter().map(|column| (column.name.clone(), text(&(column, &job.mix)))).collect())
}

impl RunReport {
    /// Returns the report of a loader's statistics.
    fn of(stats: &Stats, job: &Job, (run, world, global_batch): (&str, u32, u32), found: Option<&Diagnosis>) -> Self {
        let (dataset, columns) = report_content(job);
        let seconds = stats.first_batch_s.map_or(0.0, |first_s| (stats.elapsed_s - first_s).max(0.0));
        let later = stats.batches.saturating_sub(1);
        let per_s = |count: f64| (later > 0 && seconds > 0.0).then(|| count / seconds);
        // The samples of the first batch were there when the time began.
        let samples = stats.samples as f64 * later as f64 / (stats.batches as f64).max(1.0);
        let delivered = (stats.samples as f64).max(1.0);
        Self {
            spdl_report: REPORT_VERSION,
            reported_by: ReportedBy::Loader,
            job: job.name.clone(),
            run: run.to_owned(),
            dataset,
            columns,
            world,
            global_batch,
            batches: stats.batches,
            repeated_batches: stats.repeated_batches,
            seconds,
            batches_per_s: per_s(later as f64),
            samples_per_s: per_s(samples * f64::from(world)),
            waiting: per_s(stats.waited_since_first_s).map(|part| part.min(1.0)),
            bytes_per_sample: (stats.samples > 0).then(|| stats.bytes as f64 / delivered),
            cpu_s_per_sample: cpu_s_per_sample(&stats.stages, stats.samples),
            bad_fraction: (stats.substituted + stats.masked) as f64 / delivered,
            sources: Vec::new(),
            limit: found.and_then(Diagnosis::limit),
            verdict: found.map(Diagnosis::verdict),
        }
    }
}

/// Returns the CPU time of each stage for a sample: for one that was decoded, as samples are decoded ahead of their delivery.
fn cpu_s_per_sample(stages: &[StageStats], delivered: u64) -> BTreeMap<String, f64> {
    let decoded = stages.iter().find(|stage| stage.stage == Stage::Decode).map_or(0, |stage| stage.items);
    let samples = if decoded > 0 { decoded } else { delivered };
    let known = stages.iter().filter(|stage| stage.cpu_ns > 0 && samples > 0);
    known.map(|stage| (stage.stage.name().to_owned(), stage.cpu_ns as f64 / 1e9 / samples as f64)).collect()
}

impl<S: Source> Loader<S> {
    /// Returns what this loader came to so far, in a run of this name. `found` is the newest diagnosis of the rank, if there is one:
    /// [`Loader::diagnoser`].
    #[must_use]
    pub fn report(&self, run: &str, found: Option<&Diagnosis>) -> RunReport {
        let session = self.session();
        RunReport::of(&self.stats(), self.job(), (run, session.world, session.global_batch), found)
    }
}

#[cfg(test)]
mod tests {
    use spdl_control::client::testing::job;

    use super::*;

    fn stats() -> Stats {
        let stage = |stage, items, cpu_ns| StageStats { items, cpu_ns, ..StageStats::new(stage) };
        Stats {
            batches: 5,
            samples: 60,
            masked: 3,
            bytes: 6_000,
            elapsed_s: 12.0,
            first_batch_s: Some(4.0),
            waited_s: 5.0,
            waited_since_first_s: 2.0,
            stages: vec![
                stage(Stage::Fetch, 7, 400_000_000),
                stage(Stage::Decode, 80, 1_600_000_000),
                stage(Stage::Copy, 5, 0),
            ],
            ..Stats::default()
        }
    }

    #[test]
    fn a_report_counts_since_the_first_batch_and_for_all_ranks() {
        let report = RunReport::of(&stats(), &job(), ("lr-1", 2, 24), None);
        assert_eq!((report.run.as_str(), report.job.as_str(), report.seconds), ("lr-1", job().name.as_str(), 8.0));
        assert_eq!((report.batches_per_s, report.samples_per_s), (Some(0.5), Some(12.0)));
        assert_eq!((report.waiting, report.bytes_per_sample, report.bad_fraction), (Some(0.25), Some(100.0), 0.05));
        let cpu: Vec<_> = report.cpu_s_per_sample.iter().map(|(stage, cpu_s)| (stage.as_str(), *cpu_s)).collect();
        assert_eq!(cpu, [("decode", 0.02), ("fetch", 0.005)], "for each sample that was decoded");
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RunReport>(&text).unwrap(), report);
    }

    #[test]
    fn before_the_second_batch_there_are_no_rates() {
        for batches in [0, 1] {
            let early = Stats { batches, samples: 12 * batches, stages: Vec::new(), ..stats() };
            let report = RunReport::of(&early, &job(), ("a", 1, 24), None);
            assert_eq!((report.batches_per_s, report.samples_per_s, report.waiting), (None, None, None));
            assert!(report.cpu_s_per_sample.is_empty());
        }
    }

    #[test]
    fn the_content_of_a_job_is_neither_its_name_nor_its_seed() {
        let plain = report_content(&job());
        assert_eq!(report_content(&Job { name: "b".to_owned(), seed: 99, epochs: 7, ..job() }), plain);
        let mut other = job();
        other.columns[0].from = vec!["other".to_owned()];
        assert_eq!(report_content(&other).0, plain.0);
        assert_ne!(report_content(&other).1, plain.1);
        let elsewhere = report_content(&Job { dataset_fingerprint: Fingerprint(99), ..job() });
        assert_eq!((elsewhere.0 == plain.0, &elsewhere.1), (false, &plain.1));
    }
}
