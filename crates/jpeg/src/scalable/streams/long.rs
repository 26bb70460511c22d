//! Decodes the middle and the high band.

use std::hint::select_unpredictable;

use super::{
    BLOCKS, BlockSpec, COEFFICIENTS, StreamDecoder, StreamSet, StreamSpec, StreamState, WORD_BITS, run, top, value,
    word_at,
};
use crate::{
    error::Error,
    kernel::{RowWork, SimdKernel},
    scalable::book::{LONG_BITS, LongTables},
};

/// Decodes the middle or the high band, which has `LAST` coefficients.
pub(crate) struct LongStreams<'s, const LAST: u8> {
    pub(crate) set: StreamSet<'s>,
    pub(crate) blocks: &'s [BlockSpec; BLOCKS],
    /// The places of the band's coefficients, from the second entry on. All others are 0, which is where DC comes later.
    pub(crate) places: &'s [u8; 256],
}

impl<const LAST: u8> RowWork for LongStreams<'_, LAST> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let Self { set, blocks, places } = self;
        let StreamSet { data, book, coefficients, streams } = set;
        let (tables, escapes) = (&*book.long, &book.escapes);
        run(LongDecoder::<LAST> { tables, escapes, coefficients, blocks, places }, data, streams)
    }
}

struct LongDecoder<'s, const LAST: u8> {
    tables: &'s LongTables,
    escapes: &'s [u32; 32],
    coefficients: &'s mut [i16; COEFFICIENTS],
    blocks: &'s [BlockSpec; BLOCKS],
    places: &'s [u8; 256],
}

#[derive(Clone, Copy)]
struct LongState {
    at: usize,
    end: usize,
    /// The block, one past the last, and the number of coefficients of the block that are decoded.
    block: u32,
    last: u32,
    known: u8,
}

impl StreamState for LongState {
    #[inline(always)]
    fn new(stream: &StreamSpec) -> Self {
        Self {
            at: stream.bytes[0] * 8,
            end: stream.bytes[1],
            block: stream.blocks[0],
            last: stream.blocks[1],
            known: 0,
        }
    }

    #[inline(always)]
    fn left(&self) -> u32 {
        self.last - self.block
    }

    #[inline(always)]
    fn position(&self) -> (usize, usize) {
        (self.at, self.end)
    }
}

impl<const LAST: u8> StreamDecoder for LongDecoder<'_, LAST> {
    type State = LongState;

    const STEPS: u32 = 2;

    /// Decodes one symbol or two at the top of the word.
    #[inline(always)]
    fn step(&mut self, data: &[u8], state: &mut LongState, word: &mut u64) {
        const { assert!(Self::STEPS * LONG_BITS <= WORD_BITS) };
        let BlockSpec(spec) = self.blocks[state.block as usize % BLOCKS];
        let (offset, table) = (usize::from(spec as u16), (spec >> 16) as usize);
        let entry = &self.tables[(table + top(*word, LONG_BITS)) % self.tables.len()];
        let first = state.known.wrapping_add(entry.ahead_first);
        let mut known = state.known.wrapping_add(entry.ahead);
        if entry.bits != 0 {
            // If the first symbol ends the block, a second one belongs to the next block, which may have another code.
            let bits = select_unpredictable(first >= LAST, entry.first_bits, entry.bits);
            self.coefficients[offset + usize::from(self.places[usize::from(known)])] = entry.second;
            self.coefficients[offset + usize::from(self.places[usize::from(first)])] = entry.first;
            state.at += usize::from(bits);
            *word <<= bits & 63;
        } else {
            // The word may have too few bits left.
            let all = word_at(data, state.at);
            let (mut behind, mut size) = (u32::from(entry.first_bits), entry.second as u32 & 15);
            if behind == 0 {
                // The symbol has no code.
                behind = self.escapes[table >> LONG_BITS & 31];
                let symbol = top(all << behind, 8) as u8;
                (known, behind, size) = (first + (symbol >> 4) + 1, behind + 8, u32::from(symbol & 15));
            }
            self.coefficients[offset + usize::from(self.places[usize::from(known)])] = value(all, behind, size) as i16;
            state.at += (behind + size) as usize;
            *word = word_at(data, state.at);
        }
        let is_end = known >= LAST;
        state.block += u32::from(is_end);
        state.known = select_unpredictable(is_end, 0, known);
    }
}
