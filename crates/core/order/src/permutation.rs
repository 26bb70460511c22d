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

    /// Returns like [`permute`](Self::permute) the place that an element of each of four permutations moves to: key, n, and x of each.
    ///
    /// # Panics
    /// If an x is not below its n.
    #[must_use]
    pub fn permute_four(of: [(Self, u64, u64); 4]) -> [u64; 4] {
        assert!(of.iter().all(|(_, n, x)| x < n), "elements of permutations: {of:?}");
        let of_first = rounds(of[0].1);
        if of.iter().all(|(_, n, _)| rounds(*n) == of_first) {
            return permute_four(of, of_first);
        }
        of.map(|(key, n, x)| if n == 1 { x } else { key.permute(n, x) })
    }
}

/// Maps 64 random bits to `0..n` by their high bits: a multiplication instead of a division.
const fn scale(bits: u64, n: u64) -> u64 {
    ((bits as u128 * n as u128) >> 64) as u64
}

/// Returns the network on `n` elements: the bits of b, and a. b is a power of two near the square root of n, and a * b exceeds n by less
/// than b. So splitting needs no division, and the cycle walk rarely takes more than one step.
const fn network(n: u64) -> (u32, u64) {
    let b_bits = (u64::BITS - (n - 1).leading_zeros()).div_ceil(2);
    (b_bits, ((n - 1) >> b_bits) + 1)
}

/// Computes the permutation with an even number of rounds.
#[inline]
pub(super) fn permute(key: Key, n: u64, x: u64, rounds: u32) -> u64 {
    assert!(x < n, "element {x} of a permutation of {n}");
    let (b_bits, a) = network(n);
    let b_mask = (1_u64 << b_bits) - 1;
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

/// An element on its way through a permutation.
#[derive(Clone, Copy)]
struct CycleWalk {
    key: Key,
    n: u64,
    b_bits: u32,
    a: u64,
    y: u64,
    left: u64,
    right: u64,
    round_key: u64,
}

/// Computes four permutations side by side: each round waits for the one before it, and those of the others fill the time.
fn permute_four(of: [(Key, u64, u64); 4], rounds: u32) -> [u64; 4] {
    let mut walks = of.map(|(key, n, x)| {
        let (b_bits, a) = network(n);
        CycleWalk { key, n, b_bits, a, y: x, left: 0, right: 0, round_key: 0 }
    });
    let mut has_arrived = [false; 4];
    while has_arrived != [true; 4] {
        for walk in &mut walks {
            (walk.left, walk.right) = (walk.y >> walk.b_bits, walk.y & ((1 << walk.b_bits) - 1));
            walk.round_key = walk.key.0;
        }
        for _ in 0..rounds / 2 {
            for walk in &mut walks {
                walk.round_key = walk.round_key.wrapping_add(GAMMA);
                let left = walk.left + scale(mix(walk.right.wrapping_add(walk.round_key)), walk.a);
                walk.left = left - if left >= walk.a { walk.a } else { 0 };
                walk.round_key = walk.round_key.wrapping_add(GAMMA);
                let right = walk.right + scale(mix(walk.left.wrapping_add(walk.round_key)), 1 << walk.b_bits);
                walk.right = right & ((1 << walk.b_bits) - 1);
            }
        }
        for (walk, has_arrived) in walks.iter_mut().zip(&mut has_arrived).filter(|(_, has_arrived)| !**has_arrived) {
            walk.y = walk.left << walk.b_bits | walk.right;
            *has_arrived = walk.y < walk.n;
        }
    }
    walks.map(|walk| walk.y)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn four_permutations_are_those_of_each(
            few in prop::array::uniform4((any::<u64>(), prop_oneof![1_u64..30, 1_u64..300], any::<u64>())),
            many in prop::array::uniform4((any::<u64>(), 256_u64..=u64::MAX, any::<u64>())),
            are_many in any::<[bool; 4]>(),
        ) {
            let element = |(key, n, x): (u64, u64, u64)| (Key(key), n, x % n);
            let mixed = std::array::from_fn(|lane| if are_many[lane] { many[lane] } else { few[lane] });
            for of in [few, many, mixed].map(|of| of.map(element)) {
                prop_assert_eq!(Key::permute_four(of), of.map(|(key, n, x)| key.permute(n, x)));
            }
        }
    }
}
