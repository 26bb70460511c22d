//! A sampling: the samples of a view, of which each class gives as many in an epoch as it shall.

use std::sync::Arc;

use super::{MAX_VIEW_BYTES, SampleSet, SampleSetBuilder, SetError};
use spdl_types::SampleId;

/// The first bytes of an encoded sampling.
pub(super) const MAGIC: [u8; 8] = *b"SPDLCLS\n";
const VERSION: u32 = 1;

/// Upper limit of the classes of a sampling.
pub const MAX_SAMPLED_CLASSES: usize = 1 << 16;

/// Upper limit of the samples in an epoch of a sampling. A plan keeps one to two bits for each of them and for each sample of the dataset,
/// for each of the epochs that it used last.
pub const MAX_SAMPLED: u64 = 1 << 28;

/// Upper limit of the bytes of the name of a class.
const MAX_NAME_BYTES: usize = 1024;

/// Classes whose numbers take one byte.
const CLASSES_OF_A_BYTE: usize = 256;

/// A class of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledClass {
    /// Its value, as text.
    pub name: String,
    /// Number of samples that it has.
    pub samples: u64,
    /// Number of samples that it gives in an epoch.
    pub given: u64,
}

/// The samples of a view and their classes. In each epoch a class gives the same number of samples. If it has fewer, its samples come
/// several times; if it has more, they take turns. Over any epochs a sample comes as often as its class-mates, to less than one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSampling {
    /// What tells the classes, for messages.
    by: String,
    kept: Arc<SampleSet>,
    classes: Box<[SampledClass]>,
    /// The class of each sample that is kept, in the order of their ids.
    numbers: Box<[u16]>,
}

/// The samples of an epoch of a sampling, in the order of their ids; one that comes several times has as many neighbours.
#[derive(Debug)]
pub(crate) struct EpochSamples {
    /// The sum of number and id of each sample. These are all different, so that they are a set.
    sums: SampleSet,
}

impl ClassSampling {
    /// Creates a sampling of samples by their classes: the name of each class and the samples that it gives in an epoch, and the class of each
    /// sample in the order of ids.
    ///
    /// # Errors
    /// [`SetError`] if a class gives nothing or has no sample, if there are too many of anything, or not one class for each sample.
    pub fn new(
        by: String,
        kept: Arc<SampleSet>,
        classes: impl IntoIterator<Item = (String, u64)>,
        numbers: Vec<u16>,
    ) -> Result<Self, SetError> {
        let wrong = |problem: String| Err(SetError::Malformed(problem));
        let class = |(name, given)| SampledClass { name, samples: 0, given };
        let mut classes: Box<[SampledClass]> = classes.into_iter().map(class).collect();
        if classes.len() > MAX_SAMPLED_CLASSES {
            return wrong(format!("it has {} classes, more than {MAX_SAMPLED_CLASSES}", classes.len()));
        }
        if numbers.len() as u64 != kept.len() {
            return wrong(format!("it has the classes of {} samples, not of {}", numbers.len(), kept.len()));
        }
        for number in &numbers {
            match classes.get_mut(usize::from(*number)) {
                Some(class) => class.samples += 1,
                None => return wrong(format!("a sample is of class number {number}, of {}", classes.len())),
            }
        }
        let mut given = 0_u64;
        for class in &classes {
            if class.samples == 0 || class.given == 0 {
                return wrong(format!("class `{}` gives {} of {} samples", class.name, class.given, class.samples));
            }
            given = given.saturating_add(class.given);
        }
        if given > MAX_SAMPLED {
            return wrong(format!("an epoch has {given} samples, more than {MAX_SAMPLED}"));
        }
        if std::iter::once(&by).chain(classes.iter().map(|class| &class.name)).any(|name| name.len() > MAX_NAME_BYTES) {
            return wrong(format!("a name is longer than {MAX_NAME_BYTES} bytes"));
        }
        Ok(Self { by, kept, classes, numbers: numbers.into() })
    }

    /// Returns what tells the classes.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Returns the samples of all classes.
    #[must_use]
    pub const fn kept(&self) -> &Arc<SampleSet> {
        &self.kept
    }

    /// Returns the classes.
    #[must_use]
    pub fn classes(&self) -> &[SampledClass] {
        &self.classes
    }

    /// Returns the number of samples in an epoch.
    #[must_use]
    pub fn in_epoch(&self) -> u64 {
        self.classes.iter().map(|class| class.given).sum()
    }

    /// Returns how often a sample comes in an epoch at most.
    pub(crate) fn repeats(&self) -> u64 {
        self.classes.iter().map(|class| class.given.div_ceil(class.samples)).max().unwrap_or(1)
    }

    /// Returns the number of another sample of the class of sample number `number` of those that are kept: the first one from `from` on, after
    /// the last one from the beginning. `None` if the class has no other.
    pub(crate) fn other_of_class(&self, number: u64, from: u64) -> Option<u64> {
        let (number, from) = (number as usize, from as usize);
        let class = self.numbers[number];
        let is_other = |other: &usize| self.numbers[*other] == class && *other != number;
        (from..self.numbers.len()).chain(0..from).find(is_other).map(|other| other as u64)
    }

    /// Returns the samples of an epoch, and how many of them are in each block, where `starts` has the number of the first sample of each block
    /// among those that are kept, and all of these at the end.
    ///
    /// Sample number i of a class with n of them, which gives t, comes floor((i + epoch + 1) t / n) - floor((i + epoch) t / n) times.
    pub(crate) fn of_epoch(&self, epoch: u64, starts: &[u64]) -> (EpochSamples, Vec<u32>) {
        // The remainder of (i + epoch) t / n of each class, where i is its next sample.
        let remainder =
            |class: &SampledClass| (u128::from(epoch) * u128::from(class.given) % u128::from(class.samples)) as u64;
        let mut remainders: Vec<u64> = self.classes.iter().map(remainder).collect();
        let mut sums = SampleSetBuilder::unlimited();
        let mut of_blocks = vec![0_u32; starts.len() - 1];
        let mut block = 0;
        for (number, class) in (0..).zip(&self.numbers) {
            while starts[block + 1] <= number {
                block += 1;
            }
            let SampledClass { samples, given, .. } = &self.classes[usize::from(*class)];
            let remainder = &mut remainders[usize::from(*class)];
            *remainder += given;
            if *remainder < *samples {
                continue;
            }
            let (times, id) = (*remainder / samples, self.kept.select(number));
            *remainder %= samples;
            for _ in 0..times {
                sums.keep(SampleId(id.0 + sums.len())).expect("the builder has no limit");
            }
            // All samples of an epoch are fewer than 2^32.
            of_blocks[block] += times as u32;
        }
        let sums = sums.finish(self.kept.universe() + self.in_epoch()).expect("the builder has no limit");
        (EpochSamples { sums }, of_blocks)
    }

    /// Returns the encoded sampling.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let set = self.kept.encode();
        let mut bytes = Vec::with_capacity(set.len() + 2 * self.numbers.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        put_text(&mut bytes, &self.by);
        bytes.extend_from_slice(&(self.classes.len() as u32).to_le_bytes());
        for class in &self.classes {
            bytes.extend_from_slice(&class.given.to_le_bytes());
            put_text(&mut bytes, &class.name);
        }
        bytes.extend_from_slice(&(set.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&set);
        if self.classes.len() <= CLASSES_OF_A_BYTE {
            bytes.extend(self.numbers.iter().map(|number| *number as u8));
        } else {
            bytes.extend(self.numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes
    }

    /// Reads an encoded sampling of samples of a dataset that has `universe` of them.
    ///
    /// # Errors
    /// If the bytes are not a complete sampling of such a dataset. Memory is in proportion to the bytes.
    pub fn decode(bytes: &[u8], universe: u64) -> Result<Self, SetError> {
        if bytes.len() > MAX_VIEW_BYTES {
            return Err(SetError::TooLong);
        }
        let mut rest =
            bytes.strip_prefix(&MAGIC).ok_or_else(|| SetError::Malformed("it does not begin as one".to_owned()))?;
        let version = take_number(&mut rest)?;
        if version != VERSION {
            return Err(SetError::Newer { version });
        }
        let by = take_text(&mut rest)?;
        let count = take_number(&mut rest)? as usize;
        if count > MAX_SAMPLED_CLASSES {
            return Err(SetError::Malformed(format!("it has {count} classes")));
        }
        let mut classes = Vec::new();
        for _ in 0..count {
            let given = u64::from_le_bytes(take(&mut rest, 8)?.try_into().expect("eight bytes"));
            classes.push((take_text(&mut rest)?, given));
        }
        let length = take_number(&mut rest)? as usize;
        let kept = Arc::new(SampleSet::decode(take(&mut rest, length)?, universe)?);
        let numbers: Vec<u16> = if count <= CLASSES_OF_A_BYTE {
            rest.iter().map(|number| u16::from(*number)).collect()
        } else {
            let (pairs, odd) = rest.as_chunks::<2>();
            if !odd.is_empty() {
                return Err(SetError::Truncated);
            }
            pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect()
        };
        if (numbers.len() as u64) < kept.len() {
            return Err(SetError::Truncated);
        }
        Self::new(by, kept, classes, numbers)
    }
}

impl EpochSamples {
    /// Returns sample number `nth` of the epoch.
    #[inline]
    pub(crate) fn select(&self, nth: u64) -> SampleId {
        SampleId(self.sums.select(nth).0 - nth)
    }

    /// Returns how often sample number `nth` has come before it in the epoch, where none comes more than `most` times.
    pub(crate) fn repeat(&self, nth: u64, most: u64) -> u64 {
        let id = self.select(nth);
        let (mut low, mut high) = (nth.saturating_sub(most - 1), nth);
        while low < high {
            let middle = low.midpoint(high);
            if self.select(middle) == id {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        nth - low
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8], SetError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(SetError::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

fn take_number(bytes: &mut &[u8]) -> Result<u32, SetError> {
    Ok(u32::from_le_bytes(take(bytes, 4)?.try_into().expect("four bytes")))
}

fn take_text(bytes: &mut &[u8]) -> Result<String, SetError> {
    let length = take_number(bytes)? as usize;
    let text = std::str::from_utf8(take(bytes, length)?);
    text.map(str::to_owned).map_err(|_| SetError::Malformed("a name is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sampling of every second sample, where each of `given` is a class of about half the samples of the one before.
    fn sampling(samples: u64, given: &[u64]) -> ClassSampling {
        let mut set = SampleSetBuilder::default();
        (0..samples).for_each(|sample| set.keep(SampleId(2 * sample)).unwrap());
        let last = given.len() as u32 - 1;
        let numbers = (1..=samples).map(|sample| sample.trailing_zeros().min(last) as u16).collect();
        let classes = given.iter().enumerate().map(|(number, given)| (format!("class {number}"), *given));
        ClassSampling::new("cls".to_owned(), Arc::new(set.finish(2 * samples + 1).unwrap()), classes, numbers).unwrap()
    }

    #[test]
    fn each_class_gives_its_number_in_every_epoch_and_its_samples_come_equally_often() {
        for given in [[100, 100, 100], [1, 7, 1000], [250, 125, 125], [3, 500, 130]] {
            let sampling = sampling(500, &given);
            let starts = [0, 3, 3, 400, 500];
            let mut before = vec![0_u64; 1001];
            for epoch in 0..40 {
                let (samples, of_blocks) = sampling.of_epoch(epoch, &starts);
                let ids: Vec<u64> = (0..sampling.in_epoch()).map(|nth| samples.select(nth).0).collect();
                assert!(ids.is_sorted(), "epoch {epoch} of {given:?}");
                let mut of_classes = [0_u64; 3];
                for (nth, id) in (0..).zip(&ids) {
                    let class = (id / 2 + 1).trailing_zeros().min(2) as usize;
                    of_classes[class] += 1;
                    before[*id as usize] += 1;
                    let first = ids.partition_point(|other| other < id) as u64;
                    assert_eq!(samples.repeat(nth, sampling.repeats()), nth - first);
                }
                assert_eq!(of_classes, given, "epoch {epoch}");
                let of_block = |block: usize| {
                    let range = 2 * starts[block]..2 * starts[block + 1];
                    ids.iter().filter(|id| range.contains(id)).count() as u32
                };
                assert_eq!(of_blocks, [0, 1, 2, 3].map(of_block), "epoch {epoch} of {given:?}");
                for (class, of_class) in sampling.classes().iter().enumerate() {
                    let mates = (1..=500_u64).filter(|sample| sample.trailing_zeros().min(2) as usize == class);
                    for sample in mates {
                        let share = of_class.given * (epoch + 1);
                        let off = (before[2 * (sample - 1) as usize] * of_class.samples).abs_diff(share);
                        assert!(off < of_class.samples, "sample {sample} after epoch {epoch} of {given:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn another_sample_of_a_class_is_found_from_any_sample_on() {
        let sampling = sampling(8, &[5, 5, 5]);
        // The classes are 0, 1, 0, 2, 0, 1, 0, 2.
        assert_eq!([0, 1, 7].map(|from| sampling.other_of_class(0, from)), [Some(2), Some(2), Some(2)]);
        assert_eq!([2, 6].map(|from| sampling.other_of_class(1, from)), [Some(5); 2]);
        assert_eq!(self::sampling(4, &[1, 1, 1]).other_of_class(3, 0), None);
    }

    #[test]
    fn a_sampling_reads_back_and_damaged_bytes_are_refused_or_are_another() {
        let many = vec![1; 12];
        for sampling in [sampling(500, &[100, 20, 3]), sampling(1 << 12, &many)] {
            let (bytes, universe) = (sampling.encode(), sampling.kept().universe());
            assert_eq!(ClassSampling::decode(&bytes, universe).unwrap(), sampling);
            for cut in 0..bytes.len() {
                assert!(ClassSampling::decode(&bytes[..cut], universe).is_err(), "{cut}");
            }
            assert!(ClassSampling::decode(&[&bytes[..], &[0, 0]].concat(), universe).is_err());
            assert!(ClassSampling::decode(&bytes, universe + 1).is_err());
            for at in 0..bytes.len().min(400) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x55;
                if let Ok(other) = ClassSampling::decode(&damaged, universe) {
                    assert_eq!(other.encode(), damaged, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_sampling_is_refused() {
        let set = Arc::new(sampling(4, &[1, 1, 1]).kept().as_ref().clone());
        let class = |given| ("a".to_owned(), given);
        let problem = |classes: Vec<(String, u64)>, numbers: &[u16]| {
            ClassSampling::new("cls".to_owned(), set.clone(), classes, numbers.into()).unwrap_err().to_string()
        };
        for (found, expected) in [
            (problem(vec![class(1)], &[0; 3]), "the classes of 3 samples, not of 4"),
            (problem(vec![class(1)], &[0, 0, 1, 0]), "a sample is of class number 1, of 1"),
            (problem(vec![class(0)], &[0; 4]), "class `a` gives 0 of 4 samples"),
            (problem(vec![class(1), class(1)], &[0; 4]), "class `a` gives 1 of 0 samples"),
            (problem(vec![class(MAX_SAMPLED + 1)], &[0; 4]), "more than 268435456"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }
}
