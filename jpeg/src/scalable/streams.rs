//! Decodes the streams of tiles. DC and the low band have as many symbols for each block, so several streams are decoded
//! in step: the processor has independent work while it waits for a table.

use super::{
    bands::{DC_SLOT, FIRST_SLOT, SECOND_SLOT, SLOTS, THIRD_SLOT, low_context},
    book::{Book, Kind, LONG_BITS, LongEntry, SHORT_BITS, ShortTable},
    tiles::TileBlocks,
};
use crate::{
    error::Error,
    kernel::{RowWork, SimdKernel},
};

/// The coefficients that are decoded together: an offset has 16 bits and cannot lie outside.
pub(crate) const COEFFICIENTS: usize = 1 << 16;
/// The most blocks that are decoded together, and room for one more.
pub(crate) const BLOCKS: usize = 1 << 12;
/// The streams that are decoded in step.
const LANES: usize = 2;

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
    /// The first block, and one past the last. For the middle and the high band indices of descriptions.
    pub(crate) blocks: [u32; 2],
    /// The offset of the first block's coefficients, and the distance to those of the next.
    pub(crate) offset: u16,
    pub(crate) step: u16,
    pub(crate) shape: TileBlocks,
    /// 0 for luma, 1 for chroma.
    pub(crate) class: usize,
}

/// What the low band tells of a block. Bits 0..6 are the bits of its values; then whether there is a high band, and a
/// middle band.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockFacts(u8);

impl BlockFacts {
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

/// A block of the middle or the high band: the offset of its coefficients, and its code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSpec(u32);

impl BlockSpec {
    #[inline(always)]
    pub(crate) const fn new(offset: u16, code: u8) -> Self {
        Self(offset as u32 | (code as u32) << 16)
    }
}

/// The bits of a stream; the next one is the topmost.
#[derive(Clone, Copy, Debug, Default)]
struct StreamBits {
    reservoir: u64,
    count: u32,
    at: usize,
    end: usize,
}

impl StreamBits {
    const fn new([at, end]: [usize; 2]) -> Self {
        Self { reservoir: 0, count: 0, at, end }
    }

    /// Refills the reservoir to at least 56 bits. Beyond the stream they mean nothing, which [`check`](Self::check)
    /// finds.
    #[inline(always)]
    fn fill(&mut self, data: &[u8]) {
        let word = match data.get(self.at..self.at + 8) {
            Some(word) => u64::from_be_bytes(*word.first_chunk().expect("8 bytes")),
            None => last_word(data, self.at),
        };
        self.reservoir |= word >> self.count;
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    #[inline(always)]
    fn take(&mut self, bits: u32) {
        self.reservoir <<= bits;
        self.count -= bits;
    }

    #[inline(always)]
    fn peek(&self, bits: u32) -> usize {
        (self.reservoir >> (64 - bits)) as usize
    }

    /// The value of `bits` bits behind the first `behind` ones.
    #[inline(always)]
    fn value(&self, behind: u32, bits: u32) -> i32 {
        value(self.reservoir << behind, 63 - bits)
    }

    /// Checks that all bits that were read exist.
    fn check(&self) -> Result<(), Error> {
        if self.at * 8 - self.count as usize <= self.end * 8 {
            Ok(())
        } else {
            Err(Error::Corrupt("a stream that ends early"))
        }
    }
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

/// The value at the top of `bits`; `shift` is 63 minus its length. A value whose first bit is 0 is negative: the negated
/// complement of its bits.
#[inline(always)]
fn value(bits: u64, shift: u32) -> i32 {
    let negative = !(bits as i64 >> 63);
    let magnitude = (bits ^ negative as u64) >> 1 >> shift;
    (magnitude as i32 ^ negative as i32).wrapping_sub(negative as i32)
}

/// A way to decode a band whose blocks all have as many symbols.
trait StepDecoder {
    /// What is kept from one block of a stream to the next.
    type State: Copy;

    fn start(&self, stream: &StreamSpec) -> Self::State;

    /// Decodes block number `block` of a stream.
    fn step(&mut self, state: &mut Self::State, stream: &StreamSpec, block: u32);

    fn bits(state: &Self::State) -> &StreamBits;

    /// Decodes all streams: several in step where they have as many blocks.
    #[inline(always)]
    fn run(&mut self, streams: &[StreamSpec]) -> Result<(), Error> {
        let mut rest = streams;
        while let Some(first) = rest.first() {
            let count = first.blocks[1] - first.blocks[0];
            if let Some((lanes, behind)) = rest.split_first_chunk::<LANES>()
                && lanes.iter().all(|lane| lane.blocks[1] - lane.blocks[0] == count)
            {
                let [one, two] = lanes;
                let mut states = (self.start(one), self.start(two));
                for block in 0..count {
                    self.step(&mut states.0, one, block);
                    self.step(&mut states.1, two, block);
                }
                Self::bits(&states.0).check()?;
                Self::bits(&states.1).check()?;
                rest = behind;
            } else {
                let mut state = self.start(first);
                for block in 0..count {
                    self.step(&mut state, first, block);
                }
                Self::bits(&state).check()?;
                rest = &rest[1..];
            }
        }
        Ok(())
    }
}

/// Decodes DC coefficients: each is stored as the difference from the one to its left, or else above.
pub(crate) struct DcStreams<'s> {
    pub(crate) set: StreamSet<'s>,
    pub(crate) codes: &'s [[u8; SLOTS]; 2],
}

impl RowWork for DcStreams<'_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let StreamSet { data, book, coefficients, streams } = self.set;
        let tables = self.codes.map(|codes| &book.short[Kind::Dc as usize][usize::from(codes[DC_SLOT])]);
        DcDecoder { data, coefficients, tables }.run(streams)
    }
}

struct DcDecoder<'s> {
    data: &'s [u8],
    coefficients: &'s mut [i16; COEFFICIENTS],
    tables: [&'s ShortTable; 2],
}

impl StepDecoder for DcDecoder<'_> {
    /// The bits, the last coefficient, the column of the next and its offset.
    type State = (StreamBits, i32, u32, u16);

    #[inline(always)]
    fn start(&self, stream: &StreamSpec) -> Self::State {
        (StreamBits::new(stream.bytes), 0, 0, stream.offset)
    }

    #[inline(always)]
    fn step(&mut self, state: &mut Self::State, stream: &StreamSpec, block: u32) {
        let (mut bits, mut last, mut column, offset) = *state;
        if column == 0 {
            let above = (stream.shape.row() as u16).wrapping_mul(stream.step);
            let is_first = block < stream.shape.row();
            last = if is_first { 0 } else { i32::from(self.coefficients[usize::from(offset.wrapping_sub(above))]) };
        }
        bits.fill(self.data);
        let entry = self.tables[stream.class & 1][bits.peek(SHORT_BITS)];
        let (code, size) = (u32::from(entry & 15), u32::from(entry >> 4 & 15));
        last = last.wrapping_add(bits.value(code, size));
        bits.take(code + size);
        self.coefficients[usize::from(offset)] = last as i16;
        column = if column + 1 == stream.shape.across { 0 } else { column + 1 };
        *state = (bits, last, column, offset.wrapping_add(stream.step));
    }

    #[inline(always)]
    fn bits(state: &Self::State) -> &StreamBits {
        &state.0
    }
}

/// The tables of the low band of a class, by context.
#[derive(Clone, Debug)]
pub(crate) struct LowTables {
    /// The codes that the tables were copied for.
    codes: [u8; SLOTS],
    first: ShortTable,
    second: [ShortTable; 8],
    third: [ShortTable; 8],
}

impl LowTables {
    pub(crate) const NONE: Self = Self {
        codes: [u8::MAX; SLOTS],
        first: [0; 1 << SHORT_BITS],
        second: [[0; 1 << SHORT_BITS]; 8],
        third: [[0; 1 << SHORT_BITS]; 8],
    };

    /// Copies the tables next to each other, unless they are there from the picture before.
    pub(crate) fn prepare(&mut self, book: &Book, codes: &[u8; SLOTS]) {
        if self.codes == *codes {
            return;
        }
        self.codes = *codes;
        let of = |kind: Kind, slot: usize| book.short[kind as usize][usize::from(codes[slot])];
        self.first = of(Kind::Low, FIRST_SLOT);
        for context in 0..8 {
            self.second[context] = of(Kind::Low, SECOND_SLOT + context);
            self.third[context] = of(Kind::Last, THIRD_SLOT + context);
        }
    }
}

/// Decodes the low band, and what it tells of the blocks.
pub(crate) struct LowStreams<'s> {
    pub(crate) set: StreamSet<'s>,
    /// The tables of each class.
    pub(crate) tables: &'s [LowTables; 2],
    /// The places of the band's coefficients.
    pub(crate) places: [u16; 3],
    pub(crate) facts: &'s mut [BlockFacts; BLOCKS],
}

impl RowWork for LowStreams<'_> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let Self { set, tables, places, facts } = self;
        let StreamSet { data, coefficients, streams, .. } = set;
        LowDecoder { data, coefficients, tables, places, facts }.run(streams)
    }
}

struct LowDecoder<'s> {
    data: &'s [u8],
    coefficients: &'s mut [i16; COEFFICIENTS],
    tables: &'s [LowTables; 2],
    places: [u16; 3],
    facts: &'s mut [BlockFacts; BLOCKS],
}

impl LowDecoder<'_> {
    /// Decodes a coefficient; returns the bits of its value and what its symbol tells of further bands.
    #[inline(always)]
    fn next(&mut self, bits: &mut StreamBits, table: &ShortTable, place: u16) -> (u32, u32) {
        let entry = table[bits.peek(SHORT_BITS)];
        let (code, size) = (u32::from(entry & 15), u32::from(entry >> 4 & 15));
        self.coefficients[usize::from(place)] = bits.value(code, size) as i16;
        bits.take(code + size);
        (size, u32::from(entry >> 8))
    }
}

impl StepDecoder for LowDecoder<'_> {
    /// The bits, and the offset of the next block.
    type State = (StreamBits, u16);

    #[inline(always)]
    fn start(&self, stream: &StreamSpec) -> Self::State {
        (StreamBits::new(stream.bytes), stream.offset)
    }

    #[inline(always)]
    fn step(&mut self, state: &mut Self::State, stream: &StreamSpec, block: u32) {
        let (mut bits, offset) = *state;
        let LowTables { first, second, third, .. } = &self.tables[stream.class & 1];
        let places = self.places.map(|place| offset.wrapping_add(place));
        // Two symbols have 48 bits at the most.
        bits.fill(self.data);
        let (mut sum, _) = self.next(&mut bits, first, places[0]);
        sum += self.next(&mut bits, &second[low_context(sum)], places[1]).0;
        bits.fill(self.data);
        let (size, further) = self.next(&mut bits, &third[low_context(sum)], places[2]);
        self.facts[(stream.blocks[0] + block) as usize % BLOCKS] = BlockFacts::new(sum + size, further);
        *state = (bits, offset.wrapping_add(stream.step));
    }

    #[inline(always)]
    fn bits(state: &Self::State) -> &StreamBits {
        &state.0
    }
}

/// Decodes the middle or the high band, which has `LAST` coefficients.
pub(crate) struct LongStreams<'s, const LAST: u32> {
    pub(crate) set: StreamSet<'s>,
    pub(crate) blocks: &'s [BlockSpec; BLOCKS],
    /// The places of the band's coefficients, from the second entry on. All others are 0, which is where DC comes later.
    pub(crate) places: &'s [u8; 256],
}

impl<const LAST: u32> RowWork for LongStreams<'_, LAST> {
    type Outcome = Result<(), Error>;

    #[inline(always)]
    fn run<K: SimdKernel>(self, _: K) -> Result<(), Error> {
        let Self { set, blocks, places } = self;
        let StreamSet { data, book, coefficients, streams } = set;
        for stream in streams {
            let mut bits = StreamBits::new(stream.bytes);
            for block in stream.blocks[0]..stream.blocks[1] {
                let BlockSpec(spec) = blocks[block as usize % BLOCKS];
                let (offset, code) = (spec as u16, (spec >> 16) as usize % 32);
                let table = &book.long[code];
                let place = |k: u32| usize::from(offset.wrapping_add(u16::from(places[k as usize % 256])));
                let mut k = 0;
                loop {
                    bits.fill(data);
                    let entry = table[bits.peek(LONG_BITS)];
                    let first = k + entry.ahead_first();
                    if entry.is_whole() {
                        // If there is no second symbol, its place is that of the first.
                        k = first + entry.ahead_second();
                        coefficients[place(k)] = entry.second();
                        coefficients[place(first)] = entry.first();
                        // A second symbol after the block's last coefficient is the next block's, which may have another code.
                        bits.take(if first >= LAST { entry.first_bits() } else { entry.bits() });
                    } else if entry != LongEntry::ESCAPE {
                        k = first;
                        let (code, size) = (entry.first_bits(), entry.value_bits());
                        coefficients[place(k)] = bits.value(code, size) as i16;
                        bits.take(code + size);
                    } else {
                        let (rest, ahead, value) = escaped(bits, data, book.escapes[code]);
                        bits = rest;
                        k += ahead;
                        coefficients[place(k)] = value;
                    }
                    if k >= LAST {
                        break;
                    }
                }
            }
            bits.check()?;
        }
        Ok(())
    }
}

/// Reads a symbol without a code: returns the rest of the bits, its advance and its value. The bits come by value, so that
/// those of the fast path stay in registers.
#[cold]
#[inline(never)]
fn escaped(mut bits: StreamBits, data: &[u8], escape: u32) -> (StreamBits, u32, i16) {
    bits.take(escape);
    bits.fill(data);
    let symbol = bits.peek(8) as u32;
    let size = symbol & 15;
    let value = bits.value(8, size);
    bits.take(8 + size);
    (bits, (symbol >> 4) + 1, value as i16)
}
