//! Random numbers that depend only on (seed, epoch, sample id), for the operations of columns and for functions in Rust. All
//! arithmetic is implemented here, so that results do not depend on a library's version.

use crate::mix::splitmix64;

/// The random generator of one sample in one epoch: xoshiro256++ (Blackman, Vigna, 2019). Its numbers never change.
#[derive(Clone, Debug)]
pub struct Draw([u64; 4]);

impl Draw {
    /// Creates the generator of a job's seed, an epoch and a sample.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, id: u64) -> Self {
        Self::of_part(seed, epoch, id, 0)
    }

    /// Creates the generator of one part of a sample, such as a picture of a list. Part 0 has the generator of the
    /// sample itself.
    #[must_use]
    pub fn of_part(seed: u64, epoch: u64, id: u64, part: u32) -> Self {
        let mut state = splitmix64(splitmix64(splitmix64(seed) ^ epoch) ^ id);
        if part > 0 {
            state = splitmix64(state ^ u64::from(part));
        }
        Self(std::array::from_fn(|_| {
            state = splitmix64(state);
            state
        }))
    }

    /// Draws a number of 64 bits, such as the seed of another generator.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        let state = &mut self.0;
        let drawn = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        drawn
    }

    /// Draws uniformly from [0, 1), in multiples of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws uniformly from [low, high).
    #[inline]
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws uniformly from 0..n; probabilities are off by less than n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_of_a_key_never_change() {
        let mut draw = Draw::new(17, 3, 1_281_166);
        let units: Vec<u64> = (0..3).map(|_| (draw.unit() * (1u64 << 53) as f64) as u64).collect();
        // Computed by a separate implementation in Python.
        assert_eq!(units, [3_828_994_841_440_935, 5_798_521_405_679_758, 8_079_250_157_201_010]);
        assert_eq!((0..4).map(|_| draw.below(1000)).collect::<Vec<_>>(), [963, 383, 336, 949]);
    }

    #[test]
    fn seed_epoch_and_id_each_matter() {
        let first = |seed, epoch, id| Draw::new(seed, epoch, id).unit();
        let base = first(1, 2, 3);
        for other in [first(2, 2, 3), first(1, 3, 3), first(1, 2, 4), first(2, 1, 3), first(1, 3, 2)] {
            assert!(base != other);
        }
    }

    #[test]
    fn each_part_of_a_sample_draws_for_itself_and_the_first_as_the_sample() {
        let firsts = |id, part| {
            let mut draw = Draw::of_part(17, 3, id, part);
            [(); 3].map(|()| draw.bits())
        };
        let mut sample = Draw::new(17, 3, 5);
        assert_eq!(firsts(5, 0), [(); 3].map(|()| sample.bits()));
        let mut seen = std::collections::BTreeSet::new();
        for id in 0..50 {
            for part in 0..50 {
                for bits in firsts(id, part) {
                    assert!(seen.insert(bits), "part {part} of sample {id} repeats a draw");
                }
            }
        }
        // Computed by a separate implementation in Python.
        let expected = [18_180_744_677_340_246_088, 9_818_642_001_325_414_603, 6_614_037_026_511_068_532];
        assert_eq!(firsts(1_281_166, 7), expected);
    }

    #[test]
    fn draws_stay_in_their_range_and_fill_it() {
        let mut draw = Draw::new(0, 0, 0);
        let mut seen = [false; 7];
        let mut sum = 0.0;
        for _ in 0..10_000 {
            seen[draw.below(7) as usize] = true;
            let value = draw.between(2.0, 4.0);
            assert!((2.0..4.0).contains(&value));
            sum += value;
        }
        assert_eq!(seen, [true; 7]);
        assert!((sum / 10_000.0 - 3.0).abs() < 0.05);
    }
}
