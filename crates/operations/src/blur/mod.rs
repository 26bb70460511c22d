//! Blurs with a separable kernel; beyond the border lies the picture's reflection.
//!
//! Between the passes, values have 7 bits after the point, and weights have 16, so that twice as many of them fit a vector as
//! floats would. The result is within a level of what floats give.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;

/// Bits after the point of values.
const BITS: u32 = 7;

/// Blurs the picture with a symmetric kernel, whose weights are given from its middle on, and writes the result to `out`.
pub(super) fn blur(rgb: &[u8], [width, height]: [u32; 2], weights: &[f32], out: &mut Vec<u8>) {
    out.resize(rgb.len(), 0);
    let weights = fixed(weights);
    let (width, height) = (width as usize, height as usize);
    let (row_bytes, reach) = (width * 3, weights.len() - 1);
    let mut sums = vec![0; (width + 2 * reach) * 3];
    let mut rows = Vec::with_capacity(2 * reach + 1);
    for (y, out) in out.chunks_exact_mut(row_bytes).enumerate() {
        let places = y as isize - reach as isize..=y as isize + reach as isize;
        rows.clear();
        rows.extend(places.map(|y| &rgb[reflected(y, height) * row_bytes..][..row_bytes]));
        down(&rows, &weights, &mut sums[reach * 3..][..row_bytes]);
        for beyond in 1..=reach as isize {
            for at in [-beyond, width as isize - 1 + beyond] {
                let (to, from) = ((at + reach as isize) as usize, reflected(at, width) + reach);
                sums.copy_within(from * 3..from * 3 + 3, to * 3);
            }
        }
        across(&sums, &weights, out);
    }
}

/// Returns the place of a pixel, where places beyond the border are reflected at the pixels of the border.
pub(super) const fn reflected(at: isize, size: usize) -> usize {
    if size == 1 {
        return 0;
    }
    let period = 2 * (size as isize - 1);
    let at = at.rem_euclid(period);
    (if at < size as isize { at } else { period - at }) as usize
}

/// Returns the weights as whole numbers; over both halves of the kernel, they add up to 2^16, or one less.
fn fixed(weights: &[f32]) -> Vec<u16> {
    let mut fixed: Vec<u16> = weights.iter().map(|weight| (weight * 65_536.0).round() as u16).collect();
    let sides: i32 = fixed[1..].iter().map(|weight| i32::from(*weight)).sum();
    fixed[0] = (65_536 - 2 * sides).clamp(0, 65_535) as u16;
    fixed
}

/// Returns the number to add to a sum before its bits after the point are cut off: half a level, and half of the last
/// bit for each product, because both passes cut off the bits below it.
fn rounding(weights: &[u16]) -> u16 {
    (1 << (BITS - 1)) + weights.len() as u16
}

/// Adds up the weighted values of the rows under the kernel, for the middle one of them.
fn down(rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        #[allow(unsafe_code)]
        return unsafe { avx2::down(rows, weights, sums) };
    }
    #[cfg(target_arch = "aarch64")]
    if neon::has_place_for(weights) {
        // SAFETY: every processor of this kind has these instructions.
        #[allow(unsafe_code)]
        return unsafe { neon::down(rows, weights, sums) };
    }
    down_from(0, rows, weights, sums);
}

/// Writes a row from its `sums`, which include the values beyond both ends.
fn across(sums: &[u16], weights: &[u16], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        #[allow(unsafe_code)]
        return unsafe { avx2::across(sums, weights, out) };
    }
    #[cfg(target_arch = "aarch64")]
    if neon::has_place_for(weights) {
        // SAFETY: every processor of this kind has these instructions.
        #[allow(unsafe_code)]
        return unsafe { neon::across(sums, weights, out) };
    }
    across_from(0, sums, weights, out);
}

/// Multiplies a value by a weight; the bits beyond those of a value are cut off.
fn times(value: u16, weight: u16) -> u16 {
    ((u32::from(value) * u32::from(weight)) >> 16) as u16
}

fn down_from(start: usize, rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
    let reach = weights.len() - 1;
    for (at, sum) in sums.iter_mut().enumerate().skip(start) {
        let value = |row: usize| u16::from(rows[row][at]);
        *sum = times(value(reach) << BITS, weights[0]);
        for (distance, weight) in weights.iter().enumerate().skip(1) {
            *sum += times((value(reach - distance) + value(reach + distance)) << BITS, *weight);
        }
    }
}

fn across_from(start: usize, sums: &[u16], weights: &[u16], out: &mut [u8]) {
    let reach = weights.len() - 1;
    for (at, out) in out.iter_mut().enumerate().skip(start) {
        let middle = at + reach * 3;
        let mut total = times(sums[middle], weights[0]);
        for (distance, weight) in weights.iter().enumerate().skip(1) {
            total += times(sums[middle - distance * 3] + sums[middle + distance * 3], *weight);
        }
        *out = ((total + rounding(weights)) >> BITS).min(255) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_the_border_are_reflected() {
        let places: Vec<usize> = (-5..8).map(|at| reflected(at, 3)).collect();
        assert_eq!(places, [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!((reflected(-7, 1), reflected(9, 1), reflected(-1, 2), reflected(2, 2)), (0, 0, 1, 0));
    }

    #[test]
    fn one_color_stays() {
        for weights in [&[1.0][..], &[0.4, 0.2, 0.1], &[1.0 / 255.0; 128]] {
            for size in [[1, 1], [2, 7], [40, 3]] {
                let rgb = [9, 130, 255].repeat((size[0] * size[1]) as usize);
                let mut out = Vec::new();
                blur(&rgb, size, weights, &mut out);
                assert_eq!(out, rgb, "{size:?} {}", weights.len());
            }
        }
    }

    #[test]
    fn vector_instructions_do_not_change_the_result() {
        let noise = |row: usize| (0..155).map(|at| (at * 89 + row * 57) as u8).collect();
        for kernel in [&[0.3, 0.2, 0.1, 0.05][..], &[1.0], &[0.5, 0.25], &[0.0, 0.5], &[1.0 / 15.0; 8]] {
            let weights = fixed(kernel);
            let reach = weights.len() - 1;
            for values in [&noise as &dyn Fn(usize) -> Vec<u8>, &|_| vec![255; 155]] {
                let values: Vec<Vec<u8>> = (0..=2 * reach).map(values).collect();
                let rows: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                let (mut own, mut plain) = ([0; 155], [0; 155]);
                down(&rows, &weights, &mut own);
                down_from(0, &rows, &weights, &mut plain);
                assert_eq!(own, plain, "{kernel:?}");
                let (mut own, mut bytes) = (vec![0; 155 - 6 * reach], vec![0; 155 - 6 * reach]);
                across(&plain, &weights, &mut own);
                across_from(0, &plain, &weights, &mut bytes);
                assert_eq!(own, bytes, "{kernel:?}");
            }
        }
    }
}
