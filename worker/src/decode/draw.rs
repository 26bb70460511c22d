//! Random numbers for transforms, which depend only on (seed, epoch, sample id). All arithmetic on the raw 64 bits is
//! implemented here and uses only operations that IEEE 754 rounds exactly, so that results depend neither on a
//! library's version nor on the machine.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use spdl_core::mix::splitmix64;

/// The random generator of one sample in one epoch.
#[derive(Clone, Debug)]
pub(crate) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    pub(crate) fn new(seed: u64, epoch: u64, id: u64) -> Self {
        let mut state = splitmix64(splitmix64(splitmix64(seed) ^ epoch) ^ id);
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            state = splitmix64(state);
            word.copy_from_slice(&state.to_le_bytes());
        }
        Self(Xoshiro256PlusPlus::from_seed(bytes))
    }

    /// Draws uniformly from [0, 1), in multiples of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws uniformly from [low, high).
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws uniformly from 0..n; probabilities are off by less than n / 2^64.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u32
    }
}

/// Returns the natural logarithm of a positive, normal number, accurate to a few units in the last place. The standard
/// library's result differs between platforms.
pub(crate) fn ln(x: f64) -> f64 {
    const SQRT_2: f64 = std::f64::consts::SQRT_2;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), with |.| < 0.172: 12 terms reach 2^-60.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for n in (0..12).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * t * sum
}

/// Returns e^x for |x| < 700, accurate to a few units in the last place.
pub(crate) fn exp(x: f64) -> f64 {
    let exponent = (x / std::f64::consts::LN_2).round_ties_even();
    let rest = x - exponent * std::f64::consts::LN_2;
    // |rest| < 0.35: 16 terms of the series reach 2^-60.
    let mut sum = 1.0;
    for n in (1..=16).rev() {
        sum = 1.0 + sum * rest / f64::from(n);
    }
    sum * f64::from_bits(((exponent as i64 + 1023) as u64) << 52)
}

/// Returns the sine and the cosine of an angle in degrees, accurate to a few units in the last place and exact for multiples of
/// 90. The standard library's results differ between platforms.
pub(crate) fn sin_cos(degrees: f64) -> (f64, f64) {
    let quarters = (degrees / 90.0).round_ties_even();
    let angle = (degrees - quarters * 90.0) * (std::f64::consts::PI / 180.0);
    let square = angle * angle;
    // |angle| < 0.79: the last terms are below 2^-60.
    let (mut sin, mut cos) = (1.0, 1.0);
    for n in (1..=9).rev() {
        sin = 1.0 - sin * square / f64::from(2 * n * (2 * n + 1));
        cos = 1.0 - cos * square / f64::from(2 * n * (2 * n - 1));
    }
    let sin = sin * angle;
    match (quarters.rem_euclid(4.0)) as u32 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
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

    #[test]
    fn sin_cos_agrees_with_the_standard_library() {
        for n in -4000..4000 {
            let degrees = f64::from(n) / 7.0;
            let ((sin, cos), (expected_sin, expected_cos)) = (sin_cos(degrees), degrees.to_radians().sin_cos());
            assert!((sin - expected_sin).abs() < 1e-14 && (cos - expected_cos).abs() < 1e-14, "{degrees}");
        }
        assert_eq!(
            [0.0, 90.0, 180.0, 270.0, -90.0].map(sin_cos),
            [(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (-1.0, 0.0)]
        );
    }

    #[test]
    fn ln_and_exp_agree_with_the_standard_library() {
        for n in 1..2000 {
            let x = f64::from(n) / 37.0;
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * (1.0 + x.ln().abs()), "ln {x}");
            let y = f64::from(n - 1000) / 90.0;
            assert!((exp(y) / y.exp() - 1.0).abs() <= 4e-15, "exp {y}");
        }
    }
}
