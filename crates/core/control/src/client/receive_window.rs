//! Decides which received batches are delivered: in order, each exactly once, without gaps.

use std::collections::{BTreeMap, BTreeSet};

use spdl_order::RankSteps;
use spdl_types::{
    Position,
    mutations::{Mutation, mutated},
};

/// A message of the home that has a sequence number on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Batch { slot: u32, from: Position, next: Position },
    End { position: Position },
}

/// What to do with an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    HandOver {
        slot: u32,
    },
    /// The trainer has already had this batch.
    Stale {
        slot: u32,
    },
    End {
        position: Position,
    },
}

/// The stream as the trainer must see it: knows which batch may follow which position.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedStream {
    steps: RankSteps,
    /// The samples of an epoch.
    samples: u64,
    /// Position after the last batch that was accepted.
    pub(super) expected: Position,
    /// Whether the end was accepted, which a change of the job could otherwise still move.
    has_ended: bool,
    /// The number of samples, over all epochs, past which nothing is accepted for now.
    pub(super) hold: Option<u64>,
}

impl ExpectedStream {
    pub(super) const fn new(steps: RankSteps, samples: u64, start: Position) -> Self {
        Self { steps, samples, expected: start, has_ended: false, hold: None }
    }

    /// Begins again at a position.
    pub(super) const fn restart(&mut self, from: Position) {
        self.expected = from;
        self.has_ended = false;
    }

    /// Returns the position up to which the trainer knows the stream. Once it has got the end, that is past the end: a change that begins
    /// there could still move it.
    pub(super) fn handed(&self) -> Position {
        let knows_end = self.has_ended && !mutated(Mutation::IgnoreEnd);
        if knows_end { self.expected.max(self.past_end()) } else { self.expected }
    }

    fn past_end(&self) -> Position {
        let end = self.steps.end();
        Position::new(end.epoch, end.offset + 1)
    }

    /// Goes on by the steps of the job as it is now, which has the same ones up to here.
    pub(super) const fn go_on_by(&mut self, steps: RankSteps) {
        self.steps = steps;
    }

    /// Returns whether nothing past the first `samples` samples was accepted.
    pub(super) fn is_before(&self, samples: u64) -> bool {
        self.samples_before(self.handed()) <= samples
    }

    const fn samples_before(&self, at: Position) -> u64 {
        at.epoch.saturating_mul(self.samples).saturating_add(at.offset)
    }

    /// Returns whether the next batch, or the end, has to wait.
    pub(super) fn is_on_hold(&self) -> bool {
        let next = self.steps.step(self.expected).map_or_else(|| self.past_end(), |step| step.next);
        self.hold.is_some_and(|hold| self.samples_before(next) > hold)
    }

    /// Returns whether an arrival has to wait. The end has to, as well: the change may move it.
    fn holds(&self, arrival: &Arrival) -> bool {
        let (next, is_ignored) = match arrival {
            Arrival::Batch { next, .. } => (*next, mutated(Mutation::BreakPromise)),
            Arrival::End { .. } => (self.past_end(), mutated(Mutation::IgnoreEnd)),
        };
        next > self.expected && self.hold.is_some_and(|hold| self.samples_before(next) > hold) && !is_ignored
    }

    /// Returns the position after the next step.
    pub(super) fn after_next(&self) -> Position {
        self.steps.step(self.expected).map_or(self.expected, |step| step.next)
    }

    fn classify(&mut self, arrival: Arrival) -> Result<Disposition, String> {
        let step = self.steps.step(self.expected);
        match (arrival, step) {
            (Arrival::Batch { slot, next, .. }, _) if next <= self.expected => Ok(Disposition::Stale { slot }),
            (Arrival::Batch { slot, from, next }, Some(step)) if (from, next) == (step.from, step.next) => {
                self.expected = next;
                Ok(Disposition::HandOver { slot })
            }
            (Arrival::Batch { from, next, .. }, Some(step)) => {
                Err(format!("it sent the batch {from} to {next} where {} to {} is next", step.from, step.next))
            }
            (Arrival::Batch { from, .. }, None) => {
                Err(format!("it sent a batch at {from} after the last one, which ended at {}", self.expected))
            }
            (Arrival::End { position }, Some(step)) => {
                Err(format!("it ended at {position} where {} to {} is next", step.from, step.next))
            }
            (Arrival::End { position }, None) => {
                self.has_ended = true;
                Ok(Disposition::End { position })
            }
        }
    }
}

/// One link's receive window: restores the order of sequence numbers, and tracks which slots are filled.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    slots: u32,
    next_sequence: u64,
    early: BTreeMap<u64, Arrival>,
    /// Slots that are filled and not yet freed.
    held: BTreeSet<u32>,
}

impl ReceiveWindow {
    pub(super) const fn new(slots: u32) -> Self {
        Self { slots, next_sequence: 0, early: BTreeMap::new(), held: BTreeSet::new() }
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns whether the home has no slot left to fill.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() as u64 >= u64::from(self.slots)
    }

    /// Gives the slot back to the home. Returns false when it was not held.
    pub(super) fn free(&mut self, slot: u32) -> bool {
        self.held.remove(&slot)
    }

    /// Processes an arrival, and appends the decisions that follow from it to `dispositions`, in order. They are valid also
    /// when a later arrival causes an error.
    pub(super) fn arrive(
        &mut self,
        stream: &mut ExpectedStream,
        sequence: u64,
        arrival: Arrival,
        dispositions: &mut Vec<Disposition>,
    ) -> Result<(), String> {
        if let Arrival::Batch { slot, .. } = arrival
            && (slot >= self.slots || !self.held.insert(slot))
        {
            return Err(format!("it filled slot {slot} of {}, which was not its to fill", self.slots));
        }
        let ahead = sequence.checked_sub(self.next_sequence);
        // At most one batch per slot can be ahead; the end may be one further.
        if ahead.is_none_or(|ahead| ahead > u64::from(self.slots)) || self.early.insert(sequence, arrival).is_some() {
            return Err(format!("it sent batch number {sequence} where {} is next", self.next_sequence));
        }
        self.accept(stream, dispositions)
    }

    /// Processes the arrivals that are next, as far as the stream may go, and appends the decisions that follow.
    pub(super) fn accept(
        &mut self,
        stream: &mut ExpectedStream,
        dispositions: &mut Vec<Disposition>,
    ) -> Result<(), String> {
        while let Some(arrival) = self.early.get(&self.next_sequence).filter(|arrival| !stream.holds(arrival)).copied()
        {
            self.early.remove(&self.next_sequence);
            self.next_sequence += 1;
            dispositions.push(stream.classify(arrival)?);
        }
        Ok(())
    }
}
