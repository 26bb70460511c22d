//! A run of 65,536 samples of a [`SampleSet`](super::SampleSet), in the smallest of three forms.

use super::SetError;

/// Number of samples in a chunk.
pub(super) const CHUNK_SAMPLES: u64 = 1 << 16;
/// Words of a chunk with a bit for each sample.
const WORDS: usize = (CHUNK_SAMPLES / 64) as usize;
/// Words between two counts of the samples before them.
const GROUP_WORDS: usize = 4;
const GROUPS: usize = WORDS / GROUP_WORDS;
/// Samples between two hints at the group that holds them.
const HINT_SAMPLES: usize = 64;
/// Bytes before the values of a chunk: its form, and the number of its values.
const HEAD_BYTES: usize = 3;

/// A bit for each sample of a chunk.
pub(super) type ChunkBitmap = [u64; WORDS];

/// The samples of a chunk that are in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// Runs of neighbours, as in a dataset that is sorted by the field that the view selects by.
    Runs(Box<[Run]>),
    /// Few samples, in order.
    Sparse(Box<[u16]>),
    Dense(Box<Dense>),
}

/// Neighbours that are all in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    first: u16,
    last: u16,
    /// Samples of the chunk before the run.
    before: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dense {
    words: ChunkBitmap,
    /// Samples of the chunk before each group of words.
    before: [u16; GROUPS],
    /// The group that holds each 64th sample: where the search for those that follow it begins.
    hints: Box<[u8]>,
}

impl Chunk {
    /// Creates the chunk with these samples, in the form that takes the fewest bytes.
    pub(super) fn of(bits: &ChunkBitmap) -> Self {
        let count: u32 = bits.iter().map(|word| word.count_ones()).sum();
        let mut runs = 0;
        let mut carry = 0;
        for word in bits {
            // A run begins where a bit follows none.
            runs += (word & !(word << 1 | carry)).count_ones();
            carry = word >> 63;
        }
        let [as_runs, as_sparse] = [4 * runs as usize, 2 * count as usize];
        if as_runs <= as_sparse.min(size_of::<ChunkBitmap>()) {
            return Self::Runs(runs_of(bits, runs as usize));
        }
        if as_sparse <= size_of::<ChunkBitmap>() {
            return Self::Sparse(places(bits).collect());
        }
        let mut sum = 0_usize;
        let mut hints = Vec::with_capacity((count as usize).div_ceil(HINT_SAMPLES));
        let before = std::array::from_fn(|group| {
            let before = sum;
            let words = &bits[group * GROUP_WORDS..][..GROUP_WORDS];
            sum += words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
            hints.resize(sum.div_ceil(HINT_SAMPLES), group as u8);
            // Only a chunk that is full has more samples than fit, and that one is a run.
            before as u16
        });
        Self::Dense(Box::new(Dense { words: *bits, before, hints: hints.into() }))
    }

    /// Returns the number of samples.
    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Runs(runs) => runs.last().map_or(0, |run| u32::from(run.before) + run.len()),
            Self::Sparse(places) => places.len() as u32,
            Self::Dense(dense) => dense.below(CHUNK_SAMPLES as u32),
        }
    }

    /// Returns the place of sample number `nth` of the chunk, which has more than `nth` samples.
    #[inline]
    pub(super) fn select(&self, nth: u32) -> u32 {
        match self {
            Self::Runs(runs) => {
                let run = runs[runs.partition_point(|run| u32::from(run.before) <= nth) - 1];
                u32::from(run.first) + nth - u32::from(run.before)
            }
            Self::Sparse(places) => u32::from(places[nth as usize]),
            Self::Dense(dense) => dense.select(nth),
        }
    }

    /// Returns the number of samples below `place`, which is at most 65,536.
    pub(super) fn below(&self, place: u32) -> u32 {
        match self {
            Self::Runs(runs) => {
                let Some(at) = runs.partition_point(|run| u32::from(run.first) < place).checked_sub(1) else {
                    return 0;
                };
                u32::from(runs[at].before) + runs[at].len().min(place - u32::from(runs[at].first))
            }
            Self::Sparse(places) => places.partition_point(|other| u32::from(*other) < place) as u32,
            Self::Dense(dense) => dense.below(place),
        }
    }

    /// Appends the chunk's bytes.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut head = |form: u8, count: usize| {
            bytes.push(form);
            bytes.extend_from_slice(&(count as u16).to_le_bytes());
        };
        match self {
            Self::Runs(runs) => {
                head(0, runs.len());
                bytes.extend(runs.iter().flat_map(|run| [run.first, run.last]).flat_map(u16::to_le_bytes));
            }
            Self::Sparse(places) => {
                head(1, places.len());
                bytes.extend(places.iter().flat_map(|place| place.to_le_bytes()));
            }
            Self::Dense(dense) => {
                head(2, 0);
                bytes.extend(dense.words.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
    }

    /// Returns the number of bytes of the encoded chunk.
    pub(super) fn encoded_bytes(&self) -> usize {
        HEAD_BYTES
            + match self {
                Self::Runs(runs) => 4 * runs.len(),
                Self::Sparse(places) => 2 * places.len(),
                Self::Dense(_) => size_of::<ChunkBitmap>(),
            }
    }

    /// Reads the chunk at the start of `bytes`, and moves them past it. Other bytes than those that
    /// [`encode`](Self::encode) writes are refused, so that a set has one encoding.
    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, SetError> {
        let whole = *bytes;
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at_checked(count).ok_or(SetError::Truncated)?;
            *bytes = rest;
            Ok(taken)
        };
        let head = take(HEAD_BYTES)?;
        let count = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let mut bits: ChunkBitmap = [0; WORDS];
        let numbers = |values: &[u8]| -> Vec<u16> {
            values.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
        };
        match head[0] {
            0 => {
                for run in numbers(take(4 * count)?).chunks_exact(2) {
                    set(&mut bits, run[0], run[1]);
                }
            }
            1 => numbers(take(2 * count)?).into_iter().for_each(|place| set(&mut bits, place, place)),
            2 => {
                let words = take(size_of::<ChunkBitmap>())?;
                for (word, bytes) in bits.iter_mut().zip(words.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
            }
            form => return Err(SetError::Malformed(format!("a chunk has the form {form}"))),
        }
        let chunk = Self::of(&bits);
        let mut again = Vec::with_capacity(chunk.encoded_bytes());
        chunk.encode(&mut again);
        if again != whole[..whole.len() - bytes.len()] {
            return Err(SetError::Malformed("a chunk is not in its smallest form".to_owned()));
        }
        Ok(chunk)
    }
}

impl Run {
    const fn len(self) -> u32 {
        self.last as u32 - self.first as u32 + 1
    }
}

impl Dense {
    #[inline]
    fn select(&self, nth: u32) -> u32 {
        let mut group = usize::from(self.hints[nth as usize / HINT_SAMPLES]);
        while self.before.get(group + 1).is_some_and(|before| u32::from(*before) <= nth) {
            group += 1;
        }
        let mut left = nth - u32::from(self.before[group]);
        for (at, word) in self.words.iter().enumerate().skip(group * GROUP_WORDS) {
            let count = word.count_ones();
            if left < count {
                return at as u32 * 64 + select_in_word(*word, left);
            }
            left -= count;
        }
        unreachable!("the chunk has more than {nth} samples")
    }

    fn below(&self, place: u32) -> u32 {
        let group = (place as usize / 64 / GROUP_WORDS).min(self.before.len() - 1);
        let first = group * GROUP_WORDS;
        let words = &self.words[first..(place as usize).div_ceil(64).max(first)];
        let mut count = u32::from(self.before[group]);
        for (number, word) in words.iter().enumerate() {
            let bits = (place - ((first + number) as u32) * 64).min(64);
            count += (word & (u64::MAX >> (64 - bits))).count_ones();
        }
        count
    }
}

/// Returns the place of bit number `nth` of those that are set: first its byte, from the sums of bits up to each byte, which
/// one multiplication gives (Vigna, "Broadword implementation of rank/select queries", 2008).
#[inline]
const fn select_in_word(word: u64, nth: u32) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let sums = ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(ONES);
    // The high bit of each byte whose sum is at most `nth`.
    let passed = (((nth as u64 * ONES) | HIGH) - sums) & HIGH;
    let first = ((passed >> 7).wrapping_mul(ONES) >> 56) as u32 * 8;
    let mut left = nth - (sums << 8 >> first & 0xff) as u32;
    let mut byte = word >> first;
    while left > 0 {
        byte &= byte - 1;
        left -= 1;
    }
    first + byte.trailing_zeros()
}

/// Sets the bits from `first` to `last`.
fn set(bits: &mut ChunkBitmap, first: u16, last: u16) {
    for place in first..=last {
        bits[usize::from(place) / 64] |= 1 << (place % 64);
    }
}

/// Iterates over the places of the bits that are set.
pub(super) fn places(bits: &ChunkBitmap) -> impl Iterator<Item = u16> + '_ {
    bits.iter().enumerate().flat_map(|(number, &word)| {
        std::iter::successors((word != 0).then_some(word), |word| Some(word & (word - 1)).filter(|rest| *rest != 0))
            .map(move |word| (number * 64) as u16 + word.trailing_zeros() as u16)
    })
}

fn runs_of(bits: &ChunkBitmap, count: usize) -> Box<[Run]> {
    let mut runs: Vec<Run> = Vec::with_capacity(count);
    for (before, place) in places(bits).enumerate() {
        match runs.last_mut() {
            Some(run) if run.last.checked_add(1) == Some(place) => run.last = place,
            _ => runs.push(Run { first: place, last: place, before: before as u16 }),
        }
    }
    runs.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_found_in_every_word() {
        for word in [1, 1 << 63, u64::MAX, 0x8000_0001_0010_0400, 0xaaaa_aaaa_aaaa_aaaa] {
            let places: Vec<u32> = (0..64).filter(|at| word >> at & 1 == 1).collect();
            let found: Vec<u32> = (0..word.count_ones()).map(|nth| select_in_word(word, nth)).collect();
            assert_eq!(found, places, "{word:x}");
        }
    }
}
