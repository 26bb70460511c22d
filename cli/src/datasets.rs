//! The datasets of a job, open, with what was evaluated of the job on each: its only dataset, or those of its sources.

use std::{ops::Range, sync::Arc};

use spdl_dataset::{DatasetError, Misfits, misfits, misfits_of_sounds};
use spdl_job::{Job, JobError, JobFile};
use spdl_order::{Plan, PlanError};
use spdl_shard::{
    manifest::Manifest,
    samples::{ClassList, JobSamples, check_classes, check_tokenizers, facts_of, plan_of},
    sizes::{SizeTable, open_sizes},
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::{Fingerprint, SampleId};
use spdl_worker::feed::StoreAccess;

use crate::evaluated::{EarlierPackings, EvaluateError, EvaluatedJob, OnEvaluation, evaluate_job};

/// A dataset of a job, open, with what was evaluated of the job on it, or read.
#[derive(Clone, Debug)]
pub(crate) struct EvaluatedDataset {
    pub(crate) store: DatasetStore,
    pub(crate) manifest: Manifest,
    pub(crate) evaluated: EvaluatedJob,
}

/// The datasets of a job, in the order of its sources.
#[derive(Clone, Debug)]
pub(crate) struct EvaluatedDatasets(Vec<EvaluatedDataset>);

/// Why a frozen job cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrozenError {
    /// A dataset cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A dataset is another one now.
    #[error("dataset `{dataset}` has fingerprint {found}, the job has {expected}")]
    Differs {
        /// Its URL.
        dataset: String,
        /// Fingerprint of its manifest.
        found: Fingerprint,
        /// Fingerprint in the job.
        expected: Fingerprint,
    },
}

impl EvaluatedDatasets {
    /// Opens the datasets of a job file, evaluates its views and its sequences, and notes their fingerprints in the file, those of datasets
    /// whose recordings operations take, and the versions that the datasets have now. Calls `warn` with what the user should know.
    ///
    /// # Errors
    /// If the job is not valid, or a dataset cannot be read.
    pub(crate) async fn open(
        file: &mut JobFile,
        earlier: EarlierPackings,
        progress: OnEvaluation<'_>,
        warn: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Self, EvaluateError> {
        file.check()?;
        note_sounds(file).await?;
        if file.source.is_empty() {
            let (store, manifest) = opened(&file.dataset).await?;
            file.dataset = store.pinned_url(&file.dataset);
            let evaluated = evaluate_job(file, None, (&store, &manifest), earlier, (progress, warn)).await?;
            return Ok(Self(vec![EvaluatedDataset { store, manifest, evaluated }]));
        }
        let mut datasets = Vec::with_capacity(file.source.len());
        for number in 0..file.source.len() {
            let source = &mut file.source[number];
            let (store, manifest) = opened(&source.dataset).await?;
            source.dataset = store.pinned_url(&source.dataset);
            let evaluated = evaluate_job(file, Some(number), (&store, &manifest), earlier, (progress, warn)).await?;
            datasets.push(EvaluatedDataset { store, manifest, evaluated });
        }
        Ok(Self(datasets))
    }

    /// Opens the datasets of a job file of which everything is evaluated, and notes in it which datasets those are whose recordings operations
    /// take. What cannot be read of that is left out.
    ///
    /// # Errors
    /// If a dataset cannot be read.
    pub(crate) async fn open_noted(file: &mut JobFile) -> Result<Self, DatasetError> {
        // What is wrong with them is found when the job is created.
        drop(note_sounds(file).await);
        let sizes = file.cost.as_ref().and_then(|cost| cost.table().sizes);
        let mut datasets = Vec::new();
        for (url, [view, pools]) in file.datasets() {
            let (store, manifest) = opened(url).await?;
            let samples = JobSamples::open(&store, &manifest, view, pools).await.unwrap_or_default();
            let sizes = read_sizes(&store, &manifest, sizes).await.unwrap_or_default();
            let evaluated = EvaluatedJob { samples, made: None, sizes };
            datasets.push(EvaluatedDataset { store, manifest, evaluated });
        }
        Ok(Self(datasets))
    }

    /// Opens the datasets of a job that was frozen.
    ///
    /// # Errors
    /// If one cannot be read, or is another one now.
    pub(crate) async fn open_frozen(job: &Job) -> Result<Self, FrozenError> {
        let sizes = job.cost.and_then(|cost| cost.measured?.sizes);
        let mut datasets = Vec::new();
        for dataset in job.datasets() {
            let store = DatasetStore::open(dataset.url)?;
            let manifest = store.manifest().await?;
            let (found, expected) = (manifest.fingerprint(), dataset.fingerprint);
            if found != expected {
                let dataset = spdl_job::redact(dataset.url).into_owned();
                return Err(FrozenError::Differs { dataset, found, expected });
            }
            let samples = JobSamples::open(&store, &manifest, dataset.view, dataset.pools).await?;
            let sizes = read_sizes(&store, &manifest, sizes).await?;
            let evaluated = EvaluatedJob { samples, made: None, sizes };
            datasets.push(EvaluatedDataset { store, manifest, evaluated });
        }
        Ok(Self(datasets))
    }

    /// Iterates over the datasets.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &EvaluatedDataset> {
        self.0.iter()
    }

    /// Returns the first dataset: the only one, unless the job has sources.
    pub(crate) fn first(&self) -> &EvaluatedDataset {
        &self.0[0]
    }

    fn with_samples(&self) -> Vec<(&Manifest, &JobSamples)> {
        self.0.iter().map(|dataset| (&dataset.manifest, &dataset.evaluated.samples)).collect()
    }

    /// Freezes a job for the datasets.
    ///
    /// # Errors
    /// If a key is wrong, or the sources list different classes of which a column has numbers, or have the tokens of different tokenizers.
    pub(crate) fn freeze(&self, file: &JobFile) -> Result<Job, JobError> {
        let job = file.freeze_all(&facts_of(&self.with_samples()))?;
        let classes: Vec<ClassList> = self.0.iter().map(|dataset| ClassList::of(&dataset.manifest)).collect();
        check_classes(&job, &classes)?;
        let tokenizers: Vec<_> = self.0.iter().map(|dataset| dataset.manifest.tokenizer()).collect();
        check_tokenizers(&job, &tokenizers)?;
        Ok(job)
    }

    /// Returns the plan of a job.
    ///
    /// # Errors
    /// [`PlanError`] if it has none.
    pub(crate) fn plan(&self, job: &Job) -> Result<Plan, PlanError> {
        let plan = plan_of(job, &self.with_samples())?;
        Ok(match &self.first().evaluated.sizes {
            Some(sizes) => sizes.bucketed(plan, job),
            None => plan,
        })
    }

    /// Looks for what a job names and a dataset does not have, and for what most samples lack. Of several sources, the error and the
    /// warnings begin with the name of the source. Datasets whose recordings operations take come last.
    ///
    /// # Errors
    /// If a dataset cannot be read.
    pub(crate) async fn misfits(&self, job: &Job) -> Result<Misfits, StoreError> {
        let mut all = Misfits { error: None, warnings: Vec::new() };
        for (dataset, of_job) in self.0.iter().zip(job.datasets()) {
            let view = dataset.evaluated.samples.kept().map(|set| &**set);
            let Misfits { error, warnings } = misfits(&dataset.store, &dataset.manifest, job, view).await?;
            let named = |text: String| match of_job.source {
                Some(source) => format!("source `{source}`: {text}"),
                None => text,
            };
            all.warnings.extend(warnings.into_iter().map(named));
            if let Some(error) = error {
                all.error = Some(match error {
                    JobError::Key { job, key, problem } => JobError::Key { job, key: named(key), problem },
                    other => other,
                });
                return Ok(all);
            }
        }
        for dataset in job.sound_datasets() {
            let store = DatasetStore::open(&dataset.url)?;
            let manifest = store.manifest().await?;
            all.error = misfits_of_sounds((&store, &manifest), job, dataset).await?.error;
            if all.error.is_some() {
                break;
            }
        }
        Ok(all)
    }

    /// Returns how the datasets are read: what was evaluated here need not be stored.
    pub(crate) fn stores(&self) -> StoreAccess {
        let mut access = StoreAccess::default();
        for EvaluatedDataset { evaluated: EvaluatedJob { samples, made, sizes }, .. } in &self.0 {
            access.views.extend(samples.view());
            access.sequences.extend(made.iter().map(|packing| packing.made.clone()));
            access.sizes.extend(sizes.iter().cloned());
        }
        access
    }

    /// Returns the dataset that has a sample of the job, and the sample's number in it.
    ///
    /// # Panics
    /// If there is no such sample.
    pub(crate) fn of_sample(&self, SampleId(id): SampleId) -> (usize, SampleId) {
        let mut first = 0;
        let found = self.0.iter().position(|dataset| {
            let end = first + dataset.manifest.samples();
            let is_here = id < end;
            first = if is_here { first } else { end };
            is_here
        });
        (found.expect("a sample of the job"), SampleId(id - first))
    }

    /// Returns the number of blocks of all datasets.
    pub(crate) fn block_count(&self) -> u64 {
        self.0.iter().map(|dataset| u64::from(dataset.manifest.block_count())).sum()
    }

    /// Returns the bytes of each block of the plan: those of the datasets' blocks, or of pools of them.
    pub(crate) fn block_bytes(&self) -> Vec<u64> {
        self.0.iter().flat_map(EvaluatedDataset::block_bytes).collect()
    }

    /// Returns the bytes of all blocks of the datasets.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().flat_map(|dataset| dataset.bytes_of(0..dataset.manifest.block_count())).sum()
    }
}

impl EvaluatedDataset {
    /// Returns the bytes of these blocks.
    fn bytes_of(&self, blocks: Range<u32>) -> impl Iterator<Item = u64> {
        blocks.map(|block| self.manifest.block(block).bytes)
    }

    /// Returns the bytes of each block of the plan.
    fn block_bytes(&self) -> Vec<u64> {
        let Some(table) = self.evaluated.samples.sequences() else {
            return self.bytes_of(0..self.manifest.block_count()).collect();
        };
        let pools = table.pools();
        let of_pool = |pool| self.bytes_of(pools.blocks(pool).unwrap_or_default()).sum();
        (0..pools.sequences().len() as u32).map(of_pool).collect()
    }
}

/// Reads the sizes of a dataset's samples, if a job has some.
async fn read_sizes(
    store: &DatasetStore,
    manifest: &Manifest,
    sizes: Option<Fingerprint>,
) -> Result<Option<Arc<SizeTable>>, StoreError> {
    match sizes {
        Some(sizes) => open_sizes(store, manifest, sizes).await.map(Some),
        None => Ok(None),
    }
}

/// Notes which datasets those are whose recordings operations of a job file take.
async fn note_sounds(file: &mut JobFile) -> Result<(), EvaluateError> {
    let job = file.name.clone();
    for dataset in file.sound_datasets() {
        let (store, manifest) = opened(&dataset.url).await?;
        dataset.url = store.pinned_url(&dataset.url);
        let noted = dataset.note(manifest.fingerprint(), manifest.samples());
        noted.map_err(|problem| JobError::Key { job: job.clone(), key: "`ops`:".to_owned(), problem })?;
    }
    Ok(())
}

/// Opens a dataset in the version that it has now.
async fn opened(url: &str) -> Result<(DatasetStore, Manifest), DatasetError> {
    let store = DatasetStore::open_pinned(url).await?;
    let manifest = store.manifest().await?;
    Ok((store, manifest))
}
