//! The scheduling of one rank's feed as a state machine: decides which slot each step fills and when a slot is handed
//! over. It has no clock, does no I/O and sees no bytes.

use std::collections::{BTreeMap, VecDeque};

use spdl_order::{RankSteps, Step};
use spdl_types::{
    Position,
    mutations::{Mutation, mutated},
};

/// An action that the shell has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEffect {
    /// Start to fetch the blocks of this step. Steps come in order, each before its [`FeedEffect::Fill`].
    Prepare(Step),
    /// Fill the slot with the step, then report [`FeedCore::handle_filled`] or [`FeedCore::handle_failed`].
    Fill {
        /// Number of the batch, from 0.
        sequence: u64,
        /// The slot to fill.
        slot: u32,
        /// The step that fills it.
        step: Step,
    },
    /// Publish the filled slot. The trainer owns it until [`FeedCore::handle_freed`].
    HandOver {
        /// Number of the batch.
        sequence: u64,
        /// The slot to publish.
        slot: u32,
    },
    /// Report the end of the stream; the last effect.
    End {
        /// Number of batches.
        sequence: u64,
        /// Position at which the stream ends.
        position: Position,
    },
    /// Report that this batch failed, after all batches before it were delivered; the last effect.
    Fail {
        /// Number of the batch.
        sequence: u64,
    },
}

/// The outcome of a batch that is done before the batches in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchOutcome {
    Filled,
    Failed,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotUse {
    Free,
    Filling { sequence: u64 },
    Lent,
}

/// Keeps the slots of one rank filled. Call [`new`](Self::new), then any `handle_*`. After each call carry out what
/// [`poll_effect`](Self::poll_effect) returns, in order.
#[derive(Debug)]
pub struct FeedCore {
    steps: RankSteps,
    /// Start of the next step to plan; after the last step, the end of the stream.
    planned_to: Position,
    is_planned: bool,
    ahead: VecDeque<Step>,
    /// Number of steps after those being filled whose blocks are fetched ahead.
    read_ahead: usize,
    slots: Vec<SlotUse>,
    /// Sequence number of the next batch to start filling.
    next_fill: u64,
    /// Sequence number of the next batch to deliver.
    next_hand_over: u64,
    /// Batches that are done while an earlier one is not; never more than there are slots.
    done: BTreeMap<u64, BatchOutcome>,
    is_over: bool,
    effects: VecDeque<FeedEffect>,
}

impl FeedCore {
    /// Creates the core of a rank whose first batch starts at or after `from`, with `slots` free slots. The blocks of `read_ahead` steps after those being filled are fetched ahead.
    #[must_use]
    pub fn new(steps: RankSteps, from: Position, slots: u32, read_ahead: u32) -> Self {
        let mut core = Self {
            steps,
            planned_to: from,
            is_planned: false,
            ahead: VecDeque::new(),
            read_ahead: read_ahead as usize,
            slots: vec![SlotUse::Free; slots as usize],
            next_fill: 0,
            next_hand_over: 0,
            done: BTreeMap::new(),
            is_over: false,
            effects: VecDeque::new(),
        };
        core.fill_free_slots();
        core
    }

    /// Reports that the slot of a batch is filled.
    pub fn handle_filled(&mut self, sequence: u64) {
        self.take_outcome(sequence, BatchOutcome::Filled);
    }

    /// Reports that a batch cannot be filled.
    pub fn handle_failed(&mut self, sequence: u64) {
        self.take_outcome(sequence, BatchOutcome::Failed);
    }

    /// Reports that the trainer is done with a slot. Returns false if the trainer did not have it.
    pub fn handle_freed(&mut self, slot: u32) -> bool {
        let Some(state @ SlotUse::Lent) = self.slots.get_mut(slot as usize) else { return false };
        *state = SlotUse::Free;
        self.fill_free_slots();
        true
    }

    /// Changes how many steps are read ahead. Steps that are ahead already stay so.
    pub fn set_read_ahead(&mut self, steps: u32) {
        self.read_ahead = steps as usize;
        self.fill_free_slots();
    }

    /// Returns the next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<FeedEffect> {
        self.effects.pop_front()
    }

    /// Returns whether some batch is being filled, or is done and waits for an earlier one.
    #[must_use]
    pub const fn is_filling(&self) -> bool {
        self.next_hand_over < self.next_fill
    }

    /// Returns the number of the next batch to hand over.
    #[must_use]
    pub const fn next_hand_over(&self) -> u64 {
        self.next_hand_over
    }

    /// Returns the number of slots that the trainer has.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.slots.iter().filter(|state| **state == SlotUse::Lent).count()
    }

    fn take_outcome(&mut self, sequence: u64, outcome: BatchOutcome) {
        let (next_hand_over, next_fill) = (self.next_hand_over, self.next_fill);
        assert!(
            (next_hand_over..next_fill).contains(&sequence) && !self.done.contains_key(&sequence)
                || mutated(Mutation::HandOverUnordered),
            "batch {sequence} is done where {next_hand_over} to {next_fill} are being filled"
        );
        if self.is_over {
            return;
        }
        self.done.insert(sequence, outcome);
        if mutated(Mutation::HandOverUnordered) {
            self.done.remove(&sequence);
            return self.hand_over(sequence, self.next_hand_over);
        }
        while let Some(outcome) = self.done.remove(&self.next_hand_over) {
            if outcome == BatchOutcome::Failed {
                self.is_over = true;
                return self.effects.push_back(FeedEffect::Fail { sequence: self.next_hand_over });
            }
            self.hand_over(self.next_hand_over, self.next_hand_over);
        }
        self.fill_free_slots();
    }

    fn hand_over(&mut self, filled: u64, sequence: u64) {
        let slot = self.slots.iter().position(|state| *state == SlotUse::Filling { sequence: filled });
        let slot = slot.expect("a batch that is being filled has a slot");
        self.slots[slot] = if mutated(Mutation::ReuseLentSlot) { SlotUse::Free } else { SlotUse::Lent };
        self.next_hand_over += 1;
        self.effects.push_back(FeedEffect::HandOver { sequence, slot: slot as u32 });
        if mutated(Mutation::HandOverUnordered) {
            self.fill_free_slots();
        }
    }

    /// Starts to fill every free slot while there are steps, plans ahead, and ends after the last batch.
    fn fill_free_slots(&mut self) {
        while !self.is_over
            && let Some(slot) = self.slots.iter().position(|state| *state == SlotUse::Free)
            && let Some(step) = self.next_step()
        {
            let sequence = self.next_fill;
            self.slots[slot] = SlotUse::Filling { sequence };
            self.next_fill += 1;
            self.effects.push_back(FeedEffect::Fill { sequence, slot: slot as u32, step });
        }
        while self.ahead.len() < self.read_ahead && self.plan_one() {}
        let is_last_out = !self.is_filling() || mutated(Mutation::EndEarly);
        if !self.is_over && self.is_planned && self.ahead.is_empty() && is_last_out {
            self.is_over = true;
            self.effects.push_back(FeedEffect::End { sequence: self.next_hand_over, position: self.planned_to });
        }
    }

    fn next_step(&mut self) -> Option<Step> {
        if self.ahead.is_empty() {
            self.plan_one();
        }
        self.ahead.pop_front()
    }

    /// Plans the next step. Returns whether there was one.
    fn plan_one(&mut self) -> bool {
        if self.is_planned || self.is_over {
            return false;
        }
        let Some(step) = self.steps.step(self.planned_to) else {
            self.planned_to = self.steps.pass(self.planned_to);
            self.is_planned = true;
            return false;
        };
        self.planned_to = step.next;
        self.ahead.push_back(step);
        self.effects.push_back(FeedEffect::Prepare(step));
        true
    }
}

#[cfg(test)]
mod tests {
    use spdl_order::{BatchParams, EpochEnd};

    use super::*;

    const READ_AHEAD: u32 = 16;

    /// The steps of one rank of one, in batches of 10.
    fn steps(samples: u64) -> RankSteps {
        RankSteps::new(BatchParams { global_batch: 10, epochs: 1, epoch_end: EpochEnd::Drop, end: None }, samples, 0, 1)
    }

    /// A core for 100 samples in batches of 10; its methods return the effects without `Prepare`.
    struct CoreTest(FeedCore);

    impl CoreTest {
        fn new(from: u64, slots: u32) -> Self {
            Self(FeedCore::new(steps(100), Position::new(0, from), slots, READ_AHEAD))
        }

        fn effects(&mut self) -> Vec<FeedEffect> {
            let all = std::iter::from_fn(|| self.0.poll_effect());
            all.filter(|effect| !matches!(effect, FeedEffect::Prepare(_))).collect()
        }

        fn filled(&mut self, sequence: u64) -> Vec<FeedEffect> {
            self.0.handle_filled(sequence);
            self.effects()
        }

        fn freed(&mut self, slot: u32) -> Vec<FeedEffect> {
            assert!(self.0.handle_freed(slot));
            self.effects()
        }
    }

    fn fill(sequence: u64, slot: u32, from: u64) -> FeedEffect {
        FeedEffect::Fill { sequence, slot, step: steps(100).step(Position::new(0, from)).unwrap() }
    }

    #[test]
    fn every_slot_is_filled_and_none_again_before_it_is_freed() {
        let mut feed = CoreTest::new(0, 2);
        assert_eq!(feed.effects(), [fill(0, 0, 0), fill(1, 1, 10)]);
        assert_eq!(feed.filled(0), [FeedEffect::HandOver { sequence: 0, slot: 0 }]);
        assert_eq!(feed.filled(1), [FeedEffect::HandOver { sequence: 1, slot: 1 }]);
        assert!(!feed.0.is_filling());
        assert_eq!(feed.freed(1), [fill(2, 1, 20)]);
        assert_eq!(feed.0.lent(), 1);
        assert!(!feed.0.handle_freed(1), "it is being filled");
        assert!(!feed.0.handle_freed(2), "there is no such slot");
    }

    #[test]
    fn batches_are_handed_over_in_order_however_they_are_filled() {
        let mut feed = CoreTest::new(0, 3);
        feed.effects();
        assert_eq!(feed.filled(2), []);
        assert_eq!(feed.filled(1), []);
        let in_order = [0, 1, 2].map(|sequence| FeedEffect::HandOver { sequence, slot: sequence as u32 });
        assert_eq!(feed.filled(0), in_order);
    }

    #[test]
    fn the_end_follows_the_last_batch_and_does_not_wait_for_slots() {
        let mut feed = CoreTest::new(80, 3);
        assert_eq!(feed.effects(), [fill(0, 0, 80), fill(1, 1, 90)]);
        assert_eq!(feed.filled(1), []);
        let end = FeedEffect::End { sequence: 2, position: Position::new(1, 0) };
        let expected =
            [FeedEffect::HandOver { sequence: 0, slot: 0 }, FeedEffect::HandOver { sequence: 1, slot: 1 }, end];
        assert_eq!(feed.filled(0), expected);
        assert_eq!(feed.freed(0), [], "nothing follows");
    }

    #[test]
    fn a_rank_past_the_last_step_ends_at_once() {
        let end = FeedEffect::End { sequence: 0, position: Position::new(0, 100) };
        assert_eq!(CoreTest::new(100, 2).effects(), [end]);
    }

    #[test]
    fn a_rank_without_a_share_of_the_last_batch_ends_where_the_others_do() {
        let batches = BatchParams { global_batch: 10, epochs: 1, epoch_end: EpochEnd::Partial, end: None };
        for (from, filled) in [(0, 2), (20, 0)] {
            let mut feed = FeedCore::new(RankSteps::new(batches, 21, 0, 2), Position::new(0, from), 4, 0);
            for sequence in 0..filled {
                feed.handle_filled(sequence);
            }
            let last = std::iter::from_fn(|| feed.poll_effect()).last();
            let end = FeedEffect::End { sequence: filled, position: Position::new(1, 0) };
            assert_eq!(last, Some(end), "from {from}");
        }
    }

    #[test]
    fn a_batch_that_fails_ends_the_feed_after_the_batches_before_it() {
        let mut feed = CoreTest::new(0, 3);
        feed.effects();
        feed.0.handle_failed(1);
        assert_eq!(feed.effects(), []);
        let expected = [FeedEffect::HandOver { sequence: 0, slot: 0 }, FeedEffect::Fail { sequence: 1 }];
        assert_eq!(feed.filled(0), expected);
        assert_eq!(feed.filled(2), [], "nothing follows");
        assert_eq!(feed.freed(0), []);
    }

    #[test]
    fn after_a_failure_nothing_is_fetched_ahead_any_more() {
        let mut core = FeedCore::new(steps(1000), Position::START, 2, READ_AHEAD);
        while core.poll_effect().is_some() {}
        core.handle_filled(0);
        core.handle_failed(1);
        while core.poll_effect().is_some() {}
        assert!(core.handle_freed(0));
        assert_eq!(core.poll_effect(), None);
    }

    #[test]
    fn the_slots_that_the_trainer_has_are_counted() {
        let mut feed = CoreTest::new(0, 3);
        feed.effects();
        assert_eq!(feed.0.lent(), 0);
        feed.filled(0);
        feed.filled(1);
        assert_eq!(feed.0.lent(), 2);
        feed.freed(0);
        assert_eq!(feed.0.lent(), 1);
    }

    #[test]
    fn the_blocks_of_the_coming_steps_are_prepared_once_each_and_in_order() {
        let mut feed = FeedCore::new(steps(1000), Position::START, 2, READ_AHEAD);
        let mut prepared = Vec::new();
        let mut filled = 0;
        while let Some(effect) = feed.poll_effect() {
            match effect {
                FeedEffect::Prepare(step) => prepared.push(step.from.offset),
                FeedEffect::Fill { sequence, slot, step } => {
                    assert!(prepared.contains(&step.from.offset), "prepared before it is filled");
                    feed.handle_filled(sequence);
                    filled = slot;
                }
                FeedEffect::HandOver { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(feed.handle_freed(filled));
        assert_eq!(prepared, (0..2 + u64::from(READ_AHEAD)).map(|step| step * 10).collect::<Vec<_>>());
    }

    #[test]
    fn how_much_is_read_ahead_can_be_changed_and_nothing_is_prepared_twice() {
        let mut feed = FeedCore::new(steps(1000), Position::START, 1, 2);
        let mut prepared = Vec::new();
        let mut prepare = |feed: &mut FeedCore| {
            let steps = std::iter::from_fn(|| feed.poll_effect()).filter_map(|effect| match effect {
                FeedEffect::Prepare(step) => Some(step.from.offset),
                _ => None,
            });
            prepared.extend(steps);
            prepared.len()
        };
        assert_eq!(prepare(&mut feed), 3);
        feed.set_read_ahead(5);
        assert_eq!(prepare(&mut feed), 6);
        feed.set_read_ahead(1);
        for (sequence, expected) in (0..).zip([6, 6, 6, 6, 7, 8]) {
            feed.handle_filled(sequence);
            assert!(feed.handle_freed(0));
            assert_eq!(prepare(&mut feed), expected, "after batch {sequence}");
        }
        assert_eq!(prepared, (0..8).map(|step| step * 10).collect::<Vec<_>>());
    }
}
