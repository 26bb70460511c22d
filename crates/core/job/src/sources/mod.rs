//! The `[[source]]` tables of a job file: several datasets with weights, blended to one stream; and its `[[stage]]` tables, which change
//! the weights.

mod limits;
mod packed;
mod stages;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spdl_order::{BLEND_PERIOD, DatasetFacts, MAX_SOURCES, OrderParams, WhenDone, blend_weights, samples_once_through};
use spdl_types::{Fingerprint, Position};

pub use self::{packed::PackedSource, stages::JobStageFile};
use super::{
    Column, ColumnKind, Job, JobError, JobFile, KeyProblem, OrderFile, Sequence, ViewFile, check::wrong,
    decoded_columns, is_name,
};

/// Upper limit of the samples of all sources, so that sums of ids cannot overflow.
const MAX_IDS: u64 = 1 << 62;

/// Names of the field that has the number of a record's class: where `pack` and `index` number classes, and as Parquet files have it.
pub const CLASS_NUMBERS: [&str; 3] = ["cls", "label", "labels"];

/// The problem of a job of several sources with a key that is for one dataset.
const ONE_DATASET: &str =
    "is for jobs of one `dataset`, and this one has `source`: leave it out, or give one `dataset`";

/// A dataset that gives a share of the samples of a job.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSourceFile {
    /// The name of the source in messages: 1 to 128 of `A-Z a-z 0-9 . _ -`. No other source of the job has it.
    pub name: String,
    /// The folder or URL of its dataset, as `dataset` of a job.
    pub dataset: String,
    /// Its share of the samples, compared with the weights of the other sources: any number above 0, or 0 if it begins with a stage.
    /// Shares are kept to one part of 65536.
    pub weight: f64,
    /// How often its samples may come in all epochs of the job, at least once. If they would come more often, the job is refused, or what
    /// `when_done` says happens. Default: as often as its weight says; it begins again each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epochs: Option<u32>,
    /// What happens when its samples have come `max_epochs` times. It needs `total_samples` or `total_tokens`. Default: a job in which they would come more
    /// often is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_done: Option<WhenDone>,
    /// Which samples of its dataset it gives. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewFile>,
    /// How well its samples are shuffled. Default: that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderFile>,
    /// For jobs with `sequence`: the fingerprint of the table of pools of its documents, which `spdl-ctl plan` prints. Default: set when the
    /// job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pools: Option<Fingerprint>,
}

/// A source of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSource {
    /// Its name in messages.
    pub name: String,
    /// URL or path of its dataset's folder.
    pub dataset: String,
    /// Fingerprint of its dataset's manifest.
    pub dataset_fingerprint: Fingerprint,
    /// Fingerprint of the samples of its dataset that it gives; `None` if these are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Fingerprint>,
    /// Number of samples that it gives before it begins again: those of its dataset or view, or the sequences that these are packed into.
    pub samples: u64,
    /// Number of samples of its dataset, in the view or not. The ids of those of the next source begin after as many.
    pub ids: u64,
    /// How many of 65536 samples it gives, up to the first stage with other weights.
    pub weight: u32,
    /// The number of lanes of its order.
    pub lanes: u32,
    /// The window of its order.
    pub window: u64,
    /// How often its samples may come in all epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epochs: Option<u32>,
    /// What happens then; `None` if it must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_done: Option<WhenDone>,
    /// How its documents are packed, if the samples of the job are sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedSource>,
}

/// The facts about the dataset of a source that creating a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceDatasetFacts {
    /// The facts about the samples that it gives.
    pub given: DatasetFacts,
    /// Number of samples of its dataset, in its view or not.
    pub ids: u64,
}

/// A dataset of a job: its only one, or that of a source.
#[derive(Clone, Copy, Debug)]
pub struct DatasetOfJob<'j> {
    /// The name of the source, if the job has several.
    pub source: Option<&'j str>,
    /// URL or path of its folder.
    pub url: &'j str,
    /// Fingerprint of its manifest.
    pub fingerprint: Fingerprint,
    /// Fingerprint of its samples that the job delivers; `None` if these are all.
    pub view: Option<Fingerprint>,
    /// Fingerprint of the table of pools that its documents are packed into, if the samples of the job are sequences.
    pub pools: Option<Fingerprint>,
}

impl JobSource {
    /// Returns the parameters of the source's order.
    #[must_use]
    pub const fn order(&self, job: OrderParams) -> OrderParams {
        OrderParams { lanes: self.lanes, window: self.window, ..job }
    }

    /// Returns its share of the samples, up to the first stage with other weights.
    #[must_use]
    pub fn share(&self) -> f64 {
        f64::from(self.weight) / f64::from(BLEND_PERIOD)
    }

    /// Checks what a peer may have sent.
    fn check(&self) -> Result<(), KeyProblem> {
        if self.dataset.is_empty() {
            return Err(("dataset", "is empty; give the folder or URL that `spdl-ctl pack` wrote".to_owned()));
        }
        if let Some(problem) = crate::secret_in(&self.dataset) {
            return Err(("dataset", problem.to_owned()));
        }
        if self.samples == 0 {
            return Err(("dataset", format!("`{}` has no samples", self.dataset)));
        }
        // A view can give samples several times, and a document can fill many sequences.
        let most = if self.view.is_none() && self.packed.is_none() { self.ids } else { MAX_IDS };
        if self.samples > most || self.ids > MAX_IDS {
            return Err(("dataset", format!("has {} samples of {}", self.samples, self.ids)));
        }
        for (key, value) in [("order.lanes", u64::from(self.lanes)), ("order.window", self.window)] {
            if value == 0 {
                return Err((key, "must be at least 1".to_owned()));
            }
        }
        if u64::from(self.lanes) > self.samples {
            let problem = format!("is {}, more than the {} samples of the source", self.lanes, self.samples);
            return Err(("order.lanes", problem));
        }
        if self.max_epochs == Some(0) {
            return Err(("max_epochs", "must be at least 1".to_owned()));
        }
        if self.when_done.is_some() && self.max_epochs.is_none() {
            return Err(("when_done", "needs `max_epochs`: how often its samples come before".to_owned()));
        }
        Ok(())
    }
}

/// Returns the most samples of which none of these sources gives any twice: until the first one has given all of its own.
fn once_through(sources: &[JobSource]) -> u64 {
    let sources: Vec<_> = sources.iter().map(|source| (source.weight, source.samples)).collect();
    samples_once_through(&sources).unwrap_or(0)
}

impl JobFile {
    /// Freezes the order for the datasets of the job: its only one, or those of its sources, in their order. What has views must have
    /// been evaluated.
    ///
    /// # Errors
    /// Those of [`freeze`](Self::freeze), of which some name a source, and [`JobError::Key`] if a source comes more often than it may.
    ///
    /// # Panics
    /// If there are not as many facts as datasets.
    pub fn freeze_all(&self, facts: &[SourceDatasetFacts]) -> Result<Job, JobError> {
        if self.source.is_empty() {
            let [facts] = facts else { panic!("facts of {} datasets for one", facts.len()) };
            return self.freeze(&facts.given);
        }
        let columns = self.check()?;
        let sources = self.read_sources(facts)?;
        for (source, of_source) in self.source.iter().zip(facts) {
            if source.view.as_ref().is_some_and(|view| view.samples.is_none()) {
                let problem = "is not evaluated: `spdl-ctl job submit` does that, or set `samples` to what \
                               `spdl-ctl plan` prints";
                return Err(wrong(&self.name, format!("source `{}`: `view`", source.name), problem));
            }
            if !of_source.given.has_classes {
                self.check_without_classes(&columns)?;
            }
        }
        self.check_pools_of_sources()?;
        let samples = self.total().unwrap_or_else(|| once_through(&sources));
        let (stages, sequence) = (self.read_stages()?, self.sequence_keys()?);
        let job = Job { columns, stages, ..self.job_of_sources(sources, samples, sequence) };
        let job = job.with_limits()?.counting_bad_by(self);
        job.check()?;
        job.check_max_epochs()?;
        Ok(job)
    }

    /// Returns the URL or path of the job's dataset, or of its first source's.
    #[must_use]
    pub fn first_dataset(&self) -> &str {
        self.source.first().map_or(&self.dataset, |source| &source.dataset)
    }

    /// Iterates over the datasets of the job, its only one or those of its sources, each by its URL or path with the fingerprints of its view
    /// and of its pools, if these are evaluated.
    pub fn datasets(&mut self) -> impl Iterator<Item = (&mut String, [Option<Fingerprint>; 2])> {
        let evaluated = |view: &Option<ViewFile>| view.as_ref().and_then(|view| view.samples);
        let pools = self.sequence.as_ref().and_then(|sequence| sequence.pools);
        let only = self.source.is_empty().then_some((&mut self.dataset, [evaluated(&self.view), pools]));
        let sources =
            self.source.iter_mut().map(move |source| (&mut source.dataset, [evaluated(&source.view), source.pools]));
        only.into_iter().chain(sources)
    }

    /// Returns the job of these sources, without its columns.
    pub(super) fn job_of_sources(&self, sources: Vec<JobSource>, samples: u64, sequence: Option<Sequence>) -> Job {
        let fingerprints: Vec<Fingerprint> = sources.iter().map(|source| source.dataset_fingerprint).collect();
        let fingerprint = Fingerprint::of(&serde_json::to_vec(&fingerprints).expect("plain data serialises"));
        let lanes = sources.iter().map(|source| source.lanes).max().unwrap_or(1);
        let window = sources.iter().map(|source| source.window).max().unwrap_or(1);
        let order = OrderParams { version: 1, lanes, window, shuffle: self.shuffle };
        let sequence = sequence.map(|sequence| Box::new(sequence.of_sources(&sources)));
        Job { sources, sequence, ..self.job(fingerprint, samples, order) }
    }

    /// Returns the sources for datasets with these facts.
    pub(super) fn read_sources(&self, facts: &[SourceDatasetFacts]) -> Result<Vec<JobSource>, JobError> {
        assert_eq!(facts.len(), self.source.len(), "facts of each source");
        if self.source.len() > MAX_SOURCES {
            let problem = format!("is there {} times; a job has at most {MAX_SOURCES} of them", self.source.len());
            return Err(wrong(&self.name, "`source`", problem));
        }
        for JobSourceFile { name, weight, .. } in &self.source {
            let later = |stage: &JobStageFile| stage.weights.get(name).is_some_and(|weight| *weight > 0.0);
            let may_be_none = self.stage.iter().any(later);
            if !(weight.is_finite() && *weight >= 0.0 && (*weight > 0.0 || may_be_none)) {
                let problem =
                    format!("is {weight}; it must be a number above 0, or 0 for a source that begins with a `stage`");
                return Err(wrong(&self.name, format!("source `{name}`: `weight`"), problem));
            }
        }
        let shares: Vec<f64> = self.source.iter().map(|source| source.weight).collect();
        if shares.iter().all(|share| *share == 0.0) {
            return Err(wrong(
                &self.name,
                "`source`",
                "has only weights of 0; give one at least a weight to begin with",
            ));
        }
        let weights = blend_weights(&shares);
        let stages = self.read_stages()?;
        let sources =
            self.source.iter().zip(facts).zip(weights).enumerate().map(|(number, ((file, facts), weight))| {
                let SourceDatasetFacts { given, ids } = *facts;
                let OrderFile { lanes, window } = self.order_of(file);
                let default = OrderParams::default_for(&given, self.global_batch, self.shuffle);
                // The blocks in use of all sources together are then about as many as those of one dataset.
                let samples_per_block = given.samples.div_ceil(given.blocks.max(1)).max(1);
                // Of a source that begins later, it is the first weight that counts, so that a stage more changes nothing before it.
                let all = std::iter::once(weight).chain(stages.iter().map(|stage| stage.weights[number]));
                let first = all.into_iter().find(|weight| *weight > 0).unwrap_or(weight);
                let of_share = u128::from(default.window) * u128::from(first) / u128::from(BLEND_PERIOD);
                let of_share = u64::try_from(of_share).unwrap_or(u64::MAX).max(samples_per_block.min(default.window));
                let most = u32::try_from(given.samples).unwrap_or(u32::MAX).max(1);
                JobSource {
                    name: file.name.clone(),
                    dataset: file.dataset.clone(),
                    dataset_fingerprint: given.fingerprint,
                    view: file.view.as_ref().and_then(|view| view.samples),
                    samples: given.samples,
                    ids,
                    weight,
                    lanes: lanes.unwrap_or(default.lanes).min(most),
                    window: window.unwrap_or(of_share),
                    max_epochs: file.max_epochs,
                    when_done: file.when_done,
                    packed: self.sequence.as_ref().map(|_| PackedSource {
                        pools: file.pools.unwrap_or(Fingerprint(0)),
                        documents: given.documents,
                        tokens: given.tokens,
                    }),
                }
            });
        Ok(sources.collect())
    }

    /// Returns the order of a source as the file has it.
    fn order_of(&self, source: &JobSourceFile) -> OrderFile {
        let (own, of_job) = (source.order.unwrap_or_default(), self.order.unwrap_or_default());
        OrderFile { lanes: own.lanes.or(of_job.lanes), window: own.window.or(of_job.window) }
    }

    /// Checks that the file has either a dataset or sources, and that their keys are right, as far as that is known without a dataset.
    pub(super) fn check_sources(&self) -> Result<(), JobError> {
        let refuse = |key: &str, problem: &str| Err(wrong(&self.name, format!("`{key}`"), problem));
        if self.source.is_empty() {
            if !self.stage.is_empty() {
                return refuse("stage", "is for jobs with `source`, whose weights it changes");
            }
            return Ok(());
        }
        if !self.dataset.is_empty() {
            return refuse(
                "dataset",
                "and `source` are both there; write the dataset as one more `source`, or leave one out",
            );
        }
        if self.view.is_some() {
            return refuse("view", "is for jobs of one `dataset`; write `view` in each `source`");
        }
        if self.mix.is_some() {
            return refuse("mix", ONE_DATASET);
        }
        let ends_early = |source: &JobSourceFile| matches!(source.when_done, Some(WhenDone::Stop | WhenDone::Reweight));
        if self.total().is_none() && self.source.iter().any(ends_early) {
            return refuse(
                "total_samples",
                "is missing; a job with `when_done` needs the length of an epoch: the most that comes of one",
            );
        }
        if self.total().is_none() && !self.stage.is_empty() {
            return refuse(
                "total_samples",
                "is missing; a job with `stage` needs the length of an epoch, so that a stage more does not change it",
            );
        }
        self.check_packed_sources()?;
        for JobSourceFile { name, view, .. } in &self.source {
            if let Some(view) = view {
                let of_source = |(key, problem)| wrong(&self.name, format!("source `{name}`: `view.{key}`"), problem);
                view.check().map_err(of_source)?;
            }
        }
        Ok(())
    }
}

impl Job {
    /// Returns the datasets of the job: its only one, or those of its sources.
    #[must_use]
    pub fn datasets(&self) -> Vec<DatasetOfJob<'_>> {
        if self.sources.is_empty() {
            let (url, fingerprint, view) = (self.dataset.as_str(), self.dataset_fingerprint, self.view);
            let pools = self.sequence.as_ref().map(|sequence| sequence.pools);
            return vec![DatasetOfJob { source: None, url, fingerprint, view, pools }];
        }
        self.sources
            .iter()
            .map(|source| DatasetOfJob {
                source: Some(&source.name),
                url: &source.dataset,
                fingerprint: source.dataset_fingerprint,
                view: source.view,
                pools: source.packed.map(|packed| packed.pools),
            })
            .collect()
    }

    /// Returns the number below which all ids of the datasets' samples are, if the job says it: of a view and of documents in sequences they
    /// are those of a dataset that may have more.
    #[must_use]
    pub fn id_bound(&self) -> Option<u64> {
        match (self.sources.is_empty(), self.view, &self.sequence) {
            (true, None, None) => Some(self.samples),
            (true, ..) => None,
            (false, ..) => Some(self.sources.iter().map(|source| source.ids).sum()),
        }
    }

    /// Iterates over the sources, with the ids of the samples of their datasets, by which bad ones are counted. Where samples of the job are
    /// sequences, these are documents.
    pub fn source_ids(&self) -> impl Iterator<Item = (&JobSource, Range<u64>)> {
        self.sources.iter().scan(0, |end, source| {
            let first = *end;
            *end += source.ids;
            Some((source, first..*end))
        })
    }

    /// Returns the source whose dataset has a sample; `None` for a job of one dataset, and for a sample that no source has.
    #[must_use]
    pub fn source_of(&self, spdl_types::SampleId(id): spdl_types::SampleId) -> Option<&JobSource> {
        self.source_ids().find(|(_, ids)| ids.contains(&id)).map(|(source, _)| source)
    }

    /// Returns the first column that has numbers of the dataset's classes: which of them a number means depends on the dataset.
    #[must_use]
    pub fn column_of_classes(&self) -> Option<&Column> {
        let has_numbers = |column: &&Column| {
            let is_label = column.from.iter().any(|field| CLASS_NUMBERS.contains(&field.as_str()));
            column.reads_classes() || (is_label && matches!(column.kind, ColumnKind::Int(_)))
        };
        decoded_columns(&self.columns).find(has_numbers)
    }

    /// Returns the error of a job with a column of classes, of which two sources list others.
    #[must_use]
    pub fn other_classes(&self, column: &Column, sources: [(&JobSource, String); 2]) -> JobError {
        let [(first, classes), (other, others)] = sources;
        let problem = format!(
            "has numbers of classes, and source `{}` lists {classes} where source `{}` lists {others}, not the same ones: index or pack one \
             with `--classes-from` the other",
            first.name, other.name
        );
        wrong(&self.name, format!("column `{}`", column.name), problem)
    }

    /// Returns the dataset, or the names of the sources with their shares at the beginning, as messages show it, without secrets.
    #[must_use]
    pub fn dataset_text(&self) -> String {
        self.dataset_text_at(Position::START)
    }

    /// Returns the dataset, or the names of the sources with the shares that they have at a position, as messages show it, without
    /// secrets.
    #[must_use]
    pub fn dataset_text_at(&self, at: Position) -> String {
        if self.sources.is_empty() { crate::redact(&self.dataset).into_owned() } else { self.shares_text(at) }
    }

    /// Checks the sources of a job, as far as it does not matter how many samples it delivers.
    pub(super) fn check_sources(&self) -> Result<(), JobError> {
        let Self { name, sources, view, mix, dataset, .. } = self;
        let one = [("dataset", !dataset.is_empty()), ("view", view.is_some()), ("mix", mix.is_some())];
        if let Some((key, _)) = one.into_iter().find(|(_, is_there)| *is_there) {
            return Err(wrong(name, format!("`{key}`"), ONE_DATASET));
        }
        for (number, source) in sources.iter().enumerate() {
            if !is_name(&source.name) {
                let of_source: String = source.name.chars().take(128).collect();
                let problem = "must be 1 to 128 of A-Z a-z 0-9 . _ -";
                return Err(wrong(name, format!("source `{of_source}`: `name`"), problem));
            }
            if sources[..number].iter().any(|other| other.name == source.name) {
                return Err(wrong(name, format!("source `{}`", source.name), "appears twice"));
            }
            let of_source = |(key, problem)| wrong(name, format!("source `{}`: `{key}`", source.name), problem);
            source.check().map_err(of_source)?;
        }
        if sources.len() > MAX_SOURCES || !is_whole(sources.iter().map(|source| source.weight)) {
            let problem = format!("must be there 1 to {MAX_SOURCES} times, with weights of {BLEND_PERIOD} in all");
            return Err(wrong(name, "`source`", problem));
        }
        self.check_stages()?;
        self.check_packed()?;
        let is_too_large = |count: fn(&JobSource) -> u64| {
            sources.iter().try_fold(0_u64, |sum, source| sum.checked_add(count(source))).is_none_or(|sum| sum > MAX_IDS)
        };
        let sequences = |source: &JobSource| source.packed.map_or(0, |_| source.samples);
        if is_too_large(|source| source.ids) || is_too_large(sequences) {
            return Err(wrong(name, "`source`", "has more than 2^62 samples in all"));
        }
        Ok(())
    }
}

/// Returns whether these weights are those of a period.
fn is_whole(weights: impl IntoIterator<Item = u32>) -> bool {
    weights.into_iter().try_fold(0_u32, u32::checked_add) == Some(BLEND_PERIOD)
}

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod stage_tests;
#[cfg(test)]
mod tests;
