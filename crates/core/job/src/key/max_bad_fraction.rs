//! How many samples may be bad.

use super::{BadSamples, Job, JobFile, JobSource, PlainKey};

/// The fraction of bad samples that a job may have if its file gives none. [`DEFAULT_BAD_SAMPLES`] are allowed in any
/// case, because in a small dataset one sample exceeds the fraction.
pub const DEFAULT_BAD_FRACTION: f64 = 0.001;
/// The number of bad samples that a job may have in any case, if its file gives no fraction; see
/// [`DEFAULT_BAD_FRACTION`].
pub const DEFAULT_BAD_SAMPLES: u64 = 10;

/// Returns the default fraction for a dataset of `samples`.
fn default_bad_fraction(samples: u64) -> f64 {
    let wanted = DEFAULT_BAD_SAMPLES.min(samples) as f64;
    let mut fraction = wanted / samples.max(1) as f64;
    while fraction * (samples as f64) < wanted {
        fraction = fraction.next_up();
    }
    fraction.clamp(DEFAULT_BAD_FRACTION, 1.0)
}

pub(super) struct MaxBadFraction;

impl PlainKey for MaxBadFraction {
    type Value = f64;

    fn value(file: &JobFile, samples: u64) -> f64 {
        file.max_bad_fraction.unwrap_or_else(|| default_bad_fraction(samples))
    }

    fn check(value: &f64) -> Result<(), String> {
        if (0.0..=1.0).contains(value) { Ok(()) } else { Err(format!("is {value}, not in 0..1")) }
    }

    fn shown(value: &f64) -> String {
        value.to_string()
    }
}

impl JobFile {
    /// Returns how many of so many records or documents a view or a packing may leave out because they cannot be read: as many as
    /// samples may be bad, and none where a bad sample ends the training.
    #[must_use]
    pub fn bad_allowed(&self, records: u64) -> u64 {
        if self.bad_samples() == BadSamples::Fail {
            return 0;
        }
        (MaxBadFraction::value(self, records) * records as f64) as u64
    }
}

impl Job {
    /// Returns the job with the fraction that its file gives, or the default for the samples among which bad ones are counted.
    pub(crate) fn counting_bad_by(self, file: &JobFile) -> Self {
        Self { max_bad_fraction: MaxBadFraction::value(file, self.countable_samples()), ..self }
    }

    /// Returns among how many samples bad ones are counted: where samples are sequences, these are documents. Of several sources, they are
    /// the different samples that come in an epoch, with the weights that they have where they begin, or as many documents as these have on
    /// average.
    #[must_use]
    pub fn countable_samples(&self) -> u64 {
        if !self.sources.is_empty() {
            let of = |(number, source): (usize, &JobSource)| {
                let samples = ((self.samples as f64 * self.first_share(number)).ceil() as u64).min(source.samples);
                source.packed.map_or(samples, |packed| {
                    let documents = u128::from(samples) * u128::from(packed.documents);
                    u64::try_from(documents.div_ceil(u128::from(source.samples.max(1)))).unwrap_or(u64::MAX)
                })
            };
            return self.sources.iter().enumerate().map(of).fold(0, u64::saturating_add);
        }
        self.sequence.as_ref().map_or(self.samples, |sequence| sequence.documents)
    }

    /// Returns the number of bad samples above which the job fails.
    #[must_use]
    pub fn bad_samples_allowed(&self) -> u64 {
        (self.max_bad_fraction * self.countable_samples() as f64) as u64
    }

    /// Returns whether the job may have fewer good samples than bad ones, because its file says so.
    #[must_use]
    pub fn is_of_few_good_samples(&self) -> bool {
        self.max_bad_fraction > default_bad_fraction(self.countable_samples()).max(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn by_default_ten_bad_samples_are_not_too_many_of_any_dataset() {
        for (samples, most) in [(1, 1), (7, 7), (215, 10), (9_999, 10), (1_281_167, 1281)] {
            let exact = "global_batch = 2048\nepochs = 2048\nepoch_end = \"exact\"";
            assert_eq!(testing::frozen(exact, samples).bad_samples_allowed(), most, "of {samples}");
            let file = testing::file(exact);
            assert_eq!(file.bad_allowed(samples), most, "records of {samples} that a view leaves out");
            assert_eq!(JobFile { bad_samples: Some(BadSamples::Fail), ..file }.bad_allowed(samples), 0);
            let written = testing::frozen(&format!("{exact}\nmax_bad_fraction = 0.001"), samples);
            assert_eq!(written.max_bad_fraction, 0.001, "what is written holds");
            assert!(!written.is_of_few_good_samples() && !testing::frozen(exact, samples).is_of_few_good_samples());
        }
    }
}
