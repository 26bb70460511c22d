//! Which batches are handed over: in order, each once, none left out.

use std::collections::{BTreeMap, BTreeSet};

use spdl_shard::{Position, job::Job, order::BatchParams};

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
    batch: BatchParams,
    /// Position after the last batch that was let through.
    pub(super) expected: Position,
}

impl Stream {
    pub(super) fn new(job: &Job, global_batch: u32, start: Position) -> Self {
        Self { samples: job.samples, batch: BatchParams { global_batch, ..job.into() }, expected: start }
    }

    /// Position after the step that is next.
    pub(super) fn after_next(&self) -> Position {
        self.batch.step(self.samples, self.expected).map_or(self.expected, |step| step.next)
    }

    fn judge(&mut self, arrival: Arrival) -> Result<Verdict, String> {
        let step = self.batch.step(self.samples, self.expected);
        match (arrival, step) {
            (Arrival::Batch { slot, next, .. }, _) if next <= self.expected => Ok(Verdict::Stale { slot }),
            (Arrival::Batch { slot, from, next }, Some(step)) if (from, next) == (step.from, step.next) => {
                self.expected = next;
                Ok(Verdict::HandOver { slot })
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
            (Arrival::End { position }, None) => Ok(Verdict::End { position }),
        }
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
