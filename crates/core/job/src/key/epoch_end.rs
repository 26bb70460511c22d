//! What happens at the end of an epoch.

use spdl_order::EpochEnd;

use super::{JobFile, PlainKey};

pub(super) struct EpochEndKey;

impl PlainKey for EpochEndKey {
    type Value = EpochEnd;

    fn value(file: &JobFile, _samples: u64) -> EpochEnd {
        file.epoch_end()
    }
}

impl JobFile {
    /// Returns the policy at the end of an epoch: the one in the file, or the default.
    #[must_use]
    pub fn epoch_end(&self) -> EpochEnd {
        let is_in_order_once = !self.shuffle && self.epochs == 1 && self.run_samples().is_none();
        self.epoch_end.unwrap_or(if is_in_order_once { EpochEnd::Partial } else { EpochEnd::Drop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn by_default_only_one_epoch_in_the_dataset_s_order_has_a_short_last_batch() {
        for (keys, expected, is_evaluation) in [
            ("epochs = 90", EpochEnd::Drop, false),
            ("epochs = 1", EpochEnd::Drop, false),
            ("epochs = 2\nshuffle = false", EpochEnd::Drop, false),
            ("shuffle = false", EpochEnd::Partial, true),
            ("shuffle = false\nepoch_end = \"drop\"", EpochEnd::Drop, false),
            ("shuffle = false\nepoch_end = \"exact\"", EpochEnd::Exact, true),
            ("shuffle = false\nepoch_end = \"pad\"", EpochEnd::Pad, true),
        ] {
            let job = testing::frozen(&format!("global_batch = 64\n{keys}"), 1000);
            assert_eq!((job.epoch_end, job.is_evaluation()), (expected, is_evaluation), "{keys}");
        }
    }
}
