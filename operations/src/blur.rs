//! Blurs with a separable kernel; beyond the border lies the picture's reflection.
//!
//! Between the passes, values have 7 bits after the point, and weights have 16, so that twice as many of them fit a vector as
//! floats would. The result is within a level of what floats give.

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

/// Returns what is added to a sum before its bits after the point are cut off: half a level, and half of the last bit of each
/// product, which were cut off in both passes.
fn rounding(weights: &[u16]) -> u16 {
    (1 << (BITS - 1)) + weights.len() as u16
}

/// Adds up the weighted values of as many rows as the kernel has, of which the middle one is the blurred one.
fn down(rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        #[allow(unsafe_code)]
        return unsafe { avx2::down(rows, weights, sums) };
    }
    down_from(0, rows, weights, sums);
}

/// Writes a row of which `sums` has the values, with those beyond both ends.
fn across(sums: &[u16], weights: &[u16], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        #[allow(unsafe_code)]
        return unsafe { avx2::across(sums, weights, out) };
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

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{BITS, across_from, down_from, rounding};

    /// Values of a vector.
    const LANES: usize = 16;
    /// Values that are added up at a time.
    const RUN: usize = 4 * LANES;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load_bytes<const N: usize>(bytes: &[u8], at: usize) -> [__m256i; N] {
        let (vectors, _) = bytes[at..at + N * LANES].as_chunks::<LANES>();
        // SAFETY: 16 bytes are read from an array of as many.
        std::array::from_fn(|n| _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(vectors[n].as_ptr().cast()) }))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load<const N: usize>(values: &[u16], at: usize) -> [__m256i; N] {
        let (vectors, _) = values[at..at + N * LANES].as_chunks::<LANES>();
        // SAFETY: 16 values are read from an array of as many.
        std::array::from_fn(|n| unsafe { _mm256_loadu_si256(vectors[n].as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn all(value: u16) -> __m256i {
        _mm256_set1_epi16(value.cast_signed())
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn down(rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
        let mut done = 0;
        while done + RUN <= sums.len() {
            down_run::<4>(done, rows, weights, sums);
            done += RUN;
        }
        while done + LANES <= sums.len() {
            down_run::<1>(done, rows, weights, sums);
            done += LANES;
        }
        down_from(done, rows, weights, sums);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn down_run<const N: usize>(at: usize, rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
        let reach = weights.len() - 1;
        let point = |values: __m256i| _mm256_slli_epi16::<{ BITS.cast_signed() }>(values);
        let middle = load_bytes::<N>(rows[reach], at);
        let mut totals = middle.map(|values| _mm256_mulhi_epu16(point(values), all(weights[0])));
        let (above, below) = (rows[..reach].iter().rev(), &rows[reach + 1..]);
        for ((above, below), weight) in above.zip(below).zip(&weights[1..]) {
            let (above, below, weight) = (load_bytes::<N>(above, at), load_bytes::<N>(below, at), all(*weight));
            for n in 0..N {
                let product = _mm256_mulhi_epu16(point(_mm256_add_epi16(above[n], below[n])), weight);
                totals[n] = _mm256_add_epi16(totals[n], product);
            }
        }
        let (vectors, _) = sums[at..at + N * LANES].as_chunks_mut::<LANES>();
        for (vector, total) in vectors.iter_mut().zip(totals) {
            // SAFETY: 16 values are written to an array of as many.
            unsafe { _mm256_storeu_si256(vector.as_mut_ptr().cast(), total) };
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn across(sums: &[u16], weights: &[u16], out: &mut [u8]) {
        let mut done = 0;
        while done + RUN <= out.len() {
            across_run::<4>(done, sums, weights, out);
            done += RUN;
        }
        while done + LANES <= out.len() {
            across_run::<1>(done, sums, weights, out);
            done += LANES;
        }
        across_from(done, sums, weights, out);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn across_run<const N: usize>(at: usize, sums: &[u16], weights: &[u16], out: &mut [u8]) {
        let middle = at + (weights.len() - 1) * 3;
        let round = all(rounding(weights));
        let mut totals =
            load::<N>(sums, middle).map(|values| _mm256_add_epi16(round, _mm256_mulhi_epu16(values, all(weights[0]))));
        for (distance, weight) in weights.iter().enumerate().skip(1) {
            let (left, right) = (load::<N>(sums, middle - distance * 3), load::<N>(sums, middle + distance * 3));
            let weight = all(*weight);
            for n in 0..N {
                let product = _mm256_mulhi_epu16(_mm256_add_epi16(left[n], right[n]), weight);
                totals[n] = _mm256_add_epi16(totals[n], product);
            }
        }
        let (vectors, _) = out[at..at + N * LANES].as_chunks_mut::<LANES>();
        for (vector, total) in vectors.iter_mut().zip(totals) {
            let levels = _mm256_srli_epi16::<{ BITS.cast_signed() }>(total);
            let bytes = _mm_packus_epi16(_mm256_castsi256_si128(levels), _mm256_extracti128_si256::<1>(levels));
            // SAFETY: 16 bytes are written to an array of as many.
            unsafe { _mm_storeu_si128(vector.as_mut_ptr().cast(), bytes) };
        }
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
        let weights = fixed(&[0.3, 0.2, 0.1, 0.05]);
        let values: Vec<Vec<u8>> = (0..7).map(|row| (0..155).map(|at| (at * 89 + row * 57) as u8).collect()).collect();
        let rows: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let (mut own, mut plain) = ([0; 155], [0; 155]);
        down(&rows, &weights, &mut own);
        down_from(0, &rows, &weights, &mut plain);
        assert_eq!(own, plain);
        let (mut own, mut bytes) = ([0; 137], [0; 137]);
        across(&plain, &weights, &mut own);
        across_from(0, &plain, &weights, &mut bytes);
        assert_eq!(own, bytes);
    }
}
