//! Adds the predictions to the residuals of a channel, in place. Sums wrap: only damaged packets have such.

/// Adds what a polynomial of degree `order - 1` through the samples before predicts.
pub(super) fn fixed(order: usize, samples: &mut [i32]) {
    match order {
        1 => by(samples, [1]),
        2 => by(samples, [-1, 2]),
        3 => by(samples, [1, -3, 3]),
        4 => by(samples, [-1, 4, -6, 4]),
        _ => {}
    }

    fn by<const N: usize>(samples: &mut [i32], weights: [i32; N]) {
        narrow(&weights, 0, samples);
    }
}

/// Adds the weighted sum of the samples before, shifted right. The last weight is that of the nearest sample.
pub(super) fn linear(weights: &[i32], shift: u32, sums_are_narrow: bool, samples: &mut [i32]) {
    macro_rules! of_length {
        ($sum:ident: $($length:literal)*) => {
            match weights.len() {
                $($length => $sum::<$length>(weights.try_into().expect("so many"), shift, samples),)*
                length => unreachable!("{length} weights are written in 5 bits"),
            }
        };
    }
    // The number of weights is known to the compiler, which unrolls the sum.
    if sums_are_narrow {
        of_length!(narrow: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    } else {
        of_length!(wide: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    }
}

/// For sums that have at most 32 bits.
fn narrow<const N: usize>(weights: &[i32; N], shift: u32, samples: &mut [i32]) {
    for at in N..samples.len() {
        let Some(before) = samples[..at].last_chunk::<N>() else { return };
        let mut sum = 0_i32;
        for nth in 0..N {
            sum = sum.wrapping_add(weights[nth].wrapping_mul(before[nth]));
        }
        samples[at] = samples[at].wrapping_add(sum >> shift);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "of a packet that is not damaged, samples have at most 25 bits")]
fn wide<const N: usize>(weights: &[i32; N], shift: u32, samples: &mut [i32]) {
    for at in N..samples.len() {
        let Some(before) = samples[..at].last_chunk::<N>() else { return };
        let products = weights.iter().zip(before).map(|(weight, sample)| i64::from(*weight) * i64::from(*sample));
        let sum: i64 = products.fold(0, i64::wrapping_add);
        samples[at] = samples[at].wrapping_add((sum >> shift) as i32);
    }
}
