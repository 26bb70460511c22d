//! Reads bits from the window into a reservoir, and blocks of coefficients from the reservoir.

use crate::error::Error;
use crate::huffman::{END_OF_BLOCK, LAST, Lookup, PAIR_SYMBOLS_BITS, Pair, Pairs, SYMBOL_BITS, Skip};
use crate::window::{Window, WindowEnd};

/// The memory for a block: 64 coefficients, and after them room for values that do not belong to any coefficient.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct BitBlock([i16; 256]);

impl BitBlock {
    pub(crate) const ZERO: Self = Self([0; 256]);

    /// Returns the coefficients.
    #[inline(always)]
    pub(crate) fn coefficients(&self) -> &[i16; 64] {
        self.0.first_chunk().expect("as many and more")
    }

    /// Sets the lowest `POINTS` frequencies along each side, and leaves all others as they are.
    #[inline(always)]
    pub(crate) fn set_lowest<const POINTS: usize>(&mut self, values: &[i16]) {
        let rows = self.0.as_chunks_mut::<8>().0.iter_mut();
        for (row, values) in rows.zip(&values.as_chunks::<POINTS>().0[..POINTS]) {
            row[..POINTS].copy_from_slice(values);
        }
    }

    #[inline(always)]
    fn put(&mut self, order: &ScanOrder, k: usize, value: i16) {
        self.0[usize::from(order.0[k & 0xff])] = value;
    }
}

/// The position of each coefficient in its block, by zigzag index. All indices after the last lead to the room after
/// the block.
#[derive(Clone, Debug)]
pub(crate) struct ScanOrder([u8; 256]);

impl ScanOrder {
    /// Creates the order of a block that is stored row by row, or column by column when `transposed`.
    pub(crate) fn new(transposed: bool) -> Self {
        let mut order = [64; 256];
        for (place, natural) in order.iter_mut().zip(crate::header::NATURAL) {
            *place = if transposed { natural >> 3 | (natural & 7) << 3 } else { natural };
        }
        Self(order)
    }
}

/// A reservoir of 64 bits of the window; the next bit is the topmost. After Fabian Giesen, "Reading bits in far too
/// many ways" (2018), variant 4: refilled without a branch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits {
    reservoir: u64,
    /// The number of valid bits. The bits below them are also the window's, or 0.
    count: u32,
    /// The position of the next byte in the window.
    at: usize,
}

impl Bits {
    /// Checks that all bits that were read exist.
    pub(crate) fn check_used(&self, window: &Window) -> Result<(), Error> {
        let is_there = window.end() == WindowEnd::Open || self.at * 8 <= window.filled() * 8 + self.count as usize;
        if is_there { Ok(()) } else { Err(window.early_end()) }
    }

    /// Makes sure that the next MCU can be read without a check for the window's end.
    #[inline(always)]
    pub(crate) fn ensure(&mut self, raw: &[u8], window: &mut Window) -> Result<(), Error> {
        if self.at <= window.safe() { Ok(()) } else { self.move_window(raw, window) }
    }

    #[cold]
    #[inline(never)]
    fn move_window(&mut self, raw: &[u8], window: &mut Window) -> Result<(), Error> {
        if window.end() != WindowEnd::Open {
            return Err(window.early_end());
        }
        window.advance(raw, self.at);
        self.at = 0;
        Ok(())
    }

    /// Returns the reservoir; the next bit is the topmost.
    #[inline(always)]
    pub(crate) fn reservoir(&self) -> u64 {
        self.reservoir
    }

    /// Refills the reservoir to at least 56 valid bits.
    #[inline(always)]
    pub(crate) fn fill(&mut self, window: &[u8]) {
        let word = u64::from_be_bytes(window[self.at..self.at + 8].try_into().expect("8 bytes"));
        self.reservoir |= word >> self.count;
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, bits: u32) {
        self.reservoir <<= bits;
        self.count -= bits;
    }

    /// Reads the difference of a DC coefficient, or returns `None` for bits that are not a code. Leaves enough bits for
    /// another symbol.
    #[inline(always)]
    pub(crate) fn difference(&mut self, window: &[u8], dc: &Lookup) -> Option<i32> {
        self.fill(window);
        let entry = dc.find(self.reservoir);
        let value = entry.value(self.reservoir);
        self.take(entry.bits());
        (entry.ahead() == 1).then_some(value)
    }

    /// Reads a block, and adds its DC difference to `last`. Returns false when the block has too many coefficients, or
    /// an unknown code.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        window: &[u8],
        (dc, ac, pairs): (&Lookup, &Lookup, &Pairs),
        order: &ScanOrder,
        last: &mut i32,
        block: &mut BitBlock,
    ) -> bool {
        block.0[..64].fill(0);
        let Some(difference) = self.difference(window, dc) else { return false };
        *last = last.wrapping_add(difference);
        block.0[0] = *last as i16;
        let mut k = 0;
        const { assert!(SYMBOL_BITS + PAIR_SYMBOLS_BITS <= 56 && 2 * PAIR_SYMBOLS_BITS <= 56, "as much as was filled up") };
        loop {
            // The bits that remain from the last refill are enough for one pair.
            let mut pair = pairs.find(self.reservoir);
            let mut next = k + pair.ahead();
            if next < LAST {
                k = self.put(pair, order, k, block);
                self.fill(window);
                pair = pairs.find(self.reservoir);
                next = k + pair.ahead();
                if next < LAST {
                    k = self.put(pair, order, k, block);
                    continue;
                }
            }
            if is_end(next) {
                self.put(pair, order, k, block);
                return true;
            }
            // A long code, or a pair whose second symbol belongs to the next block.
            let entry = ac.find(self.reservoir);
            k += entry.ahead();
            block.put(order, k, entry.value(self.reservoir) as i16);
            self.take(entry.bits());
            if k >= LAST {
                return is_end(k);
            }
            self.fill(window);
        }
    }

    /// Stores the values of a pair after index `k`. Stores the second first: if there is none, its position is that of
    /// the first, which then overwrites it.
    #[inline(always)]
    fn put(&mut self, pair: Pair, order: &ScanOrder, k: usize, block: &mut BitBlock) -> usize {
        block.put(order, k + pair.ahead(), pair.second(self.reservoir));
        block.put(order, k + pair.ahead_first(), pair.first(self.reservoir));
        self.take(pair.bits());
        k + pair.ahead()
    }

    /// Reads a block, but stores only the coefficients up to zigzag index `wanted`.
    #[inline(always)]
    pub(crate) fn part_of_block(
        &mut self,
        window: &[u8],
        (dc, ac, skip): (&Lookup, &Lookup, &Skip),
        wanted: usize,
        order: &ScanOrder,
        last: &mut i32,
        block: &mut BitBlock,
    ) -> bool {
        block.0[..64].fill(0);
        let Some(difference) = self.difference(window, dc) else { return false };
        *last = last.wrapping_add(difference);
        block.0[0] = *last as i16;
        let mut k = 0;
        while k < wanted {
            self.fill(window);
            let entry = ac.find(self.reservoir);
            k += entry.ahead();
            block.put(order, k, entry.value(self.reservoir) as i16);
            self.take(entry.bits());
        }
        if k < LAST { self.skip_rest(window, (ac, skip), k) } else { is_end(k) }
    }

    /// Reads a block without storing it, for the sake of those after it: adds its DC difference to `last`.
    #[inline(always)]
    pub(crate) fn skip_block(
        &mut self,
        window: &[u8],
        (dc, ac, skip): (&Lookup, &Lookup, &Skip),
        last: &mut i32,
    ) -> bool {
        let Some(difference) = self.difference(window, dc) else { return false };
        *last = last.wrapping_add(difference);
        self.skip_rest(window, (ac, skip), 0)
    }

    /// Reads the coefficients after index `k`, several at a time.
    #[inline(always)]
    fn skip_rest(&mut self, window: &[u8], (ac, skip): (&Lookup, &Skip), mut k: usize) -> bool {
        while k < LAST {
            self.fill(window);
            for _ in 0..2 {
                let (bits, ahead) = skip.find(self.reservoir);
                let next = k + ahead;
                if bits == 0 || (next > LAST && !is_end(next)) {
                    // A long code, or codes of which the last ones belong to the next block.
                    let entry = ac.find(self.reservoir);
                    k += entry.ahead();
                    self.take(entry.bits());
                    break;
                }
                k = next;
                self.take(bits);
                if k >= LAST {
                    break;
                }
            }
        }
        is_end(k)
    }
}

impl Bits {
    /// Reads a DC coefficient and returns its number of bits.
    pub(crate) fn difference_bits(&mut self, window: &[u8], dc: &Lookup) -> u32 {
        self.fill(window);
        let bits = dc.find(self.reservoir).bits();
        self.take(bits);
        bits
    }

    /// Reads a block's AC coefficients, and passes the bits of each to `put`.
    pub(crate) fn copy_rest(&mut self, window: &[u8], ac: &Lookup, mut put: impl FnMut(u32, u32)) -> bool {
        let mut k = 0;
        while k < LAST {
            self.fill(window);
            let entry = ac.find(self.reservoir);
            k += entry.ahead();
            put((self.reservoir >> (64 - entry.bits())) as u32, entry.bits());
            self.take(entry.bits());
        }
        is_end(k)
    }
}

/// Returns whether a block can end at `k`: with its last coefficient, or with an end-of-block code before that.
#[inline(always)]
fn is_end(k: usize) -> bool {
    k == LAST || k.wrapping_sub(END_OF_BLOCK) < LAST
}
