//! Elementary functions of real numbers, with the same result on every machine. They use only operations that IEEE 754 rounds
//! exactly; the standard library's results differ between platforms.

/// Returns the natural logarithm of a positive, normal number, accurate to a few units in the last place.
#[must_use]
pub fn ln(x: f64) -> f64 {
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
#[must_use]
pub fn exp(x: f64) -> f64 {
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
/// 90.
#[must_use]
pub fn sin_cos(degrees: f64) -> (f64, f64) {
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
