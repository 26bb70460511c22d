//! Batches that are given again and again, so that the trainer's own speed is measured with no loader behind it.

use spdl_order::RankSteps;
use spdl_types::Position;

use crate::Delivery;

/// The batches of a loader that repeats, and where the loader would be if they were not repeated.
#[derive(Debug)]
pub(super) struct RepeatedBatches<B> {
    /// The number of batches to keep.
    count: usize,
    kept: Vec<B>,
    /// The position of the next batch of a loader that does not repeat; `None` until all batches are kept.
    at: Option<Position>,
    /// The number of batches that were given again.
    given: u64,
    /// Whether an epoch would have ended with the newest of them.
    ended_epoch: bool,
}

impl<B: Delivery> RepeatedBatches<B> {
    pub(super) const fn new(count: usize) -> Self {
        Self { count, kept: Vec::new(), at: None, given: 0, ended_epoch: false }
    }

    /// Keeps a batch that the source has given, unless all are kept. `next` is the position after it.
    pub(super) fn keep(&mut self, batch: &B, next: Position) {
        if self.kept.len() < self.count {
            self.kept.push(batch.share());
        }
        if self.kept.len() == self.count {
            self.at = Some(next);
        }
    }

    /// Returns the next batch if all are kept: `Some(None)` at the end of the last epoch.
    pub(super) fn next(
        &mut self,
        steps: &RankSteps,
        ends_epoch: impl Fn(Position, Position) -> bool,
    ) -> Option<Option<B>> {
        let at = self.at?;
        let Some(step) = steps.step(at) else { return Some(None) };
        let batch = self.kept.get(usize::try_from(self.given).unwrap_or(usize::MAX) % self.count)?.share();
        self.at = Some(step.next);
        self.given += 1;
        self.ended_epoch = ends_epoch(step.from, step.next);
        Some(Some(batch))
    }

    /// Goes to a position. Returns whether this is all that has to be done, since nothing is asked of the source any more; otherwise
    /// the batches that come from there on are kept.
    pub(super) fn go_to(&mut self, position: Position) -> bool {
        if self.at.is_none() {
            self.kept.clear();
            return false;
        }
        self.at = Some(position);
        true
    }

    /// Returns the position of the next batch of a loader that does not repeat; `None` until all batches are kept.
    pub(super) const fn at(&self) -> Option<Position> {
        self.at
    }

    /// Returns whether a batch was given again.
    pub(super) const fn has_begun(&self) -> bool {
        self.given > 0
    }

    /// Returns whether no batch is kept yet.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns whether an epoch would have ended with the newest batch that was given again.
    pub(super) const fn ended_epoch(&self) -> bool {
        self.ended_epoch
    }
}
