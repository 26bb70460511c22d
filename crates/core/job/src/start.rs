//! The positions in a job's stream where a launch can start.

use super::Job;
use spdl_order::BatchParams;
use spdl_types::{
    Position,
    mutations::{Mutation, mutated},
};

/// Returns whether a text can be the name of a job or of a run: 1 to 128 of `[A-Za-z0-9._-]`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

impl Job {
    /// Returns how the job's stream is cut into steps, with batches of `global_batch`.
    #[must_use]
    pub fn batches(&self, global_batch: u32) -> BatchParams {
        let of_sources = self.end_of_sources().filter(|_| !mutated(Mutation::PassEnd));
        let end = of_sources.into_iter().chain(self.total_samples).min();
        BatchParams { global_batch, epochs: self.epochs, epoch_end: self.epoch_end, end }
    }

    /// Explains why `position` is in no epoch of the stream; `None` if it is in one, or at the end of one.
    #[must_use]
    pub fn offset_problem(&self, position: Position) -> Option<String> {
        let (offset, samples) = (position.offset, self.samples);
        (offset > samples).then(|| format!("offset {offset} is past the end of an epoch: it has {samples} samples"))
    }

    /// Explains why a launch cannot start at `start`, with the range that is possible; `None` if it can.
    #[must_use]
    pub fn start_problem(&self, global_batch: u32, start: Position) -> Option<String> {
        let Self { epochs, samples, .. } = self;
        if start.epoch >= *epochs {
            return Some(format!(
                "epoch {} is past the end: there are {epochs}, from 0 to {}",
                start.epoch,
                epochs - 1
            ));
        }
        self.offset_problem(start).or_else(|| {
            let batches = self.batches(global_batch);
            (batches.steps_left(*samples, start) == 0).then(|| {
                let end = batches.end_position(*samples);
                if end.offset > 0 {
                    let end = self.samples_before(end);
                    return format!("no batch of {global_batch} is left there: the stream ends after {end} samples");
                }
                format!(
                    "no batch of {global_batch} is left there: the last epoch is {} and has {samples} samples",
                    epochs - 1
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "lr-3e-4", "A.b_c", &"x".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
