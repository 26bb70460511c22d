//! Reads the blocks of one progressive scan (ITU-T T.81, G.1.2).

use super::coefficients::ComponentStore;
use crate::{
    bits::Bits,
    huffman::{END_OF_BLOCK, LAST, Lookup},
};

/// The valid bits that are left after a refill and a symbol of 17 bits.
const BITS_BEHIND_SYMBOL: u32 = 39;

/// A band of AC coefficients of one scan.
#[derive(Clone, Copy)]
pub(super) struct AcBand<'t> {
    pub(super) table: &'t Lookup,
    /// The zigzag indices of the first and the last coefficient.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The band as a set of zigzag indices.
    pub(super) set: u64,
    /// The number of low bits that later scans add.
    pub(super) low: u8,
}

/// What to do with the coefficients of a block.
pub(super) trait Sink {
    /// Stores a coefficient of zigzag index `k`.
    fn store(&mut self, k: usize, value: i16);

    /// Adds one more bit to the coefficients in a set, from the lowest index to the highest. The bits are the topmost.
    fn refine(&mut self, set: u64, bits: u64, low: u8);
}

/// A block that is not kept.
pub(super) struct Dropped;

impl Sink for Dropped {
    #[inline(always)]
    fn store(&mut self, _: usize, _: i16) {}

    #[inline(always)]
    fn refine(&mut self, _: u64, _: u64, _: u8) {}
}

/// A block that is kept.
pub(super) struct KeptBlock<'c> {
    pub(super) values: &'c mut [i16],
    pub(super) store: &'c ComponentStore,
}

impl Sink for KeptBlock<'_> {
    #[inline(always)]
    fn store(&mut self, k: usize, value: i16) {
        self.values[self.store.place(k)] = value;
    }

    #[inline(always)]
    fn refine(&mut self, mut set: u64, mut bits: u64, low: u8) {
        while set != 0 {
            let value = &mut self.values[self.store.place(set.trailing_zeros() as usize)];
            // A bit that is already set is left, as libjpeg does.
            let is_added = (bits >> 63) as i16 & !(*value >> low);
            *value = value.wrapping_add(((*value >> 15) | 1) << low & -is_added);
            bits <<= 1;
            set &= set - 1;
        }
    }
}

impl Bits {
    /// Reads a block of a first scan. Adds the coefficients that are not zero to `nonzero`. `ended` is the number of
    /// blocks from here on that have no coefficients. Returns false for an unknown code or too many coefficients.
    #[inline(always)]
    pub(super) fn first_block(
        &mut self,
        window: &[u8],
        band: AcBand<'_>,
        nonzero: &mut u64,
        ended: &mut u32,
        sink: &mut impl Sink,
    ) -> bool {
        let mut k = band.first - 1;
        while k < band.last {
            self.fill(window);
            let entry = band.table.find(self.reservoir());
            let next = k + entry.ahead();
            if next > band.last {
                if entry.ahead() != END_OF_BLOCK {
                    return false;
                }
                *ended = entry.ended_blocks(self.reservoir()) - 1;
                self.take(entry.bits());
                return true;
            }
            k = next;
            let value = entry.value(self.reservoir()) as i16;
            self.take(entry.bits());
            sink.store(k, value << band.low);
            *nonzero |= u64::from(value != 0) << (k & LAST);
        }
        true
    }

    /// Reads a block of a refinement scan, in the same way.
    #[inline(always)]
    pub(super) fn refined_block(
        &mut self,
        window: &[u8],
        band: AcBand<'_>,
        nonzero: &mut u64,
        ended: &mut u32,
        sink: &mut impl Sink,
    ) -> bool {
        let known = *nonzero;
        // The coefficients that have not been passed.
        let mut rest = band.set;
        while *ended == 0 && rest != 0 {
            self.fill(window);
            let entry = band.table.find(self.reservoir());
            if entry.ahead() == END_OF_BLOCK {
                *ended = entry.ended_blocks(self.reservoir());
                self.take(entry.bits());
                break;
            }
            let mut zeros = rest & !known;
            for _ in 1..entry.ahead() {
                zeros &= zeros.wrapping_sub(1);
            }
            if zeros == 0 {
                return false;
            }
            let k = zeros.trailing_zeros();
            let passed = rest & known & !(!0 << k);
            let value = entry.value(self.reservoir()) as i16;
            self.take(entry.bits());
            self.refine(window, passed, band.low, sink);
            sink.store(k as usize, value << band.low);
            *nonzero |= u64::from(value != 0) << k;
            rest &= !1 << k;
        }
        if rest != 0 {
            self.fill(window);
            self.refine(window, rest & known, band.low, sink);
            *ended -= 1;
        }
        true
    }

    /// Reads one bit for each coefficient of a set.
    #[inline(always)]
    fn refine(&mut self, window: &[u8], mut set: u64, low: u8, sink: &mut impl Sink) {
        let count = set.count_ones();
        if count <= BITS_BEHIND_SYMBOL {
            sink.refine(set, self.reservoir(), low);
            self.take(count);
            return;
        }
        while set != 0 {
            self.fill(window);
            sink.refine(set & set.wrapping_neg(), self.reservoir(), low);
            self.take(1);
            set &= set - 1;
        }
    }
}
