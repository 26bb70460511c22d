//! The weighted sums of samples, across and down.

use std::arch::x86_64::*;

use super::{factors, load, store, transpose};
use crate::kernel::{ACROSS_SHIFT, DOWN_SHIFT, STRIP, Strip};

sums_by_pairs!("avx2");

#[inline]
#[target_feature(enable = "avx2")]
fn across_of<P: AsRef<[[i16; 2]]>>(
    plane: &[u8],
    from: usize,
    stride: usize,
    firsts: &[u32; STRIP],
    pairs: impl IntoIterator<Item = P>,
    out: &mut [Strip; STRIP],
) {
    let round = _mm256_set1_epi32(1 << (ACROSS_SHIFT - 1));
    let mut columns = [_mm256_setzero_si256(); STRIP];
    for ((column, first), pairs) in columns.iter_mut().zip(firsts).zip(pairs) {
        let pairs = pairs.as_ref();
        let begin = *first as usize * stride + from;
        // Up to the last sample, so that all loads lie inside.
        let samples = &plane[begin..begin + (2 * pairs.len()).saturating_sub(1) * stride + STRIP];
        let mut sums = [round; 2];
        for (at, pair) in pairs.iter().enumerate() {
            let weights = factors(pair[0], pair[1]);
            // SAFETY: of the rows of `samples`, which are `stride` bytes apart, the last begins 16 bytes before its end; there are
            // two for each pair.
            let [first, second] =
                [2 * at, 2 * at + 1].map(|row| unsafe { _mm_loadu_si128(samples.as_ptr().add(row * stride).cast()) });
            let low = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second));
            let high = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second));
            sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(low, weights));
            sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(high, weights));
        }
        let [low, high] = sums.map(|sum| _mm256_srai_epi32::<{ ACROSS_SHIFT as i32 }>(sum));
        // Halves: values 0-3 and 8-11, 4-7 and 12-15.
        *column = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
    }
    let [left, right] = [0, 8].map(|first| transpose(std::array::from_fn(|at| columns[first + at])));
    for row in 0..8 {
        store(&mut out[row], _mm256_permute2x128_si256::<0x20>(left[row], right[row]));
        store(&mut out[row + 8], _mm256_permute2x128_si256::<0x31>(left[row], right[row]));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn down_of<P: AsRef<[[i16; 2]]>>(
    tile: &[Strip],
    firsts: &[u32],
    pairs: impl IntoIterator<Item = P>,
    out: &mut [Strip],
) {
    let round = _mm256_set1_epi32(1 << (DOWN_SHIFT - 1));
    for ((out, first), pairs) in out.iter_mut().zip(firsts).zip(pairs) {
        let pairs = pairs.as_ref();
        let rows = &tile[*first as usize..][..2 * pairs.len()];
        let mut sums = [round; 2];
        for ([first, second], pair) in rows.as_chunks().0.iter().zip(pairs) {
            let weights = factors(pair[0], pair[1]);
            let (first, second) = (load(first), load(second));
            sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi16(first, second), weights));
            sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi16(first, second), weights));
        }
        let [low, high] = sums.map(|sum| _mm256_srai_epi32::<{ DOWN_SHIFT as i32 }>(sum));
        store(out, _mm256_packs_epi32(low, high));
    }
}
