//! Decodes the streams of tiles, two in step: while one waits for a table, the processor has the other to work on. Each band
//! has a module.

mod dc;
mod long;
mod low;

use super::{
    book::{Book, LONG_BITS},
    tiles::TileBlocks,
};
use crate::error::Error;

pub(crate) use self::{
    dc::DcStreams,
    long::LongStreams,
    low::{LowStreams, LowTables},
};

/// The number of offsets that a block can have, of 16 bits.
pub(crate) const OFFSETS: usize = 1 << 16;
/// The number of coefficients that are decoded together. Any offset plus any place of 8 bits is below it, so that no
/// bounds are checked.
pub(crate) const COEFFICIENTS: usize = OFFSETS + 256;
/// The largest number of blocks that are decoded together.
pub(crate) const BLOCKS: usize = 1 << 12;
/// The number of streams that are decoded in step.
const IN_STEP: usize = 2;

/// The streams of one band that are decoded together.
pub(crate) struct StreamSet<'s> {
    pub(crate) data: &'s [u8],
    pub(crate) book: &'s Book,
    pub(crate) coefficients: &'s mut [i16; COEFFICIENTS],
    pub(crate) streams: &'s [StreamSpec],
}

/// A stream, and the blocks to decode from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamSpec {
    /// Where its bytes begin and end.
    pub(crate) bytes: [usize; 2],
    /// The first block, and one past the last. For the middle and the high band, these are indices of `BlockSpec`s.
    pub(crate) blocks: [u32; 2],
    /// The offset of the first block's coefficients, and the distance to those of the next.
    pub(crate) offset: u16,
    pub(crate) step: u16,
    pub(crate) shape: TileBlocks,
    /// 0 for luma, 1 for chroma.
    pub(crate) class: usize,
}

/// The facts about a block that the low band stores. Bits 0..6 are the bits of its values, bit 6 is set if there is a
/// high band, bit 7 if there is a middle band.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowBandFacts(u8);

impl LowBandFacts {
    #[inline(always)]
    fn new(bits: u32, further: u32) -> Self {
        Self((bits.min(63) | further << 6) as u8)
    }

    #[inline(always)]
    pub(crate) const fn low_bits(self) -> u32 {
        (self.0 & 63) as u32
    }

    #[inline(always)]
    pub(crate) const fn has_high(self) -> bool {
        self.0 & 64 != 0
    }

    #[inline(always)]
    pub(crate) const fn has_middle(self) -> bool {
        self.0 & 128 != 0
    }
}

/// A block of the middle or the high band: the offset of its coefficients, and from bit 16 on where the table of its code begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSpec(u32);

impl BlockSpec {
    #[inline(always)]
    pub(crate) const fn new(offset: u16, code: u8) -> Self {
        Self(offset as u32 | (code as u32) << (16 + LONG_BITS))
    }
}

/// The number of bits of a word that are valid wherever [`word_at`] begins within a byte.
const WORD_BITS: u32 = 57;

/// Returns the bits from number `at` on; the next one is the topmost. Beyond the data they are zeros. Beyond a stream
/// they have no meaning; [`StreamState::check`] detects that they were read.
#[inline(always)]
fn word_at(data: &[u8], at: usize) -> u64 {
    let bytes = match data.get(at / 8..at / 8 + 8) {
        Some(bytes) => u64::from_be_bytes(*bytes.first_chunk().expect("8 bytes")),
        None => last_word(data, at / 8),
    };
    bytes << (at % 8)
}

#[cold]
#[inline(never)]
fn last_word(data: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let rest = data.get(at..).unwrap_or_default();
    let count = rest.len().min(8);
    word[..count].copy_from_slice(&rest[..count]);
    u64::from_be_bytes(word)
}

#[inline(always)]
fn top(word: u64, bits: u32) -> usize {
    (word >> (64 - bits)) as usize
}

/// Returns the value of `size` bits after the first `behind` ones. A value whose first bit is 0 is negative: the
/// negated complement of its bits.
#[inline(always)]
fn value(word: u64, behind: u32, size: u32) -> i32 {
    let rest = word << behind;
    let written = (rest >> 1 >> (63 - size)) as i32;
    let negative = !(rest as i64 >> 63) as i32;
    written.wrapping_sub(negative & ((1 << size) - 1))
}

/// A stream that is being decoded.
trait StreamState: Copy {
    fn new(stream: &StreamSpec) -> Self;

    /// Returns the number of blocks that are left.
    fn left(&self) -> u32;

    /// Returns the position of the next bit, and the end of the stream in bytes.
    fn position(&self) -> (usize, usize);

    /// Checks that all bits that were read exist.
    #[inline(always)]
    fn check(&self) -> Result<(), Error> {
        let (at, end) = self.position();
        if at <= end * 8 { Ok(()) } else { Err(Error::Corrupt("a stream that ends early")) }
    }
}

/// A way to decode a band.
trait StreamDecoder {
    type State: StreamState;

    /// The steps to take with one word, which must have enough bits for them.
    const STEPS: u32;

    /// Decodes the next symbols of a stream that has blocks left, at most one block. Advances the state and `word`,
    /// which begins with the next bits.
    fn step(&mut self, data: &[u8], state: &mut Self::State, word: &mut u64);

    /// Takes a step with a word of its own.
    #[inline(always)]
    fn single_step(&mut self, data: &[u8], state: &mut Self::State) {
        self.step(data, state, &mut word_at(data, state.position().0));
    }
}

/// Decodes streams in step until one of them ends.
#[inline(always)]
fn run_in_step<D: StreamDecoder>(decoder: &mut D, data: &[u8], states: &mut [D::State; IN_STEP]) {
    // Variables of their own, so that they are kept in registers.
    let [mut one, mut two] = *states;
    loop {
        let left = one.left().min(two.left());
        if left == 0 {
            break;
        }
        for _ in 0..left / D::STEPS {
            let [mut word, mut other] = [&one, &two].map(|state| word_at(data, state.position().0));
            for _ in 0..D::STEPS {
                decoder.step(data, &mut one, &mut word);
                decoder.step(data, &mut two, &mut other);
            }
        }
        if left < D::STEPS {
            decoder.single_step(data, &mut one);
            decoder.single_step(data, &mut two);
        }
    }
    *states = [one, two];
}

/// Decodes the rest of a stream.
#[inline(always)]
fn run_to_end<D: StreamDecoder>(decoder: &mut D, data: &[u8], state: &mut D::State) {
    while state.left() > 0 {
        decoder.single_step(data, state);
    }
}

/// Decodes all streams.
#[inline(always)]
fn run<D: StreamDecoder>(mut decoder: D, data: &[u8], streams: &[StreamSpec]) -> Result<(), Error> {
    let mut states = [D::State::new(&StreamSpec::default()); IN_STEP];
    let mut waiting = streams.iter();
    loop {
        for state in &mut states {
            while state.left() == 0 {
                state.check()?;
                let Some(stream) = waiting.next() else {
                    for state in &mut states {
                        run_to_end(&mut decoder, data, state);
                        state.check()?;
                    }
                    return Ok(());
                };
                *state = D::State::new(stream);
            }
        }
        run_in_step(&mut decoder, data, &mut states);
    }
}
