//! Decodes the low band.

use super::{
    BLOCKS, COEFFICIENTS, LowBandFacts, StreamDecoder, StreamSet, StreamSpec, StreamState, WORD_BITS, run, top, value,
    word_at,
};
use crate::{
    error::Error,
    kernel::{RowWork, SimdKernel},
    scalable::{
        bands::{FIRST_SLOT, SECOND_SLOT, SLOTS, THIRD_SLOT, low_context},
        book::{Book, LowEntry, LowTable, SHORT_BITS},
    },
};

/// The tables of the low band, by class: that of the first coefficient, then those of the second and of the third, by context.
#[derive(Clone, Debug)]
pub(crate) struct LowTables {
    /// The codes that the tables were copied for.
    codes: [[u8; SLOTS]; 2],
    tables: [LowTable; 2 * CLASS_TABLES],
}

/// The tables of a class: 17, rounded up to a power of two so that an index needs no check.
const CLASS_TABLES: usize = 32;
const SECOND_TABLE: usize = 1;
const THIRD_TABLE: usize = 9;

impl Default for LowTables {
    fn default() -> Self {
        Self { codes: [[u8::MAX; SLOTS]; 2], tables: [[LowEntry::default(); 1 << SHORT_BITS]; 2 * CLASS_TABLES] }
    }
}

impl LowTables {
    /// Copies the tables next to each other, unless the last picture had the same.
    pub(crate) fn prepare(&mut self, book: &Book, codes: &[[u8; SLOTS]; 2]) {
        for ((known, codes), tables) in self.codes.iter_mut().zip(codes).zip(self.tables.chunks_mut(CLASS_TABLES)) {
            if known == codes {
                continue;
            }
            *known = *codes;
            let [first_two, last] = &book.low;
            let of = |tables: &[LowTable], slot: usize| tables[usize::from(codes[slot])];
            tables[0] = of(&first_two[..], FIRST_SLOT);
            for context in 0..8 {
                tables[SECOND_TABLE + context] = of(&first_two[..], SECOND_SLOT + context);
                tables[THIRD_TABLE + context] = of(&last[..], THIRD_SLOT + context);
            }
        }
    }
}

/// Decodes the low band, and the facts that it stores about the blocks.
pub(crate) struct LowStreams<'s> {
    pub(crate) set: StreamSet<'s>,
    pub(crate) tables: &'s LowTables,
    /// The places of the band's coefficients.
    pub(crate) places: [u8; 3],
    pub(crate) facts: &'s mut [LowBandFacts; BLOCKS],
}

impl RowWork for LowStreams<'_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let Self { set, tables, places, facts } = self;
        let StreamSet { data, coefficients, streams, .. } = set;
        run(LowDecoder { coefficients, tables: &tables.tables, places, facts }, data, streams)
    }
}

struct LowDecoder<'s> {
    coefficients: &'s mut [i16; COEFFICIENTS],
    tables: &'s [LowTable; 2 * CLASS_TABLES],
    places: [u8; 3],
    facts: &'s mut [LowBandFacts; BLOCKS],
}

#[derive(Clone, Copy)]
struct LowState {
    at: usize,
    end: usize,
    /// The next block, and one past the last.
    block: u32,
    last: u32,
    first_table: usize,
    offset: u16,
    step: u16,
}

impl StreamState for LowState {
    #[inline(always)]
    fn new(stream: &StreamSpec) -> Self {
        Self {
            at: stream.bytes[0] * 8,
            end: stream.bytes[1],
            block: stream.blocks[0],
            last: stream.blocks[1],
            first_table: (stream.class & 1) * CLASS_TABLES,
            offset: stream.offset,
            step: stream.step,
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

impl LowDecoder<'_> {
    /// Decodes the coefficient at the top of a word; returns its bits, and which further bands its symbol announces.
    /// Advances the state and the word.
    #[inline(always)]
    fn next(&mut self, data: &[u8], state: &mut LowState, word: &mut u64, table: usize, place: u8) -> (u32, u32) {
        let entry = self.tables[table % (2 * CLASS_TABLES)][top(*word, SHORT_BITS)];
        let to = usize::from(state.offset) + usize::from(place);
        if entry.is_whole() {
            self.coefficients[to] = entry.value();
            state.at += entry.bits() as usize;
            *word <<= entry.bits();
            (entry.size(), entry.further())
        } else {
            // The word may have too few bits left for this symbol and the next ones.
            let (code, size, further) = entry.parts();
            self.coefficients[to] = value(word_at(data, state.at), code, size) as i16;
            state.at += (code + size) as usize;
            *word = word_at(data, state.at);
            (size, further)
        }
    }
}

impl StreamDecoder for LowDecoder<'_> {
    type State = LowState;

    const STEPS: u32 = 2;

    #[inline(always)]
    fn step(&mut self, data: &[u8], state: &mut LowState, word: &mut u64) {
        const { assert!(Self::STEPS * 3 * SHORT_BITS <= WORD_BITS) };
        let [first, second, third] = self.places;
        let (mut bits, _) = self.next(data, state, word, state.first_table, first);
        bits += self.next(data, state, word, state.first_table + SECOND_TABLE + low_context(bits), second).0;
        let (size, further) = self.next(data, state, word, state.first_table + THIRD_TABLE + low_context(bits), third);
        self.facts[state.block as usize % BLOCKS] = LowBandFacts::new(bits + size, further);
        state.block += 1;
        state.offset = state.offset.wrapping_add(state.step);
    }
}
