//! What is done with the sums of bands: logarithms, limits and means.

/// How the sums of bands become features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BandCompression {
    /// They are the features.
    None,
    /// Natural logarithms of at least `floor`.
    Floored {
        /// The least sum.
        floor: f32,
    },
    /// Decimal logarithms, at most 8 below the greatest of the sound, plus 4 and divided by 4.
    Whisper,
    /// Natural logarithms of the sums plus `added`; each band has a mean of 0 and a standard deviation of 1 over the sound.
    Standardised {
        /// What keeps the logarithm of silence finite.
        added: f32,
    },
}

/// What is added to a standard deviation, so that a band that never changes is not divided by zero.
const LEAST_DEVIATION: f64 = 1e-5;

impl BandCompression {
    /// Compresses values, each by itself.
    #[inline(always)]
    pub(super) fn compress(self, values: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Floored { floor } => values.iter_mut().for_each(|value| *value = ln(at_least(*value, floor))),
            Self::Whisper => {
                values.iter_mut().for_each(|value| *value = ln(at_least(*value, 1e-10)) * std::f32::consts::LOG10_E)
            }
            Self::Standardised { added } => values.iter_mut().for_each(|value| *value = ln(*value + added)),
        }
    }

    /// Does what needs all frames.
    pub(super) fn finish(self, frames: &mut [f32], mels: usize) {
        match self {
            Self::None | Self::Floored { .. } => {}
            Self::Whisper => {
                let greatest = frames.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                frames.iter_mut().for_each(|value| *value = (at_least(*value, greatest - 8.0) + 4.0) / 4.0);
            }
            Self::Standardised { .. } => standardise(frames, mels),
        }
    }
}

/// Gives each band a mean of 0 and a standard deviation of 1.
fn standardise(frames: &mut [f32], mels: usize) {
    let count = (frames.len() / mels) as f64;
    let mut sums = vec![0.0; mels];
    let mut add = |value: &dyn Fn(f32, usize) -> f64| {
        sums.fill(0.0);
        for frame in frames.chunks_exact(mels) {
            sums.iter_mut().enumerate().for_each(|(band, sum)| *sum += value(frame[band], band));
        }
        sums.clone()
    };
    let means: Vec<f64> = add(&|value, _| f64::from(value)).iter().map(|sum| sum / count).collect();
    let squares = add(&|value, band| (f64::from(value) - means[band]).powi(2));
    let deviations: Vec<f64> =
        squares.iter().map(|sum| (sum / (count - 1.0).max(1.0)).sqrt() + LEAST_DEVIATION).collect();
    for frame in frames.chunks_exact_mut(mels) {
        for (band, value) in frame.iter_mut().enumerate() {
            *value = ((f64::from(*value) - means[band]) / deviations[band]) as f32;
        }
    }
}

/// Returns the greater of two values. Unlike `max`, it keeps NaN.
#[inline(always)]
fn at_least(value: f32, least: f32) -> f32 {
    if value < least { least } else { value }
}

/// Returns the natural logarithm of a positive, normal number within 3 units in the last place; of infinity and NaN themselves.
///
/// It compiles to vector instructions, and gives the same bits on every processor, which the standard library's does not.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // The number is m * 2^exponent, with m from 0.71 to 1.41.
    let bits = x.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let exponent = (bits as i32) >> 23;
    let mantissa = f32::from_bits((bits & 0x007f_ffff).wrapping_add(std::f32::consts::FRAC_1_SQRT_2.to_bits()));
    // ln m = 2 artanh((m - 1) / (m + 1)), with |.| < 0.172: the term left out is below 3e-9.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = 1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    let result = exponent as f32 * std::f32::consts::LN_2 + 2.0 * t * series;
    if x < f32::INFINITY { result } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_agrees_with_the_standard_library() {
        for n in 0..200_000_u32 {
            let x = f32::from_bits(0x0080_0000 + n * 10_500);
            let error = (f64::from(ln(x)) - f64::from(x).ln()).abs();
            assert!(error <= 3e-7 * (1.0 + f64::from(x).ln().abs()), "ln {x} is off by {error}");
        }
        assert_eq!((ln(1.0), ln(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(ln(f32::NAN).is_nan());
    }

    #[test]
    fn bands_are_standardised_and_a_constant_one_becomes_zero() {
        let mut frames = [1.0, 5.0, 2.0, 5.0, 3.0, 5.0];
        standardise(&mut frames, 2);
        let expected = [-1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        assert!(
            frames.iter().zip(expected).all(|(value, expected): (&f32, f32)| (value - expected).abs() < 2e-5),
            "{frames:?}"
        );
        let mut one = [7.0, 8.0];
        standardise(&mut one, 2);
        assert_eq!(one, [0.0, 0.0]);
    }

    #[test]
    fn a_value_that_is_not_a_number_stays_one() {
        for compression in [
            BandCompression::Floored { floor: 1e-7 },
            BandCompression::Whisper,
            BandCompression::Standardised { added: 1e-7 },
        ] {
            let mut frame = [f32::NAN, 1.0];
            compression.compress(&mut frame);
            compression.finish(&mut frame, 2);
            assert!(frame[0].is_nan() && frame[1].is_finite(), "{compression:?} gives {frame:?}");
        }
    }
}
