//! Decodes DC coefficients.

use super::{COEFFICIENTS, StreamDecoder, StreamSet, StreamSpec, StreamState, WORD_BITS, run, top, value};
use crate::{
    error::Error,
    kernel::{RowWork, SimdKernel},
    scalable::{
        bands::{DC_SLOT, SLOTS},
        book::{DcTable, SHORT_BITS},
    },
};

/// Decodes DC coefficients: each is stored as the difference from the one to its left, or in the first column from the
/// one above.
pub(crate) struct DcStreams<'s> {
    pub(crate) set: StreamSet<'s>,
    pub(crate) codes: &'s [[u8; SLOTS]; 2],
}

impl RowWork for DcStreams<'_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let StreamSet { data, book, coefficients, streams } = self.set;
        let tables = self.codes.map(|codes| &book.dc[usize::from(codes[DC_SLOT])]);
        run(DcDecoder { coefficients, tables }, data, streams)
    }
}

struct DcDecoder<'s> {
    coefficients: &'s mut [i16; COEFFICIENTS],
    tables: [&'s DcTable; 2],
}

#[derive(Clone, Copy)]
struct DcState {
    at: usize,
    end: usize,
    left: u32,
    class: usize,
    last: i32,
    /// The blocks that are left in the row of one component.
    left_of_row: u32,
    across: u32,
    /// The rows to come that have no row above them: at first one for each component.
    left_of_first: u32,
    offset: u16,
    step: u16,
    /// The distance to the coefficients of the block above.
    above: u16,
}

impl StreamState for DcState {
    #[inline(always)]
    fn new(stream: &StreamSpec) -> Self {
        Self {
            at: stream.bytes[0] * 8,
            end: stream.bytes[1],
            left: stream.blocks[1] - stream.blocks[0],
            class: stream.class & 1,
            last: 0,
            left_of_row: 0,
            across: stream.shape.across,
            left_of_first: stream.shape.components,
            offset: stream.offset,
            step: stream.step,
            above: (stream.shape.row() as u16).wrapping_mul(stream.step),
        }
    }

    #[inline(always)]
    fn left(&self) -> u32 {
        self.left
    }

    #[inline(always)]
    fn position(&self) -> (usize, usize) {
        (self.at, self.end)
    }
}

impl StreamDecoder for DcDecoder<'_> {
    type State = DcState;

    // A code of 9 bits and a value of 15, at most.
    const STEPS: u32 = 2;

    #[inline(always)]
    fn step(&mut self, _: &[u8], state: &mut DcState, word: &mut u64) {
        const { assert!(Self::STEPS * (SHORT_BITS + 15) <= WORD_BITS) };
        if state.left_of_row == 0 {
            state.left_of_row = state.across;
            state.last = if state.left_of_first == 0 {
                i32::from(self.coefficients[usize::from(state.offset.wrapping_sub(state.above))])
            } else {
                state.left_of_first -= 1;
                0
            };
        }
        let entry = self.tables[state.class][top(*word, SHORT_BITS)];
        let (code, size) = (u32::from(entry & 15), u32::from(entry >> 4 & 15));
        state.last = state.last.wrapping_add(value(*word, code, size));
        state.at += (code + size) as usize;
        *word <<= code + size;
        self.coefficients[usize::from(state.offset)] = state.last as i16;
        state.offset = state.offset.wrapping_add(state.step);
        state.left_of_row = state.left_of_row.wrapping_sub(1);
        state.left -= 1;
    }
}
