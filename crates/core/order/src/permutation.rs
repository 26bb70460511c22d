//! The keyed permutation that every shuffle of the order consists of, and the derivation of its keys. Sequences of tokens
//! are permuted by it too.
//!
//! A generalised Feistel network on a * b >= n with cycle walking (Black and Rogaway, "Ciphers with
//! Arbitrary Finite Domains", CT-RSA 2002): random access in O(1), no array of n.

use spdl_types::mix::{GAMMA, mix, splitmix64};

/// Number of rounds in order version 1. A network on few elements has few round functions to choose from and needs more
/// rounds: with 8 rounds the 120 permutations of 5 elements are visibly unequal in frequency, with 16 they are not.
const fn rounds(n: u64) -> u32 {
    if n < 256 { 24 } else { 8 }
}

/// The purpose of a key. Keys of different purposes are independent.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// The blocks of the dataset.
    Deal = 1,
    /// The spans of a lane.
    Spans = 2,
    /// The start of a lane's windows.
    WindowStart = 3,
    /// The samples of a window.
    Window = 4,
    /// The substitute of a bad sample.
    Substitute = 5,
    /// How a sample is mixed with another one.
    Mix = 6,
    /// The pieces of documents of one length, among their places in packed sequences.
    Pieces = 7,
    /// The documents that are laid end to end and cut into sequences.
    Documents = 8,
    /// The seed of a source among several.
    Source = 9,
    /// The batches of a window whose samples are sorted by size.
    Bucket = 10,
}

/// A 64-bit key: a seed and a list of words, mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub(super) u64);

impl Key {
    /// Returns the key of a seed and a purpose.
    #[must_use]
    pub const fn new(seed: u64, purpose: Purpose) -> Self {
        Self(splitmix64(seed)).with(purpose as u64)
    }

    /// Returns the key of this key's words and one more word.
    #[must_use]
    pub const fn with(self, word: u64) -> Self {
        Self(mix(self.0 ^ splitmix64(word)))
    }

    /// Returns a number below `n`, almost uniformly distributed.
    pub(super) const fn below(self, n: u64) -> u64 {
        scale(self.0, n)
    }

    /// Returns the place that element `x` of `0..n` moves to.
    ///
    /// # Panics
    /// If `x` is not below `n`.
    #[must_use]
    pub fn permute(self, n: u64, x: u64) -> u64 {
        permute(self, n, x, rounds(n))
    }
}

/// Maps 64 random bits to `0..n` by their high bits: a multiplication instead of a division.
const fn scale(bits: u64, n: u64) -> u64 {
    ((bits as u128 * n as u128) >> 64) as u64
}

/// Computes the permutation with an even number of rounds.
#[inline]
pub(super) fn permute(key: Key, n: u64, x: u64, rounds: u32) -> u64 {
    assert!(x < n, "element {x} of a permutation of {n}");
    // b is a power of two near the square root of n, and a * b exceeds n by less than b. So splitting needs no
    // division, and the cycle walk rarely takes more than one step.
    let b_bits = (u64::BITS - (n - 1).leading_zeros()).div_ceil(2);
    let b_mask = (1_u64 << b_bits) - 1;
    let a = ((n - 1) >> b_bits) + 1;
    let mut y = x;
    loop {
        let (mut left, mut right) = (y >> b_bits, y & b_mask);
        let mut round_key = key.0;
        for _ in 0..rounds / 2 {
            round_key = round_key.wrapping_add(GAMMA);
            left += scale(mix(right.wrapping_add(round_key)), a);
            left -= if left >= a { a } else { 0 };
            round_key = round_key.wrapping_add(GAMMA);
            right = (right + scale(mix(left.wrapping_add(round_key)), b_mask + 1)) & b_mask;
        }
        y = left << b_bits | right;
        if y < n {
            return y;
        }
    }
}
