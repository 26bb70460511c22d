//! Draws from the symmetric Dirichlet distribution; with two shares it is the beta distribution. The logarithm and the
//! exponential are ours, so the draws are the same on every machine.

use spdl_types::{
    Draw,
    elementary::{exp, ln},
};

/// Draws `count` shares that add up to 1; the parameter of each is `alpha`.
pub(super) fn dirichlet(draw: &mut Draw, alpha: f64, count: u32) -> Vec<f64> {
    // With a small `alpha`, the numbers themselves would all be 0.
    let logarithms: Vec<f64> = (0..count).map(|_| ln_gamma(draw, alpha)).collect();
    let greatest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts = logarithms.iter().map(|logarithm| exp((logarithm - greatest).max(LEAST)));
    let parts: Vec<f64> = parts.collect();
    let sum: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / sum).collect()
}

/// Below this, the exponential is 0 beside 1.
const LEAST: f64 = -600.0;

/// Draws the logarithm of a number with the gamma distribution: Marsaglia and Tsang, "A simple method for generating gamma
/// variables" (ACM TOMS 2000).
fn ln_gamma(draw: &mut Draw, alpha: f64) -> f64 {
    if alpha < 1.0 {
        return ln_gamma(draw, alpha + 1.0) + ln(positive(draw)) / alpha;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    // At least 95 of 100 tries succeed.
    loop {
        let x = normal(draw);
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let v = root * root * root;
        if ln(positive(draw)) < 0.5 * x * x + d - d * v + d * ln(v) {
            return ln(d * v);
        }
    }
}

/// Draws from the standard normal distribution, by Marsaglia's polar method.
fn normal(draw: &mut Draw) -> f64 {
    loop {
        let (u, v) = (draw.between(-1.0, 1.0), draw.between(-1.0, 1.0));
        let square = u * u + v * v;
        if square > 0.0 && square < 1.0 {
            return u * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Draws uniformly from (0, 1].
fn positive(draw: &mut Draw) -> f64 {
    1.0 - draw.unit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 20_000;

    #[test]
    fn shares_have_the_mean_and_the_variance_of_the_distribution() {
        for (alpha, count) in [(1.0, 2), (1.0, 3), (0.3, 3), (4.5, 5), (0.001, 2), (1000.0, 3)] {
            let n = f64::from(count);
            let (mut sum, mut squares) = (0.0, 0.0);
            for id in 0..DRAWS {
                let shares = dirichlet(&mut Draw::new(1, 2, id), alpha, count);
                assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                sum += shares[0];
                squares += shares[0] * shares[0];
            }
            let mean = sum / DRAWS as f64;
            let variance = squares / DRAWS as f64 - mean * mean;
            let expected = (n - 1.0) / (n * n * (n * alpha + 1.0));
            // Five standard deviations of the mean; of the variance, more than that.
            assert!((mean - 1.0 / n).abs() < 5.0 * (expected / DRAWS as f64).sqrt(), "{alpha} {count}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.07, "{alpha} {count}: {variance} for {expected}");
        }
    }

    #[test]
    fn a_share_of_two_with_alpha_1_is_uniform() {
        let mut counts = [0.0; 10];
        for id in 0..DRAWS {
            counts[((dirichlet(&mut Draw::new(3, 4, id), 1.0, 2)[0] * 10.0) as usize).min(9)] += 1.0;
        }
        let expected = DRAWS as f64 / 10.0;
        let statistic: f64 = counts.iter().map(|count| (count - expected) * (count - expected) / expected).sum();
        assert!(statistic < 9.0 + 5.0 * 18_f64.sqrt(), "{statistic}: {counts:?}");
    }
}
