//! The datasets whose recordings operations take, beside those whose samples a job delivers: where a recording lies, and the memory for
//! recordings that are read for one use.

use std::{ops::Range, sync::Arc};

use futures::future::try_join_all;
use spdl_job::{DatasetOfJob, Job, SoundDataset};
use spdl_types::{Fingerprint, SampleId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{DatasetView, Datasets, FeedError, IndexHold};
use crate::fetch::BlockPlace;

const KIB: u64 = 1 << 10;

/// Memory for recordings that are read for one use. It is none of what samples are read into, so that neither waits for the other.
#[derive(Debug)]
pub(super) struct SoundMemory {
    free: Arc<Semaphore>,
    kib: u32,
}

/// The datasets whose recordings the operations of a job take.
#[derive(Clone, Debug, Default)]
pub(crate) struct SoundDatasets {
    views: Arc<[(SoundDataset, DatasetView)]>,
    memory: Option<Arc<SoundMemory>>,
}

/// Where a recording lies.
#[derive(Debug)]
pub(crate) struct FoundSound {
    pub(crate) index: IndexHold,
    /// Number of its record in the shard, and of the field that has its file; `None` if the record has none of the fields.
    pub(crate) record: u32,
    pub(crate) field: Option<u32>,
    /// The block with the record.
    pub(crate) place: BlockPlace,
    /// The bytes of the file in the shard; none if they lie in the index.
    pub(crate) range: Option<Range<u64>>,
    /// The bytes of the whole dataset.
    pub(crate) dataset_bytes: u64,
}

impl Datasets {
    /// Opens the datasets whose recordings the operations of a job take.
    pub(crate) async fn open_sounds(&self, job: &Job) -> Result<SoundDatasets, FeedError> {
        let mut named: Vec<&SoundDataset> = Vec::new();
        for dataset in job.sound_datasets() {
            if !named.contains(&dataset) {
                named.push(dataset);
            }
        }
        if named.is_empty() {
            return Ok(SoundDatasets::default());
        }
        let opened = named.into_iter().map(|dataset| async move {
            let fingerprint = dataset.fingerprint.expect("a valid job says which dataset it is");
            let of_job = DatasetOfJob { source: None, url: &dataset.url, fingerprint, view: None, pools: None };
            let fields: Vec<String> = dataset.fields().map(str::to_owned).collect();
            Ok::<_, FeedError>((dataset.clone(), DatasetView::new(self.open_one(job, of_job).await?, &fields)))
        });
        let views = try_join_all(opened).await?.into();
        // Indexes give a quarter of their memory from the first such job on.
        let memory = self.sound_memory.get_or_init(|| {
            let kib = u32::try_from(self.indexes.give_quarter() / KIB).unwrap_or(u32::MAX >> 4).max(1);
            Arc::new(SoundMemory { free: Arc::new(Semaphore::new(kib as usize)), kib })
        });
        Ok(SoundDatasets { views, memory: Some(memory.clone()) })
    }
}

impl SoundDatasets {
    /// Returns whether no operation takes recordings.
    pub(crate) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Iterates over what identifies the blocks of the datasets in caches.
    pub(super) fn keys(&self) -> impl Iterator<Item = Fingerprint> {
        self.views.iter().map(|(_, view)| view.key())
    }

    /// Waits for memory for recordings of so many bytes; asks for at most all that there is.
    pub(crate) async fn memory(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let memory = self.memory.as_ref().filter(|_| bytes > 0)?;
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(memory.kib);
        Some(memory.free.clone().acquire_many_owned(kib).await.expect("the semaphore is never closed"))
    }

    /// Finds the recording that is a sample of one of the datasets.
    pub(crate) async fn find(&self, dataset: &SoundDataset, sample: u64) -> Result<FoundSound, FeedError> {
        let view = self.views.iter().find(|(known, _)| known == dataset).map(|(_, view)| view);
        let view = view.expect("the datasets of the job's operations are open");
        let no_such = |shard: &str| FeedError::Index { shard: shard.to_owned(), sample };
        let block = view.manifest().block_of(sample).ok_or_else(|| no_such(&dataset.url))?;
        let facts = view.block(block);
        let index = view.index(facts.shard).await?;
        let in_shard = u32::try_from(view.sample_in_shard(&facts, SampleId(sample))).ok();
        let in_shard = in_shard.filter(|sample| *sample < index.sample_count());
        let (record, _) = index.locate(in_shard.ok_or_else(|| no_such(view.shard_url(block)))?);
        let of_record = index.record(record);
        let field = dataset.fields().find_map(|name| index.field_number(&of_record, name));
        let range = field.and_then(|nth| index.field(&of_record, nth).range());
        if let Some(Range { start, end }) = range.clone()
            && (start < facts.offset || end > facts.offset + facts.bytes)
        {
            return Err(FeedError::Span { shard: view.shard_url(block).to_owned(), block, start, end });
        }
        Ok(FoundSound { record, field, range, place: view.place(block), dataset_bytes: view.bytes, index })
    }
}
