//! The positions in a job's stream where a launch can start, and the number of steps from there.

use crate::Position;

use super::{EpochEnd, Job};

/// Returns whether a text can be the name of a job or of a run: 1 to 128 of `[A-Za-z0-9._-]`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

impl Job {
    /// Returns the number of steps from `position` to the end of the last epoch, with batches of `global_batch`, which
    /// must not be 0.
    #[must_use]
    pub fn steps_left(&self, global_batch: u32, position: Position) -> u64 {
        let batch = u64::from(global_batch);
        let Some(later_epochs) = self.epochs.checked_sub(position.epoch).and_then(|left| left.checked_sub(1)) else {
            return 0;
        };
        let left = self.samples.saturating_sub(position.offset);
        match self.epoch_end {
            EpochEnd::Drop => left / batch + later_epochs * (self.samples / batch),
            EpochEnd::Pad | EpochEnd::Exact => left.div_ceil(batch) + later_epochs * self.samples.div_ceil(batch),
            EpochEnd::Continuous => {
                let samples = u128::from(left) + u128::from(later_epochs) * u128::from(self.samples);
                u64::try_from(samples / u128::from(batch)).unwrap_or(u64::MAX)
            }
        }
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
        if start.offset > *samples {
            return Some(format!("offset {} is past the end of an epoch: it has {samples} samples", start.offset));
        }
        (self.steps_left(global_batch, start) == 0).then(|| {
            format!(
                "no batch of {global_batch} is left there: the last epoch is {} and has {samples} samples",
                epochs - 1
            )
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
