//! Plans the batches of a rank before they are filled: starts to fetch their blocks, and announces their samples to the
//! ranks that share them.

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc};

use parking_lot::Mutex;
use spdl_control::messages::Session;
use spdl_feed::SampleDraw;
use spdl_job::layout::entry_flags;
use spdl_order::{Item, ItemKind, Step};
use spdl_types::Position;
use spdl_wire::spans;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::{
    early::{EarlyBatch, EarlySamples},
    mix::PlannedMixes,
    sample::{BatchSample, SampleGroup},
    sequence::blocks_of,
};
use crate::{
    feed::{FeedError, dataset::DatasetSequences, open::Feed, sharing::SharingMember},
    fetch::{BlockHold, WorkingWindow, for_batch_now},
};

/// A call announces steps beyond the planned ones only until it has announced this many samples, so that no call takes
/// long.
const ANNOUNCED_AT_ONCE: u64 = 1024;

/// A batch whose samples are known.
pub(in crate::feed) struct PlannedBatch {
    pub(super) step: Step,
    pub(super) entries: usize,
    /// Its samples; none if these are sequences.
    pub(super) groups: Vec<SampleGroup>,
    /// Its sequences, if its samples are sequences.
    pub(super) sequences: Vec<Item>,
    /// The blocks that may hold documents of these, each with the position of the first that needs it.
    blocks: Vec<(u32, Position)>,
    /// Entries past the end of the epoch, which hold no sample.
    pub(super) invalid: Vec<BatchSample>,
    pub(super) mixes: PlannedMixes,
    /// Those of its samples that are decoded before it has a slot.
    pub(super) early: EarlySamples,
    /// Keeps the blocks in memory until the batch is filled.
    pub(super) holds: Vec<BlockHold>,
    /// The span of everything that is done for the batch.
    pub(in crate::feed) span: Span,
}

impl PlannedBatch {
    /// Plans the batch of a step that has these samples.
    pub(super) fn new(feed: &Feed, step: Step, (items, mixes): (Vec<Item>, PlannedMixes)) -> Self {
        let span = spans::batch(step.from);
        spdl_process::describe_batch(&span, feed.session.id, &feed.session.job.name, feed.rank);
        if let Some(sequences) = &feed.sequences {
            let (entries, blocks) = (items.len(), blocks_of(feed, sequences, &items));
            let (groups, invalid, holds) = Default::default();
            let early = EarlySamples::new(step.from, 0);
            return Self { step, entries, groups, sequences: items, blocks, invalid, mixes, early, holds, span };
        }
        let all = (0..).zip(items.iter().chain(&mixes.partners)).map(|(entry, item)| BatchSample::new(entry, item));
        let (invalid, mut samples): (Vec<_>, Vec<_>) = all.partition(|sample| sample.flags & entry_flags::INVALID != 0);
        samples.sort_unstable_by_key(|sample| sample.id);
        let groups: Vec<_> = samples.chunk_by(|a, b| a.block == b.block).map(SampleGroup::from).collect();
        let (sequences, holds) = Default::default();
        let blocks = groups.iter().map(|group| (group[0].block, group[0].at)).collect();
        let early = EarlySamples::new(step.from, groups.len());
        Self { step, entries: items.len(), groups, sequences, blocks, invalid, mixes, early, holds, span }
    }

    /// Plans a batch whose sequences are dealt to ranks by what they cost.
    async fn balanced(feed: &Feed, sequences: &Arc<DatasetSequences>, step: Step) -> Result<Self, FeedError> {
        let Session { job, world, .. } = &feed.session;
        let global = sequences.global_batch(job, &feed.plan, (&step, *world)).await?;
        let of_rank = global.balanced.iter().flat_map(|batch| batch.rank_items(feed.rank)).copied().collect();
        Ok(Self::new(feed, step, (of_rank, PlannedMixes::default())))
    }

    /// Adds the blocks to the rank's working window, and starts to fetch them if the batch `is_ahead`.
    fn begin(&mut self, feed: &Feed, window: &Mutex<WorkingWindow>, is_ahead: bool) {
        if !feed.parts.is_on() {
            let in_use = |(block, at): &(u32, Position)| (feed.datasets.block_key(*block), feed.plan.in_use_until(*at));
            window.lock().add(self.blocks.iter().map(in_use));
        }
        if is_ahead {
            self.prefetch(feed);
        }
    }

    /// Starts to fetch the blocks, as far as there is room for them.
    fn prefetch(&mut self, feed: &Feed) {
        if feed.parts.is_on() {
            return;
        }
        let groups = &self.groups;
        let is_kept = |nth: usize| {
            let (Some(member), Some(group)) = (feed.shared(), groups.get(nth)) else { return false };
            group.iter().all(|sample| member.is_kept(sample.draw(), false))
        };
        let wanted = self.blocks.iter().enumerate().filter(|(nth, _)| !is_kept(*nth)).map(|(_, (block, _))| *block);
        let prefetch = |block| feed.fetcher.prefetch(feed.datasets.block_key(block), || feed.datasets.place(block));
        let batch = feed.batch_id(self.step.from);
        self.span.in_scope(|| for_batch_now(batch, || self.holds.extend(wanted.filter_map(prefetch))));
    }
}

/// Returns the items of a rank's batch, and what is mixed in it.
pub(super) fn items_of(feed: &Feed, step: &Step) -> (Vec<Item>, PlannedMixes) {
    let (rank, world, mut items) = (feed.rank, feed.session.world, Vec::new());
    match &feed.sized {
        Some(sized) => items = sized.rank_items(&feed.plan, step, rank, world),
        None => feed.plan.rank_items(step, rank, world, &mut items),
    }
    let mixes = feed.mixer.as_ref().map(|mixer| mixer.plan(&feed.plan, &items)).unwrap_or_default();
    (items, mixes)
}

/// A batch that is planned, or being planned.
pub(in crate::feed) enum BatchPlan {
    Known(Box<PlannedBatch>),
    /// What its sequences cost is read at first, by the one task. Dropping it ends that.
    Pending(JoinSet<Result<PlannedBatch, FeedError>>),
}

impl BatchPlan {
    /// Returns the batch once it is planned.
    ///
    /// # Errors
    /// If what the sequences cost cannot be read.
    pub(in crate::feed) async fn known(self, feed: &Feed) -> Result<PlannedBatch, FeedError> {
        match self {
            Self::Known(batch) => Ok(*batch),
            Self::Pending(mut planning) => {
                let planned = planning.join_next().await.and_then(Result::ok);
                planned.ok_or_else(|| FeedError::Panicked { job: feed.session.job.name.clone() })?
            }
        }
    }
}

/// The batches of a rank that are planned and not being filled yet.
pub(in crate::feed) struct PlannedBatches {
    is_first: bool,
    ahead: VecDeque<(Step, BatchPlan)>,
    window: Arc<Mutex<WorkingWindow>>,
    announced: AnnouncedSteps,
    feed: Arc<Feed>,
}

impl PlannedBatches {
    pub(in crate::feed) fn new(feed: Arc<Feed>) -> Self {
        let window = Arc::new(Mutex::new(feed.datasets.working_window(&feed.fetcher, &feed.sounds)));
        Self { is_first: true, ahead: VecDeque::new(), window, announced: AnnouncedSteps::default(), feed }
    }

    /// Plans the batch of a step and starts to fetch its blocks.
    pub(in crate::feed) fn prepare(&mut self, step: Step) {
        if let Some(member) = self.feed.shared() {
            let oldest = self.ahead.front().map_or(step.from, |(step, _)| step.from);
            self.announced.advance(&self.feed, member, oldest..=step.from);
        } else {
            self.announced = AnnouncedSteps::default();
        }
        // The first batch does not wait for whole blocks, as a trainer is waiting for it.
        let is_ahead = !std::mem::take(&mut self.is_first);
        let plan = match &self.feed.sequences {
            Some(sequences) if self.feed.session.job.cost.is_some() => {
                let (feed, sequences, window) = (self.feed.clone(), sequences.clone(), self.window.clone());
                let planning = async move {
                    let mut batch = PlannedBatch::balanced(&feed, &sequences, step).await?;
                    batch.begin(&feed, &window, is_ahead);
                    Ok(batch)
                };
                let mut task = JoinSet::new();
                task.spawn(planning.in_current_span());
                BatchPlan::Pending(task)
            }
            _ => {
                let mut batch = PlannedBatch::new(&self.feed, step, items_of(&self.feed, &step));
                batch.begin(&self.feed, &self.window, is_ahead);
                BatchPlan::Known(Box::new(batch))
            }
        };
        self.ahead.push_back((step, plan));
    }

    /// Takes the oldest batch, which must be that of `step`, to be filled as number `sequence`. Samples of
    /// batches after it may begin.
    pub(in crate::feed) fn take(&mut self, step: Step, sequence: u64) -> BatchPlan {
        let (planned, plan) = self.ahead.pop_front().expect("a step is prepared before it is filled");
        assert_eq!(planned, step, "steps are filled in the order in which they were prepared");
        // The blocks of the batches that are being filled have holds.
        self.window.lock().advance(step.from);
        self.begin_early(sequence);
        plan
    }

    /// Begins samples of the planned batches, where a few samples of the job take many times as long as most; `now` is the number of the
    /// batch that has the newest slot.
    fn begin_early(&mut self, now: u64) {
        let feed = &self.feed;
        let may_begin = feed.early_bytes.is_some() && feed.shared().is_none() && !feed.parts.is_on();
        let wanted =
            if may_begin { feed.slow.lock().wanted_ahead(feed.decoding.pool.current_num_threads()) } else { 0 };
        let mut before = 0;
        for (sequence, (_, plan)) in (now + 1..).zip(&mut self.ahead).filter(|_| wanted > 0) {
            let BatchPlan::Known(batch) = plan else { continue };
            let PlannedBatch { early, entries, groups, span, .. } = &mut **batch;
            let batch = EarlyBatch { now, sequence, is_near: before < wanted, entries: *entries, groups };
            span.in_scope(|| early.begin(feed, batch));
            before += *entries;
        }
    }
}

/// The steps whose samples a rank has announced to those that share with it.
#[derive(Debug, Default)]
struct AnnouncedSteps {
    /// Start of the first step that is not announced yet.
    to: Position,
    /// The start of each announced step, and the number of its samples.
    steps: VecDeque<(Position, u64)>,
    samples: u64,
}

impl AnnouncedSteps {
    /// Announces the planned steps, whose starts lie in `planned`, and some steps after them.
    fn advance(&mut self, feed: &Feed, member: &SharingMember, planned: RangeInclusive<Position>) {
        let (oldest, newest) = planned.into_inner();
        while let Some((_, samples)) = self.steps.pop_front_if(|(begin, _)| *begin < oldest) {
            self.samples -= samples;
        }
        self.to = self.to.max(oldest);
        let mut announced = 0;
        while self.to <= newest || (self.samples < member.ahead && announced < ANNOUNCED_AT_ONCE) {
            let Some(step) = feed.plan.step(self.to, &feed.session.batches()) else { return };
            let (items, PlannedMixes { partners, .. }) = items_of(feed, &step);
            let draw = |item: &Item| SampleDraw { epoch: item.source_epoch, id: item.located.id };
            let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
            member.announce(valid.chain(&partners).map(draw));
            let samples = (items.len() + partners.len()) as u64;
            self.steps.push_back((step.from, samples));
            (self.samples, announced, self.to) = (self.samples + samples, announced + samples, step.next);
        }
    }
}
