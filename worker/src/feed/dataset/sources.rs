//! The datasets of a job: its only one, or those of its sources, whose blocks and samples are numbered on from source to source.

use std::sync::Arc;

use futures::future::try_join_all;
use spdl_job::Job;
use spdl_shard::{
    manifest::Block,
    samples::{JobSamples, plan_of},
};
use spdl_types::{SampleId, SessionId};

use super::{
    DatasetSequences, DatasetView, FeedError, IndexHold, OpenDataset, PlanKey, PlannedJob, SizedSamples, SoundDatasets,
    sequences::PoolOfDataset,
};
use crate::fetch::{BlockKey, BlockPlace, FetchError, Fetcher, Peers, PlannedBlocks, ShardObject, WorkingWindow};

/// The open datasets of a job, in the order of its sources.
#[derive(Clone, Debug)]
pub(crate) struct OpenDatasets(Vec<Arc<OpenDataset>>);

impl OpenDatasets {
    pub(super) const fn new(datasets: Vec<Arc<OpenDataset>>) -> Self {
        Self(datasets)
    }

    /// Returns the first dataset: the only one, unless the job has sources.
    pub(crate) fn first(&self) -> &Arc<OpenDataset> {
        self.0.first().expect("a job has a dataset")
    }

    /// Returns the plan of `job`, with the sequences that it orders if the job packs documents. What was evaluated of the job is
    /// read once, with its first plan.
    pub(crate) async fn plan(&self, job: &Job) -> Result<PlannedJob, FeedError> {
        let sequence = job.sequence.as_deref().copied();
        let cost = job.cost.and_then(|cost| Some((cost, cost.measured?.sizes?)));
        let is_of_job = sequence.is_some() || !job.sources.is_empty() || !job.redactions.is_empty() || cost.is_some();
        let key: PlanKey = (job.seed, job.order, job.view, is_of_job.then(|| (job.fingerprint(), job.cost)));
        let first = self.first();
        let unread = |url: &str, source| FeedError::Dataset { url: url.to_owned(), source: Arc::new(source) };
        if let Some(planned) = first.kept_plan(&key) {
            return Ok(planned);
        }
        let samples = self.0.iter().zip(job.datasets()).map(|(dataset, of_job)| async move {
            let samples = dataset.samples(of_job.view, of_job.pools).await;
            samples.map_err(|source| unread(of_job.url, source))
        });
        let samples: Vec<JobSamples> = try_join_all(samples).await?;
        let datasets: Vec<_> = self.0.iter().map(|dataset| dataset.manifest()).zip(&samples).collect();
        let plan = plan_of(job, &datasets);
        let plan = plan.map_err(|source| FeedError::Order { job: job.name.clone(), source: Arc::new(source) })?;
        let packed =
            self.0.iter().zip(&samples).map(|(dataset, samples)| Some((dataset.clone(), samples.sequences()?.clone())));
        let packed: Option<Vec<_>> = packed.collect();
        let sequences = packed.zip(sequence).map(|(packed, sequence)| {
            Arc::new(DatasetSequences::new(job, sequence, packed.into_iter(), first.requests.clone()))
        });
        let (mut plan, mut sized) = (plan, None);
        if let Some((cost, sizes)) = cost {
            let sizes = first.sizes(sizes).await.map_err(|source| unread(&job.dataset, source))?;
            plan = sizes.bucketed(plan, job);
            sized = Some(Arc::new(SizedSamples::new(sizes, cost)));
        }
        Ok(first.keep_plan(key, PlannedJob { plan, sequences, sized }))
    }
}

/// The datasets of a job as its ranks read them.
#[derive(Clone, Debug)]
pub(crate) struct FeedDatasets(Arc<[FeedDataset]>);

/// A dataset of a job, with the numbers that its first block and its first sample have in the job.
#[derive(Debug)]
struct FeedDataset {
    view: Arc<DatasetView>,
    first_block: u32,
    first_sample: u64,
}

/// A block of one of a job's datasets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceBlock<'d> {
    dataset: &'d FeedDataset,
    /// Its number in the dataset.
    number: u32,
}

impl FeedDatasets {
    /// Creates what the ranks of a session read of datasets: these fields, and blocks that they exchange with other workers. The blocks of
    /// the plan may be pools of the datasets'.
    pub(crate) fn new(
        datasets: &OpenDatasets,
        fields: &[String],
        session: SessionId,
        (planned, peers): (&PlannedJob, &Peers),
    ) -> Self {
        let (mut first_block, mut first_sample) = (0, 0);
        let views = datasets.0.iter().enumerate().map(|(number, dataset)| {
            let (block, sample) = (first_block, first_sample);
            first_block += dataset.manifest().block_count();
            first_sample += dataset.manifest().samples();
            let blocks = match &planned.sequences {
                Some(sequences) => sequences.planned_blocks(number),
                None => PlannedBlocks { pools: None, first: block },
            };
            let view = DatasetView::new(dataset.clone(), fields).shared(session, (&planned.plan, blocks), peers);
            FeedDataset { view: view.into(), first_block: block, first_sample: sample }
        });
        Self(views.collect())
    }

    /// Iterates over the blocks that hold documents of a pool of the job.
    pub(crate) fn blocks_of_pool<'d>(
        &'d self,
        sequences: &'d DatasetSequences,
        pool: u32,
    ) -> impl Iterator<Item = u32> + use<'d> {
        let PoolOfDataset { dataset, table, pool } = sequences.of(pool);
        let FeedDataset { view, first_block, .. } = &self.0[dataset];
        table.blocks(pool, view.manifest()).map(move |block| first_block + block)
    }

    /// Returns document number `document` of a pool of the job, as a sample of the datasets, and its block.
    pub(crate) fn document(&self, sequences: &DatasetSequences, pool: u32, document: u32) -> (SampleId, u32) {
        let PoolOfDataset { dataset, table, pool } = sequences.of(pool);
        let FeedDataset { view, first_block, first_sample } = &self.0[dataset];
        let SampleId(id) = table.document(pool, document);
        let block = view.manifest().block_of(id).expect("a document lies in a block");
        (SampleId(first_sample + id), first_block + block)
    }

    /// Iterates over the datasets.
    pub(crate) fn views(&self) -> impl Iterator<Item = &Arc<DatasetView>> {
        self.0.iter().map(|dataset| &dataset.view)
    }

    /// Returns block number `block` of the job.
    pub(crate) fn of(&self, block: u32) -> SourceBlock<'_> {
        // Most jobs have one dataset.
        let dataset = match &*self.0 {
            [only] => only,
            datasets => &datasets[datasets.partition_point(|dataset| dataset.first_block <= block) - 1],
        };
        SourceBlock { dataset, number: block - dataset.first_block }
    }

    /// Returns the number of blocks of all datasets.
    pub(crate) fn block_count(&self) -> u32 {
        self.views().map(|view| view.manifest().block_count()).sum()
    }

    /// Returns the number of samples of all datasets.
    pub(crate) fn samples(&self) -> u64 {
        self.views().map(|view| view.manifest().samples()).sum()
    }

    /// Returns the cache key of block `block`.
    pub(crate) fn block_key(&self, block: u32) -> BlockKey {
        let SourceBlock { dataset, number } = self.of(block);
        dataset.view.block_key(number)
    }

    /// Returns where the bytes of block `block` lie.
    pub(crate) fn place(&self, block: u32) -> BlockPlace {
        let SourceBlock { dataset, number } = self.of(block);
        dataset.view.place(number)
    }

    /// Returns the URL of the shard that holds block `block`.
    pub(crate) fn shard_url(&self, block: u32) -> &str {
        let SourceBlock { dataset, number } = self.of(block);
        dataset.view.shard_url(number)
    }

    /// Returns the empty working window of a rank that begins to read the datasets, and recordings of `sounds`.
    pub(crate) fn working_window(&self, fetcher: &Arc<Fetcher>, sounds: &SoundDatasets) -> WorkingWindow {
        WorkingWindow::new(fetcher.clone(), self.views().map(|view| view.key()).chain(sounds.keys()).collect())
    }
}

impl<'d> SourceBlock<'d> {
    /// Returns the block as its manifest has it.
    pub(crate) fn facts(self) -> Block {
        self.dataset.view.block(self.number)
    }

    /// Returns the id of its first sample in the job.
    pub(crate) fn first_sample(self) -> SampleId {
        SampleId(self.dataset.first_sample + self.facts().first_sample)
    }

    /// Returns the id of the first sample of its shard in the job.
    pub(crate) fn first_sample_of_shard(self) -> SampleId {
        let shard = self.dataset.view.manifest().shard(self.facts().shard);
        SampleId(self.dataset.first_sample + shard.first_sample)
    }

    /// Returns the object that is the block's shard; `None` if the shard consists of several.
    pub(crate) fn shard_object(self) -> Option<ShardObject> {
        self.dataset.view.shard_object(self.facts().shard)
    }

    /// Returns the record index of the block's shard if it is in memory.
    pub(crate) fn index_in_memory(self) -> Option<IndexHold> {
        self.dataset.view.index_in_memory(self.facts().shard)
    }

    /// Returns the record index of the block's shard, and reads it if it is not in memory.
    pub(crate) async fn index(self) -> Result<IndexHold, FetchError> {
        self.dataset.view.index(self.facts().shard).await
    }
}
