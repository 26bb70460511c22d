//! Bits of a packet, the most significant of a byte first.

use super::problem::PacketProblem;

/// Reads bits of a slice.
pub(super) struct BitReader<'b> {
    bytes: &'b [u8],
    /// The byte after those of which bits are in `cache`.
    next: usize,
    /// The next bits, from the most significant one down; zeros follow.
    cache: u64,
    cached_bits: u32,
}

impl<'b> BitReader<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, next: 0, cache: 0, cached_bits: 0 }
    }

    /// Fills the cache: with at least 56 bits, or with all that are left.
    #[inline]
    pub(super) fn fill(&mut self) {
        if let Some(word) = self.bytes.get(self.next..).and_then(<[u8]>::first_chunk) {
            self.cache |= u64::from_be_bytes(*word) >> self.cached_bits;
            // The bits of a byte that is only in part in the cache are read again, and are equal.
            self.next += (63 - self.cached_bits as usize) >> 3;
            self.cached_bits |= 56;
        } else {
            self.fill_by_bytes();
        }
    }

    #[cold]
    fn fill_by_bytes(&mut self) {
        while self.cached_bits <= 56 {
            let Some(byte) = self.bytes.get(self.next) else { return };
            self.cache |= u64::from(*byte) << 56 >> self.cached_bits;
            self.next += 1;
            self.cached_bits += 8;
        }
    }

    /// Returns the next `count` bits, at most 32.
    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> Result<u32, PacketProblem> {
        self.fill();
        if count > self.cached_bits {
            return Err(PacketProblem::Ends);
        }
        let bits = if count == 0 { 0 } else { self.cache >> (64 - count) };
        self.pass(count);
        Ok(u32::try_from(bits).expect("at most 32 bits"))
    }

    /// Returns the next `count` bits, at most 32, as a signed number.
    #[inline]
    pub(super) fn signed(&mut self, count: u32) -> Result<i32, PacketProblem> {
        let bits = self.bits(count)?;
        let unused = 32 - count;
        Ok(if count == 0 { 0 } else { (bits << unused).cast_signed() >> unused })
    }

    /// Returns the number of zeros before the next one, and passes that too.
    #[inline]
    pub(super) fn zeros(&mut self) -> Result<u32, PacketProblem> {
        let mut zeros = 0;
        loop {
            self.fill();
            let here = self.cache.leading_zeros();
            if here < self.cached_bits {
                self.pass(here + 1);
                return Ok(zeros + here);
            }
            if self.cached_bits == 0 {
                return Err(PacketProblem::Ends);
            }
            // A packet has fewer than 2^32 bits: a file of that many zeros has no second header.
            zeros = u32::checked_add(zeros, self.cached_bits).ok_or(PacketProblem::Residual)?;
            self.pass(self.cached_bits);
        }
    }

    /// Reads numbers of a Rice code with `low_bits` low bits, at most 30.
    pub(super) fn rice(&mut self, low_bits: u32, numbers: &mut [i32]) -> Result<(), PacketProblem> {
        // A copy, whose fields the compiler keeps in registers.
        let Self { bytes, next, cache, cached_bits } = *self;
        let mut reader = Self { bytes, next, cache, cached_bits };
        for number in numbers {
            *number = reader.rice_number(low_bits)?;
        }
        *self = reader;
        Ok(())
    }

    #[inline]
    fn rice_number(&mut self, low_bits: u32) -> Result<i32, PacketProblem> {
        self.fill();
        let zeros = self.cache.leading_zeros();
        let length = zeros + 1 + low_bits;
        let folded = if length <= self.cached_bits {
            // The zeros, the set bit that ends them, and the low bits.
            let bits = self.cache >> (64 - length);
            self.cache = self.cache << (length - 1) << 1;
            self.cached_bits -= length;
            (bits & ((1 << low_bits) - 1)) | u64::from(zeros) << low_bits
        } else {
            let zeros = u64::from(self.zeros()?);
            zeros << low_bits | u64::from(self.bits(low_bits)?)
        };
        let folded = u32::try_from(folded).map_err(|_| PacketProblem::Residual)?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    /// Passes bits of the cache.
    #[inline]
    const fn pass(&mut self, count: u32) {
        // Two shifts, as `count` may be 64.
        self.cache = self.cache << (count / 2) << (count - count / 2);
        self.cached_bits -= count;
    }

    /// Returns the number of whole bytes up to the next bit, which counts for those that begin.
    pub(super) const fn bytes_begun(&self) -> usize {
        self.next - (self.cached_bits / 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_same_however_they_are_cut() {
        let bytes: Vec<u8> = (0..200_u32).map(|n| u8::try_from(n * 167 % 256).unwrap()).collect();
        let bit = |nth: usize| u32::from(bytes[nth / 8] >> (7 - nth % 8) & 1);
        for step in 0..32 {
            let mut reader = BitReader::new(&bytes);
            let mut at = 0;
            while at + 33 <= bytes.len() * 8 {
                let count = (at % 7 + step) % 33;
                let expected = (at..at + count).fold(0, |number, nth| number << 1 | bit(nth));
                assert_eq!(reader.bits(u32::try_from(count).unwrap()).unwrap(), expected, "{count} bits at {at}");
                at += count.max(1);
                if count == 0 {
                    reader.bits(1).unwrap();
                }
                assert_eq!(reader.bytes_begun(), at.div_ceil(8));
            }
        }
    }

    #[test]
    fn rice_codes_of_any_length_are_read_up_to_the_end() {
        for low_bits in [0, 1, 7, 30] {
            for zeros in [0_u32, 1, 5, 54, 55, 56, 57, 63, 64, 65, 200] {
                // The low bits are ones.
                let bits = zeros as usize + 1 + low_bits as usize;
                let mut bytes = vec![0_u8; bits.div_ceil(8)];
                for nth in zeros as usize..bits {
                    bytes[nth / 8] |= 0x80 >> (nth % 8);
                }
                let folded = u64::from(zeros) << low_bits | ((1 << low_bits) - 1);
                let rice = |bytes: &[u8]| {
                    let mut number = [0];
                    BitReader::new(bytes).rice(low_bits, &mut number).map(|()| i64::from(number[0]))
                };
                let read = rice(&bytes);
                let Ok(folded) = u32::try_from(folded) else {
                    assert_eq!(read, Err(PacketProblem::Residual));
                    continue;
                };
                let expected = i64::from(folded >> 1) ^ -i64::from(folded & 1);
                assert_eq!(read, Ok(expected), "{zeros} zeros, {low_bits} bits");
                assert_eq!(rice(&bytes[..bytes.len() - 1]), Err(PacketProblem::Ends));
            }
        }
    }
}
