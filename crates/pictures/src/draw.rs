//! Random numbers for a picture. The arithmetic is our own, so that a set stays the same when a library changes.

use rand::Rng;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use spdl_types::mix::{GAMMA, mix};

/// The random number generator of one picture.
pub(super) struct Draws(Xoshiro256PlusPlus);

impl Draws {
    pub(super) fn new(seed: u64, index: u64) -> Self {
        let mut state = seed ^ mix(index.wrapping_add(1));
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            state = state.wrapping_add(GAMMA);
            word.copy_from_slice(&mix(state).to_le_bytes());
        }
        Self(Xoshiro256PlusPlus::from_seed(bytes))
    }

    /// Returns a random number in `0..limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a random number in `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns a nearly normally distributed number with mean 0 and standard deviation 256. It is the scaled sum of
    /// eight random bytes, which has mean 1020 and standard deviation 209.
    pub(super) fn normal(&mut self) -> i32 {
        let sum: i32 = self.0.next_u64().to_le_bytes().iter().map(|&byte| i32::from(byte)).sum();
        (sum - 1020) * 256 / 209
    }
}
