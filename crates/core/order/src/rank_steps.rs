//! The steps of one rank: those of the stream, without the ones in which the rank has no share.

use super::{BatchParams, EpochEnd, Step, batch::rank_entries, steps::RemainingSamples};
use spdl_types::Position;

/// The steps that one rank takes. They are the stream's, except that the short last batch of an epoch
/// ([`EpochEnd::Partial`]) may have fewer samples than there are ranks: a rank without a share then ends the epoch with the
/// step before.
///
/// All of it is arithmetic on the number of samples, so that a process without a plan can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankSteps {
    batches: BatchParams,
    samples: u64,
    rank: u32,
    world: u32,
}

impl RankSteps {
    /// Creates the steps of `rank` of `world` in a stream with epochs of `samples`.
    ///
    /// # Panics
    /// If the global batch or the number of samples is 0, or `rank` is not below `world`.
    #[must_use]
    pub const fn new(batches: BatchParams, samples: u64, rank: u32, world: u32) -> Self {
        assert!(batches.global_batch > 0 && samples > 0 && rank < world, "a rank of batches with samples");
        Self { batches, samples, rank, world }
    }

    /// Returns the next step at or after `from` in which the rank has a share; `None` when there is none. Its `next` is the
    /// position after the steps without a share that follow it, so that all ranks are at the same position when an
    /// epoch is over.
    #[must_use]
    pub fn step(&self, from: Position) -> Option<Step> {
        let mut step = self.batches.step(self.samples, self.pass(from))?;
        step.next = self.pass(step.next);
        Some(step)
    }

    /// Returns the position after the steps from `from` on in which the rank has no share.
    #[must_use]
    pub fn pass(&self, from: Position) -> Position {
        match self.batches.step(self.samples, from) {
            Some(step) if !self.has_share(step.global_batch.into()) => {
                // Only the last step of an epoch is short. Where the first one is short as well, the epoch has no other.
                let whole_epoch = self.steps_in(self.samples) > 0;
                if whole_epoch { step.next } else { Position::new(self.batches.epochs, 0) }
            }
            _ => from,
        }
    }

    /// Returns the largest number of steps that start in an epoch: see [`BatchParams::max_steps_per_epoch`].
    #[must_use]
    pub const fn max_per_epoch(&self) -> u64 {
        match self.batches.steps_of_cut_epoch(self.samples) {
            Some(steps) => steps,
            None => self.steps_in(self.samples),
        }
    }

    /// Returns the number of steps of an epoch, or `None` where a batch can span two epochs.
    #[must_use]
    pub fn per_epoch(&self) -> Option<u64> {
        self.batches.steps_per_epoch(self.samples).map(|_| self.max_per_epoch())
    }

    /// Returns the number of steps from `position` to the end of the stream.
    #[must_use]
    pub fn left(&self, position: Position) -> u64 {
        let all = self.batches.steps_left(self.samples, position);
        // Before an end within an epoch, no batch is short.
        let RemainingSamples { to_epoch_end, epochs, .. } = self.batches.remaining(self.samples, position);
        all - self.without_share(to_epoch_end) - epochs * self.without_share(self.samples)
    }

    /// Returns the position at which the stream ends: see [`BatchParams::end_position`].
    #[must_use]
    pub fn end(&self) -> Position {
        self.batches.end_position(self.samples)
    }

    /// Returns the epoch in which the step at `position` starts, or the number of epochs when no step is left.
    #[must_use]
    pub fn epoch_at(&self, position: Position) -> u64 {
        self.batches.epoch_at(self.samples, self.pass(position))
    }

    /// Returns the number of steps in the last `samples` of an epoch.
    const fn steps_in(&self, samples: u64) -> u64 {
        self.batches.max_steps_per_epoch(samples) - self.without_share(samples)
    }

    /// Returns the number of steps without a share in the last `samples` of an epoch: 0 or 1.
    const fn without_share(&self, samples: u64) -> u64 {
        let short = samples % self.batches.global_batch as u64;
        (matches!(self.batches.epoch_end, EpochEnd::Partial) && short > 0 && !self.has_share(short)) as u64
    }

    /// Returns whether the rank has a share of a batch of `entries`.
    const fn has_share(&self, entries: u64) -> bool {
        let share = rank_entries(entries, self.rank, self.world);
        share.start < share.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of a rank, as positions, from `from` on.
    fn all(steps: &RankSteps, from: Position) -> Vec<(Position, Position)> {
        let first = steps.step(from);
        std::iter::successors(first, |step| steps.step(step.next)).map(|step| (step.from, step.next)).collect()
    }

    fn partial(global_batch: u32, samples: u64, rank: u32, world: u32) -> RankSteps {
        let batches = BatchParams { global_batch, epochs: 3, epoch_end: EpochEnd::Partial, end: None };
        RankSteps::new(batches, samples, rank, world)
    }

    #[test]
    fn a_rank_without_a_share_of_the_last_batch_ends_the_epoch_a_step_earlier_at_the_same_position() {
        // 19 samples: batches of 8, 8 and 3, and the last one has no sample for rank 0 of 4.
        let end = |rank| all(&partial(8, 19, rank, 4), Position::START);
        for rank in 1..4 {
            assert_eq!(end(rank)[2], (Position::new(0, 16), Position::new(1, 0)), "rank {rank}");
            assert_eq!(end(rank).len(), 9, "rank {rank}");
        }
        assert_eq!(end(0)[1], (Position::new(0, 8), Position::new(1, 0)));
        assert_eq!(end(0).len(), 6);
    }

    #[test]
    fn the_counts_are_those_of_the_steps_themselves() {
        for (samples, global_batch, world) in [(19, 8, 4), (19, 8, 8), (16, 8, 4), (7, 8, 7), (8, 8, 8), (9, 8, 8)] {
            for rank in 0..world {
                let steps = partial(global_batch, samples, rank, world);
                let case = format!("{samples} samples in batches of {global_batch}, rank {rank} of {world}");
                for at in (0..=samples).flat_map(|offset| [0, 1, 2].map(|epoch| Position::new(epoch, offset))) {
                    let all = all(&steps, at);
                    assert_eq!(steps.left(at), all.len() as u64, "{case}, from {at}");
                    if at.offset < samples {
                        let epoch = all.first().map_or(3, |(from, _)| from.epoch);
                        assert_eq!(steps.epoch_at(at), epoch, "{case}, at {at}");
                    }
                    let end = all.last().map_or(steps.pass(at), |(_, next)| *next);
                    assert!(end == Position::new(3, 0) || at == Position::new(2, samples), "{case}, from {at}: {end}");
                }
                let of_epoch = all(&steps, Position::new(2, 0)).len() as u64;
                assert_eq!((steps.max_per_epoch(), steps.per_epoch()), (of_epoch, Some(of_epoch)), "{case}");
            }
        }
    }

    #[test]
    fn the_counts_are_those_of_the_steps_up_to_an_end_within_an_epoch() {
        for (end, rank) in (0..=60).flat_map(|end| [0, 3].map(|rank| (end, rank))) {
            let batches = BatchParams { global_batch: 8, epochs: 3, epoch_end: EpochEnd::Partial, end: Some(end) };
            let steps = RankSteps::new(batches, 19, rank, 4);
            for at in (0..=19).flat_map(|offset| [0, 1, 2].map(|epoch| Position::new(epoch, offset))) {
                assert_eq!(steps.left(at), all(&steps, at).len() as u64, "end {end}, rank {rank}, from {at}");
            }
            if end < 19 {
                assert_eq!(steps.max_per_epoch(), end / 8);
            }
        }
    }

    #[test]
    fn a_rank_without_a_share_of_any_batch_has_no_step() {
        let batches = BatchParams { global_batch: 8, epochs: u64::MAX, epoch_end: EpochEnd::Partial, end: None };
        let steps = RankSteps::new(batches, 3, 0, 8);
        assert_eq!((steps.step(Position::START), steps.left(Position::START)), (None, 0));
        assert_eq!(steps.pass(Position::START), Position::new(u64::MAX, 0));
    }

    #[test]
    fn with_every_other_policy_all_ranks_have_the_steps_of_the_stream() {
        for epoch_end in [EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact] {
            let batches = BatchParams { global_batch: 8, epochs: 3, epoch_end, end: None };
            for at in (0..=19).flat_map(|offset| [0, 1, 2].map(|epoch| Position::new(epoch, offset))) {
                for rank in 0..8 {
                    let steps = RankSteps::new(batches, 19, rank, 8);
                    assert_eq!(steps.step(at), batches.step(19, at), "{epoch_end:?} at {at}");
                    assert_eq!(steps.left(at), batches.steps_left(19, at), "{epoch_end:?} at {at}");
                }
            }
        }
    }
}
