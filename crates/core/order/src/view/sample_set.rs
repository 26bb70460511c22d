//! A set of samples of a dataset, compressed, with look-ups by number in constant time.

use super::{
    MAX_VIEW_BYTES, SetError,
    chunk::{CHUNK_SAMPLES, Chunk, ChunkBitmap},
};
use spdl_types::{Fingerprint, SampleId};

/// The first bytes of an encoded set.
const MAGIC: [u8; 8] = *b"SPDLSET\n";
/// Bytes before the chunks: magic, version, the samples of the dataset, and those of the set.
const HEAD_BYTES: usize = 28;
const VERSION: u32 = 1;

/// The samples of a dataset that a view keeps.
///
/// A set of up to 65,536 neighbouring samples is a run, a list or a bit for each, whichever is smallest: 1 of 10 samples
/// at random takes 1 bit for each sample of the dataset, and neighbours take nearly nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SampleSet {
    /// Number of samples of the dataset.
    universe: u64,
    chunks: Box<[Chunk]>,
    /// Samples of the set before each chunk, and all of them at the end.
    before: Box<[u64]>,
    /// The chunk that holds each 4,096th sample of the set: where the search for those that follow it begins.
    hints: Box<[u32]>,
}

/// Samples between two hints at the chunk that holds them.
const HINT_SAMPLES: u64 = 4096;

impl SampleSet {
    /// Returns the number of samples in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.before[self.chunks.len()]
    }

    /// Returns whether the set has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of samples of the dataset that the set was made of.
    #[must_use]
    pub const fn universe(&self) -> u64 {
        self.universe
    }

    /// Returns sample number `nth` of the set, in the order of their ids.
    ///
    /// # Panics
    /// If there is no such sample.
    #[inline]
    #[must_use]
    pub fn select(&self, nth: u64) -> SampleId {
        assert!(nth < self.len(), "sample {nth} of {}", self.len());
        let hint = (nth / HINT_SAMPLES) as usize;
        let last = self.hints.get(hint + 1).map_or(self.chunks.len(), |chunk| *chunk as usize + 1);
        let first = self.hints[hint] as usize;
        let chunk = first + self.before[first..last].partition_point(|before| *before <= nth) - 1;
        let place = self.chunks[chunk].select((nth - self.before[chunk]) as u32);
        SampleId(chunk as u64 * CHUNK_SAMPLES + u64::from(place))
    }

    /// Returns the number of samples of the set with a lower id than `id`.
    #[must_use]
    pub fn below(&self, id: SampleId) -> u64 {
        let chunk = usize::try_from(id.0 / CHUNK_SAMPLES).unwrap_or(usize::MAX);
        match self.chunks.get(chunk) {
            Some(samples) => self.before[chunk] + u64::from(samples.below((id.0 % CHUNK_SAMPLES) as u32)),
            None => self.len(),
        }
    }

    /// Returns whether a sample is in the set.
    #[must_use]
    pub fn contains(&self, id: SampleId) -> bool {
        id.0 < self.universe && self.below(SampleId(id.0 + 1)) > self.below(id)
    }

    /// Returns the encoded set.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let chunks: usize = self.chunks.iter().map(Chunk::encoded_bytes).sum();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + chunks);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.universe.to_le_bytes());
        bytes.extend_from_slice(&self.len().to_le_bytes());
        self.chunks.iter().for_each(|chunk| chunk.encode(&mut bytes));
        bytes
    }

    /// Returns the fingerprint of the set. Equal sets have equal ones: a set has one encoding.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.encode())
    }

    /// Reads an encoded set of samples of a dataset that has `universe` of them.
    ///
    /// # Errors
    /// If the bytes are not a complete set of samples of such a dataset. Memory is in proportion to the bytes.
    pub fn decode(bytes: &[u8], universe: u64) -> Result<Self, SetError> {
        if bytes.len() > MAX_VIEW_BYTES {
            return Err(SetError::TooLong);
        }
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(SetError::Truncated)?;
        if head[..8] != MAGIC {
            return Err(SetError::Malformed("it does not begin as one".to_owned()));
        }
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(SetError::Newer { version });
        }
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (theirs, samples) = (number(12), number(20));
        if theirs != universe {
            return Err(SetError::OtherDataset { theirs, ours: universe });
        }
        let count = universe.div_ceil(CHUNK_SAMPLES);
        // A chunk takes three bytes or more.
        if count > rest.len() as u64 {
            return Err(SetError::Truncated);
        }
        let chunks = (0..count).map(|_| Chunk::decode(&mut rest)).collect::<Result<Vec<_>, _>>()?;
        let set = Self::of_chunks(universe, chunks);
        if !rest.is_empty() || set.len() != samples || set.below(SampleId(universe)) != samples {
            return Err(SetError::Malformed("it has other samples than its head says".to_owned()));
        }
        Ok(set)
    }

    fn of_chunks(universe: u64, chunks: Vec<Chunk>) -> Self {
        let mut sum = 0;
        let mut before = Vec::with_capacity(chunks.len() + 1);
        before.push(0);
        before.extend(chunks.iter().map(|chunk| {
            sum += u64::from(chunk.len());
            sum
        }));
        let mut hints = Vec::new();
        for (chunk, end) in (0..).zip(&before[1..]) {
            hints.resize(end.div_ceil(HINT_SAMPLES) as usize, chunk);
        }
        Self { universe, chunks: chunks.into(), before: before.into(), hints: hints.into() }
    }
}

impl std::fmt::Debug for SampleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleSet")
            .field("samples", &self.len())
            .field("universe", &self.universe)
            .finish_non_exhaustive()
    }
}

/// Makes a [`SampleSet`]: [`keep`](Self::keep) its samples in order, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct SampleSetBuilder {
    chunks: Vec<Chunk>,
    bits: Box<ChunkBitmap>,
    samples: u64,
    /// The lowest id that may follow.
    next: u64,
    encoded_bytes: usize,
    most_bytes: usize,
}

impl Default for SampleSetBuilder {
    fn default() -> Self {
        let bits = Box::new([0; (CHUNK_SAMPLES / 64) as usize]);
        Self { chunks: Vec::new(), bits, samples: 0, next: 0, encoded_bytes: HEAD_BYTES, most_bytes: MAX_VIEW_BYTES }
    }
}

impl SampleSetBuilder {
    /// Creates the builder of a set that is never encoded, of any length.
    pub(super) fn unlimited() -> Self {
        Self { most_bytes: usize::MAX, ..Self::default() }
    }

    /// Adds a sample, which has a higher id than those before.
    ///
    /// # Errors
    /// [`SetError::TooLong`] if the set would be longer than [`MAX_VIEW_BYTES`] when it is encoded.
    ///
    /// # Panics
    /// If the sample is out of order.
    pub fn keep(&mut self, id: SampleId) -> Result<(), SetError> {
        assert!(id.0 >= self.next, "sample {id} after {}", self.next);
        self.fill_to(id.0 / CHUNK_SAMPLES)?;
        let place = id.0 % CHUNK_SAMPLES;
        self.bits[(place / 64) as usize] |= 1 << (place % 64);
        (self.samples, self.next) = (self.samples + 1, id.0 + 1);
        Ok(())
    }

    /// Returns the number of samples so far.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.samples
    }

    /// Returns whether there is no sample so far.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Returns the set of the samples of a dataset that has `universe` of them.
    ///
    /// # Errors
    /// [`SetError::TooLong`] if the set would be longer than [`MAX_VIEW_BYTES`] when it is encoded.
    ///
    /// # Panics
    /// If a sample is not one of the dataset's.
    pub fn finish(mut self, universe: u64) -> Result<SampleSet, SetError> {
        assert!(self.next <= universe, "sample {} of {universe}", self.next - 1);
        self.fill_to(universe.div_ceil(CHUNK_SAMPLES))?;
        Ok(SampleSet::of_chunks(universe, self.chunks))
    }

    /// Finishes the chunks before number `chunk`.
    fn fill_to(&mut self, chunk: u64) -> Result<(), SetError> {
        while (self.chunks.len() as u64) < chunk {
            let finished = Chunk::of(&self.bits);
            self.encoded_bytes += finished.encoded_bytes();
            if self.encoded_bytes > self.most_bytes {
                return Err(SetError::TooLong);
            }
            self.chunks.push(finished);
            self.bits.fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use spdl_types::mix::splitmix64;

    fn set(ids: &[u64], universe: u64) -> SampleSet {
        let mut builder = SampleSetBuilder::default();
        ids.iter().for_each(|id| builder.keep(SampleId(*id)).unwrap());
        builder.finish(universe).unwrap()
    }

    /// Returns ids below `universe`: about `kept` of every 1,000, in runs of about `run`.
    fn ids(universe: u64, kept: u64, run: u64, seed: u64) -> Vec<u64> {
        (0..universe).filter(|id| splitmix64(seed ^ splitmix64(id / run)) % 1000 < kept).collect()
    }

    fn check(ids: &[u64], universe: u64) {
        let set = set(ids, universe);
        assert_eq!((set.len(), set.universe()), (ids.len() as u64, universe));
        for (nth, id) in ids.iter().enumerate() {
            assert_eq!(set.select(nth as u64), SampleId(*id));
            assert_eq!(set.below(SampleId(*id)), nth as u64);
            assert!(set.contains(SampleId(*id)));
        }
        for missing in (0..universe).step_by(7).filter(|id| ids.binary_search(id).is_err()) {
            assert!(!set.contains(SampleId(missing)));
        }
        assert_eq!(set.below(SampleId(u64::MAX)), set.len());
        let bytes = set.encode();
        assert_eq!(SampleSet::decode(&bytes, universe).unwrap(), set);
        assert_eq!(set.fingerprint(), Fingerprint::of(&bytes));
    }

    #[test]
    fn a_set_finds_its_samples_in_every_form() {
        for universe in [1, 63, 64, 65_535, 65_536, 65_537, 140_000] {
            for (kept, run) in [(0, 1), (1000, 1), (1, 1), (20, 1), (100, 1), (500, 1), (999, 1), (500, 1000)] {
                check(&ids(universe, kept, run, 5), universe);
            }
            check(&[universe - 1], universe);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_random_set_finds_its_samples(universe in 1_u64..150_000, kept in 0_u64..=1000, run in 1_u64..300, seed: u64) {
            check(&ids(universe, kept, run, seed), universe);
        }

        #[test]
        fn damaged_bytes_are_refused_or_are_another_set(kept in 0_u64..=1000, at: prop::sample::Index, byte: u8) {
            let set = set(&ids(70_000, kept, 3, 1), 70_000);
            let mut bytes = set.encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(other) = SampleSet::decode(&bytes, 70_000) {
                prop_assert_eq!(other.encode(), bytes);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_are_a_set(bytes: Vec<u8>, universe: u64) {
            let mut head = MAGIC.to_vec();
            head.extend_from_slice(&VERSION.to_le_bytes());
            head.extend_from_slice(&universe.to_le_bytes());
            for bytes in [&bytes[..], &[&head[..], &bytes].concat()] {
                if let Ok(set) = SampleSet::decode(bytes, universe) {
                    prop_assert_eq!(set.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn a_cut_or_a_longer_text_is_refused() {
        let bytes = set(&ids(70_000, 500, 1, 1), 70_000).encode();
        for cut in [0, 7, 27, 28, 30, bytes.len() - 1] {
            assert!(SampleSet::decode(&bytes[..cut], 70_000).is_err(), "{cut}");
        }
        assert!(SampleSet::decode(&[&bytes[..], &[0]].concat(), 70_000).is_err());
        let error = SampleSet::decode(&bytes, 70_001).unwrap_err().to_string();
        assert_eq!(error, "is of a dataset of 70000 samples, not of one of 70001");
    }

    #[test]
    fn a_sample_past_the_end_of_the_dataset_is_refused() {
        let mut bytes = set(&[3, 9], 10).encode();
        bytes[12..20].copy_from_slice(&9_u64.to_le_bytes());
        assert!(SampleSet::decode(&bytes, 9).is_err());
    }

    #[test]
    fn neighbours_take_nearly_no_bytes_and_one_of_ten_a_bit_for_each_sample() {
        let universe = 1_000_000;
        let neighbours = set(&(5..universe / 2).collect::<Vec<_>>(), universe).encode().len();
        assert!(neighbours < 200, "{neighbours}");
        let one_of_ten = set(&ids(universe, 100, 1, 3), universe).encode().len();
        assert!(one_of_ten < 130_000, "{one_of_ten}");
        let one_of_thousand = set(&ids(universe, 1, 1, 3), universe).encode().len();
        assert!(one_of_thousand < 2_500, "{one_of_thousand}");
    }
}
