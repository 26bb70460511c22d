//! The reservoir of bits, and the blocks of coefficients that are read from it.

use crate::huffman::{END_OF_BLOCK, LAST, Lookup, SYMBOL_BITS, Skip};

/// Room for a block: 64 coefficients, and behind them a dump for what is none.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Block(pub(crate) [i16; 64], [i16; 64]);

impl Block {
    pub(crate) const ZERO: Self = Self([0; 64], [0; 64]);

    #[inline(always)]
    fn put(&mut self, order: &Order, k: usize, value: i32) {
        let at = usize::from(order.0[k & 0xff] & 127);
        let place = if at < 64 { &mut self.0[at] } else { &mut self.1[at - 64] };
        *place = value as i16;
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
    /// Bytes of the window that the reservoir was filled from.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves with the window, which has forgotten all bytes that the reservoir was filled from.
    pub(crate) fn rewind(&mut self) {
        self.at = 0;
    }

    /// Bits of the window that were used, when that is at most `limit`.
    pub(crate) fn used_within(&self, limit: usize) -> bool {
        self.at * 8 <= limit * 8 + self.count as usize
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
    fn difference(&mut self, window: &[u8], dc: &Lookup) -> Option<i32> {
        self.fill(window);
        let entry = dc.find(self.reservoir);
        let value = entry.value(self.reservoir);
        self.take(entry.bits());
        (entry.ahead() == 1).then_some(value)
    }

    /// Reads a block: its first coefficient is added to `last`, the others are stored as far as `wanted`, a place in
    /// the zigzag order. False when the block has more coefficients than it can have, or a code that there is not.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        window: &[u8],
        (dc, ac, skip): (&Lookup, &Lookup, &Skip),
        wanted: usize,
        order: &Order,
        last: &mut i32,
        block: &mut Block,
    ) -> bool {
        block.0 = [0; 64];
        let Some(difference) = self.difference(window, dc) else { return false };
        *last = last.wrapping_add(difference);
        block.0[0] = *last as i16;
        let mut k = 0;
        const { assert!(2 * SYMBOL_BITS <= 56, "two symbols are read from what is filled up at once") };
        while k < wanted {
            self.fill(window);
            let entry = ac.find(self.reservoir);
            k += entry.ahead();
            block.put(order, k, entry.value(self.reservoir));
            self.take(entry.bits());
            if k >= wanted {
                break;
            }
            let entry = ac.find(self.reservoir);
            k += entry.ahead();
            block.put(order, k, entry.value(self.reservoir));
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

/// Whether a block can end at `k`: with its last coefficient, or with the mark of its end behind one before that.
#[inline(always)]
fn is_end(k: usize) -> bool {
    k == LAST || k.wrapping_sub(END_OF_BLOCK) < LAST
}
