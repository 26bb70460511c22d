//! Reports the state of a rank: its statistics and what it waits for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_control::messages::RankStats;
use spdl_feed::SLOW;
use spdl_insight::{Stall, Transport};
use spdl_shard::manifest::MANIFEST_NAME;
use spdl_types::{SessionId, Stage};

use super::{
    at_work::{LongSample, SamplesAtWork},
    open::ReservedFeed,
    progress::{FeedPhase, FeedProgress, Wait},
    room::RoomWait,
    stages::FeedStages,
};
use crate::fetch::Fetcher;

/// A sample that has been at work for less is not named, however quick the others are.
const LEAST_NAMED: Duration = Duration::from_millis(100);

/// A handle that reports the state of a rank. Cheap to clone; outlives the feed.
#[derive(Clone, Debug)]
pub struct FeedView(Arc<RankViewState>);

#[derive(Debug)]
struct RankViewState {
    worker: String,
    session: SessionId,
    job: String,
    dataset: String,
    rank: u32,
    slots: u32,
    progress: Arc<FeedProgress>,
    fetcher: Arc<Fetcher>,
    at_work: Arc<SamplesAtWork>,
    stages: Arc<FeedStages>,
}

impl FeedView {
    pub(super) fn new(ReservedFeed { resources, session, rank, slab, progress, .. }: &ReservedFeed) -> Self {
        Self(Arc::new(RankViewState {
            worker: resources.name().to_owned(),
            session: session.id,
            job: session.job.name.clone(),
            dataset: session.job.dataset_text(),
            rank: *rank,
            slots: slab.slots(),
            progress: progress.clone(),
            fetcher: resources.fetcher.clone(),
            at_work: resources.decoding.at_work.clone(),
            stages: resources.stages.clone(),
        }))
    }

    /// Returns the job's name.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.0.job
    }

    /// Returns what the next batch waits for; `None` if a batch is ready or about to be.
    #[must_use]
    pub fn stall(&self) -> Option<Stall> {
        let RankViewState { worker, job, dataset, rank, slots, progress, fetcher, .. } = &*self.0;
        if progress.has_batch() {
            return None;
        }
        let (phase, wait, since) = progress.waiting();
        let outage = |object: &str| {
            let outage = fetcher.outage(dataset, object);
            outage.map_or_else(String::new, |outage| format!("; {outage}"))
        };
        let (stage, waiting_for) = match (phase, wait) {
            (FeedPhase::Over, _) | (FeedPhase::Filling, None) => return None,
            (_, Some(Wait::Memory(RoomWait { bytes, free_bytes, most_bytes }))) => (
                Stage::HandOver,
                format!(
                    "{bytes} bytes of memory for a batch of rank {rank} of job `{job}`: of {most_bytes} bytes for such batches \
                     {free_bytes} are free; a larger memory budget of the worker avoids that"
                ),
            ),
            (_, Some(Wait::Trainer)) => (
                Stage::HandOver,
                format!(
                    "the trainer to give back one of the {} batches that it has of rank {rank} of job `{job}`: the worker's \
                     memory is too short for more of them",
                    progress.lent()
                ),
            ),
            (_, Some(Wait::Decode)) => self.0.decoding(),
            (_, Some(Wait::Block { block, shard, others })) => {
                let others = if others > 0 { format!(" and {others} others") } else { String::new() };
                let outage = outage(&shard);
                let what = format!("block {block} of shard `{shard}`{others} for rank {rank} of job `{job}`{outage}");
                (Stage::Fetch, what)
            }
            (FeedPhase::Opening, None) => {
                let outage = outage(MANIFEST_NAME);
                (Stage::Open, format!("dataset `{dataset}` to be opened for rank {rank} of job `{job}`{outage}"))
            }
            (FeedPhase::NoSlot, None) => {
                (Stage::HandOver, format!("the trainer to give back one of {slots} slots of rank {rank}"))
            }
        };
        let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(Stall { worker: worker.clone(), stage, waiting_for, waited_ms })
    }

    /// Returns the statistics of the rank.
    #[must_use]
    pub fn stats(&self, transport: Transport) -> RankStats {
        let RankViewState { session, rank, slots, progress, .. } = &*self.0;
        RankStats {
            session: *session,
            rank: *rank,
            transport,
            batches: progress.published(),
            ready: u32::try_from(progress.lent()).unwrap_or(u32::MAX),
            slots: *slots,
            stall: self.stall(),
        }
    }
}

impl RankViewState {
    /// Returns what a batch that is being decoded waits for: the sample that takes long, if there is one.
    fn decoding(&self) -> (Stage, String) {
        let Self { session, job, rank, at_work, stages, .. } = self;
        let [usual] = stages.decode.durations().quantiles([0.5]);
        let least = usual.saturating_mul(u32::try_from(SLOW).unwrap_or(u32::MAX)).max(LEAST_NAMED);
        let Some(sample) = at_work.first_long((*session, *rank), least, Instant::now()) else {
            return (Stage::Decode, format!("samples of rank {rank} of job `{job}` to be decoded"));
        };
        let LongSample { key, shard, function, took } = sample;
        let times = match took.as_nanos().checked_div(usual.as_nanos()) {
            Some(times) => format!(", {times} times what most samples take"),
            None => String::new(),
        };
        let sample = format!("sample `{key}` of shard `{shard}` for rank {rank} of job `{job}`");
        let so_far = format!("it has taken {} ms{times}", took.as_millis());
        match function {
            Some(function) => (Stage::Transform, format!("function `{function}` to return for {sample}: {so_far}")),
            None => (Stage::Decode, format!("{sample} to be decoded: {so_far}")),
        }
    }
}
