//! What the samples of a job are, on its dataset.

use std::sync::Arc;

use spdl_job::{Job, JobError, SourceDatasetFacts};
use spdl_order::{
    BlendSource, DatasetFacts, OrderParams, Plan, PlanError,
    view::{SampleSet, ViewSamples},
};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use crate::{
    manifest::{Manifest, TokenizerFacts},
    sequences::{SequenceTable, open_sequences},
    store::DatasetStore,
    view::open_view,
};

/// What the samples of a job are.
#[derive(Clone, Debug, Default)]
pub enum JobSamples {
    /// Those of the dataset.
    #[default]
    All,
    /// Those that its view keeps.
    View(ViewSamples),
    /// Sequences of documents, which are the dataset's samples or those of a view.
    Sequences(SequenceTable),
}

impl JobSamples {
    /// Reads what was evaluated of a job: its view and its pools, if it has them. `at` is the folder of the manifest.
    ///
    /// # Errors
    /// If it cannot be read, or is of another dataset or view.
    pub async fn open(
        at: &DatasetStore,
        manifest: &Manifest,
        view: Option<Fingerprint>,
        pools: Option<Fingerprint>,
    ) -> Result<Self, StoreError> {
        let view = match view {
            Some(view) => Some(open_view(at, manifest, view).await?),
            None => None,
        };
        match pools {
            Some(pools) => {
                let documents = view.map(|view| view.kept().clone());
                open_sequences(at, manifest, documents, pools).await.map(Self::Sequences)
            }
            None => Ok(view.map_or(Self::All, Self::View)),
        }
    }

    /// Returns what the view keeps, if there is one: samples, or documents.
    #[must_use]
    pub fn kept(&self) -> Option<&Arc<SampleSet>> {
        match self {
            Self::All => None,
            Self::View(view) => Some(view.kept()),
            Self::Sequences(table) => table.view(),
        }
    }

    /// Returns the view, if there is one: of samples, or of documents.
    #[must_use]
    pub fn view(&self) -> Option<ViewSamples> {
        match self {
            Self::All => None,
            Self::View(view) => Some(view.clone()),
            Self::Sequences(table) => table.view().cloned().map(ViewSamples::Set),
        }
    }

    /// Returns the sequences, if samples are sequences.
    #[must_use]
    pub const fn sequences(&self) -> Option<&SequenceTable> {
        if let Self::Sequences(table) = self { Some(table) } else { None }
    }

    /// Returns the facts that creating a job needs: about the samples, and the blocks or pools that hold them.
    #[must_use]
    pub fn facts(&self, manifest: &Manifest) -> DatasetFacts {
        let mut facts = manifest.facts();
        if let Some(kept) = self.kept() {
            let has_samples = |block: &u32| !manifest.kept_samples(*block, Some(kept)).is_empty();
            let blocks = (0..manifest.block_count()).filter(has_samples).count() as u64;
            let samples = self.view().map_or(0, |view| view.in_epoch());
            facts = DatasetFacts { samples, documents: kept.len(), blocks, ..facts };
        }
        self.sequences().map_or(facts, |table| table.facts(facts))
    }

    /// Returns the number of samples of each block of the plan: those of the dataset's blocks, or the sequences of pools of them.
    fn block_samples(&self, manifest: &Manifest) -> Vec<u32> {
        self.sequences().map_or_else(|| manifest.block_samples(), |table| table.pools().sequences().to_vec())
    }

    /// Returns the samples of the plan's blocks that come, if not all do.
    fn chosen(&self) -> Option<&ViewSamples> {
        // Of documents, those of the view alone are packed.
        if let Self::View(view) = self { Some(view) } else { None }
    }

    /// Returns the plan of a job with this seed and order. Its blocks are those of the dataset, or pools of them.
    ///
    /// # Errors
    /// [`PlanError`] if there is none.
    pub fn plan(&self, manifest: &Manifest, seed: u64, order: OrderParams) -> Result<Plan, PlanError> {
        let blocks = self.block_samples(manifest);
        match self.chosen() {
            None => Plan::new(&blocks, seed, order),
            Some(view) => Plan::of_view(&blocks, view, seed, order),
        }
    }
}

/// The datasets of a job, each with the samples of it that are the job's: its only dataset, or those of its sources in their order.
pub type DatasetsOfJob<'d> = [(&'d Manifest, &'d JobSamples)];

/// Returns the facts about the datasets of a job that creating it needs.
#[must_use]
pub fn facts_of(datasets: &DatasetsOfJob<'_>) -> Vec<SourceDatasetFacts> {
    let facts = |(manifest, samples): &(&Manifest, &JobSamples)| SourceDatasetFacts {
        given: samples.facts(manifest),
        ids: manifest.samples(),
    };
    datasets.iter().map(facts).collect()
}

/// Returns the plan of a job on its datasets.
///
/// # Errors
/// [`PlanError`] if there is none.
///
/// # Panics
/// If these are not as many as the datasets of the job.
pub fn plan_of(job: &Job, datasets: &DatasetsOfJob<'_>) -> Result<Plan, PlanError> {
    if job.sources.is_empty() {
        let [(manifest, samples)] = datasets else { panic!("{} datasets for one", datasets.len()) };
        return samples.plan(manifest, job.seed, job.order)?.redacting(&job.redactions);
    }
    assert_eq!(datasets.len(), job.sources.len(), "datasets of each source");
    let blocks: Vec<Vec<u32>> = datasets.iter().map(|(manifest, samples)| samples.block_samples(manifest)).collect();
    let sources = job.sources.iter().zip(datasets).zip(&blocks).map(|((source, (_, samples)), block_samples)| {
        BlendSource { block_samples, view: samples.chosen(), weight: source.weight, order: source.order(job.order) }
    });
    Plan::of_sources(&sources.collect::<Vec<_>>(), &job.stages, job.samples, job.seed)?.redacting(&job.redactions)
}

/// What is compared of the classes of two datasets: their number, and a fingerprint of their names in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassList {
    count: usize,
    names: Fingerprint,
}

impl ClassList {
    /// Returns those of a dataset.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        // No name contains a control character, so two different lists never give the same text.
        let names = manifest.classes().fold(String::new(), |names, name| names + name + "\n");
        Self { count: manifest.classes().len(), names: Fingerprint::of(names.as_bytes()) }
    }
}

/// Checks that the datasets of a job's sources list the same classes, if a column has numbers of them: a number would otherwise mean
/// one class in one source and another one in the next.
///
/// # Errors
/// [`JobError::Key`] for the first source with other classes.
pub fn check_classes(job: &Job, classes: &[ClassList]) -> Result<(), JobError> {
    let Some(column) = job.column_of_classes().filter(|_| job.sources.len() > 1) else { return Ok(()) };
    let mut sources = job.sources.iter().zip(classes);
    let Some((first, of_first)) = sources.next() else { return Ok(()) };
    match sources.find(|(_, classes)| *classes != of_first) {
        Some((other, of_other)) => {
            let list = |classes: &ClassList| match classes.count {
                0 => "no classes".to_owned(),
                1 => "1 class".to_owned(),
                count => format!("{count} classes"),
            };
            Err(job.other_classes(column, [(first, list(of_first)), (other, list(of_other))]))
        }
        None => Ok(()),
    }
}

/// Checks that the datasets of a job's sources were tokenized with the same tokenizer, if a column has their tokens: an id would otherwise
/// mean one text in one source and another one in the next. A dataset that was tokenized elsewhere names none, and goes with any.
///
/// # Errors
/// [`JobError::Key`] for the first source with another tokenizer.
pub fn check_tokenizers(job: &Job, tokenizers: &[Option<TokenizerFacts>]) -> Result<(), JobError> {
    let Some(column) = job.column_of_tokens() else { return Ok(()) };
    let mut sources = job.sources.iter().zip(tokenizers).filter_map(|(source, of)| Some((source, (*of)?)));
    let Some((first, of_first)) = sources.next() else { return Ok(()) };
    match sources.find(|(_, of)| of.fingerprint != of_first.fingerprint) {
        Some((other, of_other)) => {
            let named = |of: TokenizerFacts| format!("tokenizer {} of {} ids", of.fingerprint, of.vocab);
            Err(job.other_tokenizers(column, [(first, named(of_first)), (other, named(of_other))]))
        }
        None => Ok(()),
    }
}
