//! Which batches are handed over: in order, each once, none left out.

use std::collections::{BTreeMap, BTreeSet};

use spdl_shard::{
    Position,
    job::{EpochEnd, Job},
};

/// What arrived on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Batch { slot: u32, from: Position, next: Position },
    End { position: Position },
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    HandOver {
        slot: u32,
    },
    /// The trainer has had it already.
    Stale {
        slot: u32,
    },
    End {
        position: Position,
    },
}

/// The stream as the trainer is to see it: which batch may follow which position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    samples: u64,
    global_batch: u64,
    epochs: u64,
    epoch_end: EpochEnd,
    /// Where the next batch starts.
    pub(super) expected: Position,
}

impl Stream {
    pub(super) const fn new(job: &Job, global_batch: u32, start: Position) -> Self {
        Self {
            samples: job.samples,
            global_batch: global_batch as u64,
            epochs: job.epochs,
            epoch_end: job.epoch_end,
            expected: start,
        }
    }

    /// Where a batch starts that begins at `position` or, when nothing starts there any more, after it.
    const fn normal(&self, position: Position) -> Position {
        let left = self.samples.saturating_sub(position.offset);
        let over = match self.epoch_end {
            EpochEnd::Drop => left < self.global_batch,
            EpochEnd::Pad | EpochEnd::Continuous | EpochEnd::Exact => left == 0,
        };
        if over { Position::new(position.epoch.saturating_add(1), 0) } else { position }
    }

    fn judge(&mut self, arrival: Arrival) -> Result<Verdict, String> {
        let expected = self.normal(self.expected);
        match arrival {
            Arrival::Batch { slot, next, .. } if next <= self.expected => Ok(Verdict::Stale { slot }),
            Arrival::Batch { from, next, .. } if self.normal(from) != expected || next <= from => {
                Err(format!("it sent the batch {from} to {next} where {expected} is next"))
            }
            Arrival::Batch { slot, next, .. } => {
                self.expected = next;
                Ok(Verdict::HandOver { slot })
            }
            Arrival::End { position } if !self.is_over(expected) => {
                Err(format!("it ended at {position} where {expected} is next of {} epochs", self.epochs))
            }
            Arrival::End { position } => Ok(Verdict::End { position }),
        }
    }

    /// Whether nothing starts at or after `position`.
    const fn is_over(&self, position: Position) -> bool {
        let last = self.epochs.saturating_sub(1);
        let left = self.samples.saturating_sub(position.offset);
        // A continuous stream ends where a whole batch is no longer left of the last epoch.
        let short = matches!(self.epoch_end, EpochEnd::Continuous) && left < self.global_batch;
        // A dataset smaller than a batch has no whole batch in any epoch.
        let never = matches!(self.epoch_end, EpochEnd::Drop) && self.samples < self.global_batch;
        never || position.epoch >= self.epochs || position.epoch == last && short
    }
}

/// One link's side of it: arrivals in the order of their sequence, and slots that the home waits for.
#[derive(Debug)]
pub(super) struct Inflow {
    slots: u32,
    next_sequence: u64,
    early: BTreeMap<u64, Arrival>,
    /// Slots that are filled and not yet freed.
    held: BTreeSet<u32>,
}

impl Inflow {
    pub(super) const fn new(slots: u32) -> Self {
        Self { slots, next_sequence: 0, early: BTreeMap::new(), held: BTreeSet::new() }
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether the home has no slot left to fill.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() as u64 >= u64::from(self.slots)
    }

    /// The slot is the home's again. False when it was not held.
    pub(super) fn free(&mut self, slot: u32) -> bool {
        self.held.remove(&slot)
    }

    /// Takes an arrival, and adds to `verdicts` what can be decided by it, in order; they hold also when a later one is
    /// an error.
    pub(super) fn arrive(
        &mut self,
        stream: &mut Stream,
        sequence: u64,
        arrival: Arrival,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), String> {
        if let Arrival::Batch { slot, .. } = arrival
            && (slot >= self.slots || !self.held.insert(slot))
        {
            return Err(format!("it filled slot {slot} of {}, which was not its to fill", self.slots));
        }
        let ahead = sequence.checked_sub(self.next_sequence);
        // No more batches can be ahead than there are slots; the end may be one further.
        if ahead.is_none_or(|ahead| ahead > u64::from(self.slots)) || self.early.insert(sequence, arrival).is_some() {
            return Err(format!("it sent batch number {sequence} where {} is next", self.next_sequence));
        }
        while let Some(arrival) = self.early.remove(&self.next_sequence) {
            self.next_sequence += 1;
            verdicts.push(stream.judge(arrival)?);
        }
        Ok(())
    }
}
