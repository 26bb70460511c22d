//! All randomness of a seed.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A source of random choices; the same choices for the same seed.
#[derive(Debug)]
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns one of `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.bits() % (to - from + 1)
    }

    /// Returns one of `0..count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// Returns true in `chance` of 100 cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.bits() % 100 < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}
