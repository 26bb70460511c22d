//! What happens to samples that are bad.

use serde::{Deserialize, Serialize};

use super::{JobFile, PlainKey};

/// What happens to a sample that does not decode or lacks a field. All ranks make the same number of steps with each
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BadSamples {
    /// Another sample takes its place, the same one in every run: a hash of (seed, epoch, offset, attempt) chooses it.
    /// `stats()` and `spdl-ctl status` count it.
    #[default]
    Substitute,
    /// The entry is zeros in all columns, with a flag, and `batch.valid` is false; it is counted, too. A sample that an
    /// evaluation cannot read is then missing in it, and no other one counts twice.
    Mask,
    /// The job fails.
    Fail,
}

pub(super) struct BadSamplesKey;

impl PlainKey for BadSamplesKey {
    type Value = BadSamples;

    fn value(file: &JobFile, _samples: u64) -> BadSamples {
        file.bad_samples()
    }
}

impl JobFile {
    /// Returns the policy for bad samples: the one in the file, or the default.
    #[must_use]
    pub fn bad_samples(&self) -> BadSamples {
        let is_once = self.epochs == 1 && self.run_samples().is_none();
        let is_evaluation = !self.shuffle && is_once && self.epoch_end().is_whole();
        // A bad document has no labels in its sequence, whose other documents keep theirs.
        let is_masked = is_evaluation || self.sequence.is_some();
        self.bad_samples.unwrap_or(if is_masked { BadSamples::Mask } else { BadSamples::Substitute })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn by_default_an_evaluation_masks_bad_samples_and_a_training_substitutes_them() {
        for (keys, expected) in [
            ("epochs = 1", BadSamples::Substitute),
            ("shuffle = false", BadSamples::Mask),
            ("shuffle = false\nepoch_end = \"exact\"", BadSamples::Mask),
            ("shuffle = false\nepoch_end = \"drop\"", BadSamples::Substitute),
            ("shuffle = false\nbad_samples = \"fail\"", BadSamples::Fail),
        ] {
            let job = testing::frozen(&format!("global_batch = 64\n{keys}"), 1000);
            assert_eq!(job.bad_samples, expected, "{keys}");
        }
    }
}
