//! The reservoir of bits, and the blocks of coefficients that are read from it.

use crate::error::Error;
use crate::huffman::{END_OF_BLOCK, LAST, Lookup, PAIR_SYMBOLS_BITS, Pair, Pairs, SYMBOL_BITS, Skip};
use crate::window::{End, Window};

/// Room for a block: 64 coefficients, and behind them a dump for what is none.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block([i16; 256]);

impl Block {
    pub(crate) const ZERO: Self = Self([0; 256]);

    /// Its coefficients.
    #[inline(always)]
    pub(crate) fn coefficients(&self) -> &[i16; 64] {
        self.0.first_chunk().expect("as many and more")
    }

    #[inline(always)]
    fn put(&mut self, order: &Order, k: usize, value: i16) {
        self.0[usize::from(order.0[k & 0xff])] = value;
    }
}

/// Where the coefficients go, by their place in the zigzag order; all behind the last one into the dump.
#[derive(Clone, Debug)]
pub(crate) struct Order([u8; 256]);

impl Order {
    /// The order of a block whose rows lie in memory one after the other, or of one whose columns do.
    pub(crate) fn new(transposed: bool) -> Self {
        let mut order = [64; 256];
        for (place, natural) in order.iter_mut().zip(crate::header::NATURAL) {
            *place = if transposed { natural >> 3 | (natural & 7) << 3 } else { natural };
        }
        Self(order)
    }
}

/// 64 bits of the window at a time: the next bit is the topmost. After Fabian Giesen, "Reading bits in far too many
/// ways" (2018), variant 4: filled up without a branch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits {
    reservoir: u64,
    /// How many of them count; those below are the window's as well, or 0.
    count: u32,
    /// The next byte of the window.
    at: usize,
}

impl Bits {
    /// Checks that what was read was there.
    pub(crate) fn check_used(&self, window: &Window) -> Result<(), Error> {
        let is_there = window.end() == End::Open || self.at * 8 <= window.filled() * 8 + self.count as usize;
        if is_there { Ok(()) } else { Err(window.early_end()) }
    }

    /// Makes sure that the next MCU can be read without looking for the window's end.
    #[inline(always)]
    pub(crate) fn ensure(&mut self, raw: &[u8], window: &mut Window) -> Result<(), Error> {
        if self.at <= window.safe() { Ok(()) } else { self.move_window(raw, window) }
    }

    #[cold]
    #[inline(never)]
    fn move_window(&mut self, raw: &[u8], window: &mut Window) -> Result<(), Error> {
        if window.end() != End::Open {
            return Err(window.early_end());
        }
        window.advance(raw, self.at);
        self.at = 0;
        Ok(())
    }

    /// At least 56 bits count.
    #[inline(always)]
    fn fill(&mut self, window: &[u8]) {
        let word = u64::from_be_bytes(window[self.at..self.at + 8].try_into().expect("8 bytes"));
        self.reservoir |= word >> self.count;
        self.at += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    #[inline(always)]
    fn take(&mut self, bits: u32) {
        self.reservoir <<= bits;
        self.count -= bits;
    }

    /// Reads the difference of a first coefficient; `None` for bits that are no code. Leaves another symbol's bits.
    #[inline(always)]
    pub(crate) fn difference(&mut self, window: &[u8], dc: &Lookup) -> Option<i32> {
        self.fill(window);
        let entry = dc.find(self.reservoir);
        let value = entry.value(self.reservoir);
        self.take(entry.bits());
        (entry.ahead() == 1).then_some(value)
    }

    /// Reads a block: its first coefficient is added to `last`. False when the block has more coefficients than it can
    /// have, or a code that there is not.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        window: &[u8],
        (dc, ac, pairs): (&Lookup, &Lookup, &Pairs),
        order: &Order,
        last: &mut i32,
        block: &mut Block,
    ) -> bool {
        block.0[..64].fill(0);
        let Some(difference) = self.difference(window, dc) else { return false };
        *last = last.wrapping_add(difference);
        block.0[0] = *last as i16;
        let mut k = 0;
        const { assert!(SYMBOL_BITS + PAIR_SYMBOLS_BITS <= 56 && 2 * PAIR_SYMBOLS_BITS <= 56, "as much as was filled up") };
        loop {
            // What is left of the last filling is enough for one pair.
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
            // A long code, or a pair of which the second belongs to the next block.
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

    /// Stores a pair's values behind place `k`. The second one first: where there is none it is stored where the first
    /// belongs.
    #[inline(always)]
    fn put(&mut self, pair: Pair, order: &Order, k: usize, block: &mut Block) -> usize {
        block.put(order, k + pair.ahead(), pair.second(self.reservoir));
        block.put(order, k + pair.ahead_first(), pair.first(self.reservoir));
        self.take(pair.bits());
        k + pair.ahead()
    }

    /// Reads a block of which no more than the coefficients up to `wanted`, a place in the zigzag order, are stored.
    #[inline(always)]
    pub(crate) fn part_of_block(
        &mut self,
        window: &[u8],
        (dc, ac, skip): (&Lookup, &Lookup, &Skip),
        wanted: usize,
        order: &Order,
        last: &mut i32,
        block: &mut Block,
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

    /// Reads a block of which only its first coefficient is wanted, for the sake of those behind it.
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

    /// Reads the coefficients behind place `k`, several at a time.
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
    /// Bits of a first coefficient, which is read.
    pub(crate) fn difference_bits(&mut self, window: &[u8], dc: &Lookup) -> u32 {
        self.fill(window);
        let bits = dc.find(self.reservoir).bits();
        self.take(bits);
        bits
    }

    /// Reads a block's coefficients but the first, and passes the bits of each on.
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

/// Whether a block can end at `k`: with its last coefficient, or with the mark of its end behind one before that.
#[inline(always)]
fn is_end(k: usize) -> bool {
    k == LAST || k.wrapping_sub(END_OF_BLOCK) < LAST
}
