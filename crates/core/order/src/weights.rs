//! The weights of sources, from any numbers to parts of a period.

use super::{BLEND_PERIOD, MAX_SOURCES};

/// Returns the weights of sources as whole parts of [`BLEND_PERIOD`], by largest remainders, each at least 1. The shares can
/// be any positive numbers; what counts is how they compare. A share of 0 has the weight 0. Equal shares get weights that differ by at most 1, of which the
/// larger ones come first.
///
/// # Panics
/// If there is no share above 0 or there are more than [`MAX_SOURCES`] shares, or one is negative or not a number.
#[must_use]
pub fn blend_weights(shares: &[f64]) -> Vec<u32> {
    let is_share = |share: &f64| share.is_finite() && *share >= 0.0;
    assert!((1..=MAX_SOURCES).contains(&shares.len()) && shares.iter().all(is_share), "{shares:?} are no shares");
    // Divided by the largest one first, so that the sum is a number, too.
    let largest = shares.iter().copied().fold(0.0, f64::max);
    assert!(largest > 0.0, "{shares:?} have no share above 0");
    let sum: f64 = shares.iter().map(|share| share / largest).sum();
    let exact: Vec<f64> = shares.iter().map(|share| share / largest / sum * f64::from(BLEND_PERIOD)).collect();
    let weight = |(exact, share): (&f64, &f64)| (exact.floor() as u32).clamp(u32::from(*share > 0.0), BLEND_PERIOD);
    let mut weights: Vec<u32> = exact.iter().zip(shares).map(weight).collect();
    let mut by_remainder: Vec<usize> = (0..shares.len()).collect();
    let remainder = |source: &usize| exact[*source] - exact[*source].floor();
    by_remainder.sort_by(|a, b| remainder(b).total_cmp(&remainder(a)));
    let mut next = by_remainder.iter().cycle();
    loop {
        let all: u32 = weights.iter().sum();
        match all.cmp(&BLEND_PERIOD) {
            std::cmp::Ordering::Equal => return weights,
            std::cmp::Ordering::Less => {
                let source = next.next().expect("a cycle has no end");
                // A source that was raised to 1 has more than its share already.
                weights[*source] += u32::from(exact[*source] >= 1.0);
            }
            std::cmp::Ordering::Greater => {
                let largest = weights.iter_mut().max().expect("there is a source");
                *largest -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_parts_of_the_period_in_the_proportion_of_the_shares() {
        assert_eq!(blend_weights(&[0.7, 0.3]), [45_875, 19_661]);
        assert_eq!(blend_weights(&[7.0, 3.0]), [45_875, 19_661]);
        assert_eq!(blend_weights(&[1.0, 1.0, 1.0]), [21_846, 21_845, 21_845]);
        assert_eq!(blend_weights(&[5.0]), [BLEND_PERIOD]);
        assert_eq!(blend_weights(&[0.0, 7.0, 3.0, 0.0]), [0, 45_875, 19_661, 0]);
        assert_eq!(blend_weights(&[0.0, 1e-12, 1e-300]), [0, BLEND_PERIOD - 1, 1]);
        assert_eq!(blend_weights(&[f64::MAX, f64::MAX]), [1 << 15; 2]);
        assert_eq!(blend_weights(&[f64::MIN_POSITIVE, f64::MAX]), [1, BLEND_PERIOD - 1]);
        let mut tiny = vec![1e-12; 63];
        tiny.push(1.0);
        let weights = blend_weights(&tiny);
        assert_eq!((&weights[..63], weights[63]), (&[1; 63][..], BLEND_PERIOD - 63));
        for count in 1..=64_u32 {
            let shares: Vec<f64> = (1..=count).map(|n| f64::from(n).powf(2.5)).collect();
            let weights = blend_weights(&shares);
            assert_eq!(weights.iter().sum::<u32>(), BLEND_PERIOD);
            let sum: f64 = shares.iter().sum();
            for (weight, share) in weights.iter().zip(&shares) {
                let exact = share / sum * f64::from(BLEND_PERIOD);
                assert!((f64::from(*weight) - exact).abs() < 1.0 || *weight == 1, "{weight} for {exact}");
            }
        }
    }
}
