//! Plans the batches of a rank before they are filled: starts to fetch their blocks, and announces their samples to the
//! ranks that share them.

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc};

use spdl_feed::SampleDraw;
use spdl_order::{Item, ItemKind, Step};
use spdl_types::Position;

use super::{PlannedBatch, SampleGroup, items_of, mix::PlannedMixes};
use crate::{
    feed::{open::Feed, sharing::SharingMember},
    fetch::WorkingWindow,
};

/// A call announces steps beyond the planned ones only until it has announced this many samples, so that no call takes
/// long.
const ANNOUNCED_AT_ONCE: u64 = 1024;

/// The batches of a rank that are planned and not being filled yet.
pub(in crate::feed) struct PlannedBatches {
    is_first: bool,
    ahead: VecDeque<PlannedBatch>,
    window: WorkingWindow,
    announced: AnnouncedSteps,
    feed: Arc<Feed>,
}

impl PlannedBatches {
    pub(in crate::feed) fn new(feed: Arc<Feed>) -> Self {
        let window = feed.dataset.working_window(&feed.fetcher);
        Self { is_first: true, ahead: VecDeque::new(), window, announced: AnnouncedSteps::default(), feed }
    }

    /// Plans the batch of a step and starts to fetch its blocks.
    pub(in crate::feed) fn prepare(&mut self, step: Step) {
        if let Some(member) = self.feed.shared() {
            let oldest = self.ahead.front().map_or(step.from, |batch| batch.step.from);
            self.announced.advance(&self.feed, member, oldest..=step.from);
        } else {
            self.announced = AnnouncedSteps::default();
        }
        let mut batch = PlannedBatch::plan(&self.feed, step);
        if !self.feed.parts.is_on() {
            let in_use_until = |group: &SampleGroup| self.feed.plan.in_use_until(group[0].at);
            self.window.add(batch.groups.iter().map(|group| (group[0].block, in_use_until(group))));
        }
        // The first batch does not wait for whole blocks, as a trainer is waiting for it.
        if !std::mem::take(&mut self.is_first) {
            batch.prefetch(&self.feed);
        }
        self.ahead.push_back(batch);
    }

    /// Takes the oldest batch, which must be that of `step`, to be filled.
    pub(in crate::feed) fn take(&mut self, step: Step) -> PlannedBatch {
        let planned = self.ahead.pop_front().expect("a step is prepared before it is filled");
        assert_eq!(planned.step, step, "steps are filled in the order in which they were prepared");
        // The blocks of the batches that are being filled have holds.
        self.window.advance(step.from);
        planned
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
        while self.to <= newest || (self.samples < member.ahead() && announced < ANNOUNCED_AT_ONCE) {
            let Some(step) = feed.plan.step(self.to, &feed.session.batches()) else { return };
            let (items, PlannedMixes { partners, .. }) = items_of(feed, &step);
            let draw = |item: &Item| SampleDraw { epoch: item.at.epoch, id: item.located.id };
            let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
            member.announce(valid.chain(&partners).map(draw));
            let samples = (items.len() + partners.len()) as u64;
            self.steps.push_back((step.from, samples));
            (self.samples, announced, self.to) = (self.samples + samples, announced + samples, step.next);
        }
    }
}
