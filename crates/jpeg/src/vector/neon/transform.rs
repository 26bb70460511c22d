//! The inverse transform of blocks at full, half and quarter size.

use std::arch::aarch64::*;

use super::{load, transpose, transpose_halves};
use crate::idct::{CoefficientPlace, EVEN, FIRST_SHIFT, ODD, SECOND_SHIFT};

/// Four sums of the transform's even part.
#[inline]
#[target_feature(enable = "neon")]
fn even_sums(ends: [int16x4_t; 2], outer: int32x4_t, inner: int32x4_t, round: i32) -> [int32x4_t; 4] {
    let round = vdupq_n_s32(round);
    let sum = vaddq_s32(vshlq_n_s32::<13>(vaddl_s16(ends[0], ends[1])), round);
    let difference = vaddq_s32(vshlq_n_s32::<13>(vsubl_s16(ends[0], ends[1])), round);
    [vaddq_s32(sum, outer), vaddq_s32(difference, inner), vsubq_s32(difference, inner), vsubq_s32(sum, outer)]
}

/// The even and the odd part of one pass of the transform over eight vectors.
#[inline]
#[target_feature(enable = "neon")]
fn parts(v: [int16x4_t; 8], round: i32) -> [[int32x4_t; 4]; 2] {
    let two = |factors: [i16; 2]| vmlal_n_s16(vmull_n_s16(v[2], factors[0]), v[6], factors[1]);
    let even = even_sums([v[0], v[4]], two(EVEN[0]), two(EVEN[1]), round);
    let odd = ODD.map(|by| {
        let sum = vmlal_n_s16(vmull_n_s16(v[1], by[0]), v[3], by[1]);
        vmlal_n_s16(vmlal_n_s16(sum, v[5], by[2]), v[7], by[3])
    });
    [even, odd]
}

/// As [`parts`], of vectors of which only the four lowest are not zeros.
#[inline]
#[target_feature(enable = "neon")]
fn low_parts(v: [int16x4_t; 4], round: i32) -> [[int32x4_t; 4]; 2] {
    let zero = vdup_n_s16(0);
    let even = even_sums([v[0], zero], vmull_n_s16(v[2], EVEN[0][0]), vmull_n_s16(v[2], EVEN[1][0]), round);
    let odd = ODD.map(|by| vmlal_n_s16(vmull_n_s16(v[1], by[0]), v[3], by[1]));
    [even, odd]
}

/// As [`parts`], of a transform of four values: its results.
#[inline]
#[target_feature(enable = "neon")]
fn half_sums(v: [int16x4_t; 4], round: i32) -> [int32x4_t; 4] {
    let two = |factors: [i16; 2]| vmlal_n_s16(vmull_n_s16(v[1], factors[0]), v[3], factors[1]);
    even_sums([v[0], v[2]], two(EVEN[0]), two(EVEN[1]), round)
}

/// What is added before the shift of the first pass, and before that of the second.
const ROUND: [i32; 2] = [1 << (FIRST_SHIFT - 1), 1 << (SECOND_SHIFT - 1)];

/// Eight results of the first pass in 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn first_results([even, odd]: [[int32x4_t; 4]; 2]) -> [int16x4_t; 8] {
    let result = |value| vqshrn_n_s32::<{ FIRST_SHIFT as i32 }>(value);
    std::array::from_fn(|at| {
        if at < 4 { result(vaddq_s32(even[at], odd[at])) } else { result(vsubq_s32(even[7 - at], odd[7 - at])) }
    })
}

/// Eight results of the second pass, without the lowest 16 of the bits that are shifted out.
#[inline]
#[target_feature(enable = "neon")]
fn second_results([even, odd]: [[int32x4_t; 4]; 2]) -> [int16x4_t; 8] {
    std::array::from_fn(|at| if at < 4 { vaddhn_s32(even[at], odd[at]) } else { vsubhn_s32(even[7 - at], odd[7 - at]) })
}

/// Shifts out what the second pass has left, and makes samples of the results.
#[inline]
#[target_feature(enable = "neon")]
fn samples(results: int16x8_t) -> uint8x8_t {
    veor_u8(vreinterpret_u8_s8(vqshrn_n_s16::<{ SECOND_SHIFT as i32 - 16 }>(results)), vdup_n_u8(128))
}

#[inline]
#[target_feature(enable = "neon")]
fn lows<const N: usize>(vectors: [int16x8_t; N]) -> [int16x4_t; N] {
    vectors.map(|vector| vget_low_s16(vector))
}

#[inline]
#[target_feature(enable = "neon")]
fn highs<const N: usize>(vectors: [int16x8_t; N]) -> [int16x4_t; N] {
    vectors.map(|vector| vget_high_s16(vector))
}

#[inline]
#[target_feature(enable = "neon")]
fn joined<const N: usize>(lows: [int16x4_t; N], highs: [int16x4_t; N]) -> [int16x8_t; N] {
    std::array::from_fn(|at| vcombine_s16(lows[at], highs[at]))
}

/// Transforms a block at full size.
#[target_feature(enable = "neon")]
pub(super) fn full(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
    let (block, quant) = (block.as_chunks().0, quant.as_chunks().0);
    let written: [int16x8_t; 8] = std::array::from_fn(|row| load(&block[row]));
    let input: [int16x8_t; 8] = std::array::from_fn(|row| vmulq_s16(written[row], load(&quant[row])));
    // Whether there are values in the lower four rows, and in the right half of the upper four.
    let or = |a, b| vorrq_s16(a, b);
    let below = or(or(written[4], written[5]), or(written[6], written[7]));
    let above = or(or(written[0], written[1]), or(written[2], written[3]));
    let high = vorr_s16(vorr_s16(vget_low_s16(below), vget_high_s16(below)), vget_high_s16(above));
    let results = if vget_lane_u64::<0>(vreinterpret_u64_s16(high)) == 0 {
        low_columns(lows([input[0], input[1], input[2], input[3]]))
    } else {
        let [low, high] = [lows(input), highs(input)].map(|half| first_results(parts(half, ROUND[0])));
        let between = transpose(joined(low, high));
        let [low, high] = [lows(between), highs(between)].map(|half| second_results(parts(half, ROUND[1])));
        joined(low, high)
    };
    assert!(out.len() >= place.start + 7 * place.stride + 8, "a block at {place:?} of {}", out.len());
    let start = out[place.start..].as_mut_ptr();
    for (column, results) in results.into_iter().enumerate() {
        // SAFETY: the assertion above has `out` reach eight bytes beyond the start of the block's last column.
        unsafe { vst1_u8(start.add(column * place.stride), samples(results)) };
    }
}

/// Computes the columns of a block that has only the four by four lowest frequencies.
#[inline]
#[target_feature(enable = "neon")]
fn low_columns(rows: [int16x4_t; 4]) -> [int16x8_t; 8] {
    let between = first_results(low_parts(rows, ROUND[0]));
    let halves: [int16x8_t; 4] = std::array::from_fn(|row| vcombine_s16(between[row], between[row + 4]));
    let between = transpose_halves(halves);
    let [low, high] = [lows(between), highs(between)].map(|half| second_results(low_parts(half, ROUND[1])));
    joined(low, high)
}

/// Transforms two blocks of four by four coefficients to half size.
#[target_feature(enable = "neon")]
pub(super) fn half_two(blocks: &[i16; 32], quant: &[i16; 16], out: &mut [u8], places: &[CoefficientPlace; 2]) {
    let (blocks, quant) = (blocks.as_chunks().0, quant.as_chunks().0);
    let two_rows = |block: usize, part: usize| {
        vreinterpretq_s64_s16(vmulq_s16(load(&blocks[block * 2 + part]), load(&quant[part])))
    };
    // Each has a row of the first block, then the row of the second.
    let rows: [int16x8_t; 4] = std::array::from_fn(|row| {
        let (first, second) = (two_rows(0, row / 2), two_rows(1, row / 2));
        vreinterpretq_s16_s64(if row % 2 == 0 { vtrn1q_s64(first, second) } else { vtrn2q_s64(first, second) })
    });
    let [first, second] = [lows(rows), highs(rows)]
        .map(|block| half_sums(block, ROUND[0]).map(|sum| vqshrn_n_s32::<{ FIRST_SHIFT as i32 }>(sum)));
    let columns = transpose_halves(joined(first, second));
    let [first, second] =
        [lows(columns), highs(columns)].map(|block| half_sums(block, ROUND[1]).map(|sum| vshrn_n_s32::<16>(sum)));
    for (column, results) in joined(first, second).into_iter().enumerate() {
        let both = vget_lane_u64::<0>(vreinterpret_u64_u8(samples(results))).to_le_bytes();
        for (place, samples) in places.iter().zip(both.as_chunks::<4>().0) {
            let start = place.start + column * place.stride;
            out[start..start + 4].copy_from_slice(samples);
        }
    }
}

#[target_feature(enable = "neon")]
pub(super) fn quarter_four(blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
    // SAFETY: 32 bytes are read from a reference to as many.
    let int16x4x4_t(a, b, c, d) = unsafe { vld4_s16(blocks.as_ptr()) };
    // One coefficient of each block.
    let [a, b] = [vmul_n_s16(a, quant[0]), vmul_n_s16(b, quant[1])];
    let [c, d] = [vmul_n_s16(c, quant[2]), vmul_n_s16(d, quant[3])];
    let low = [vaddl_s16(a, c), vsubl_s16(a, c)];
    let high = [vaddl_s16(b, d), vsubl_s16(b, d)];
    let flat = |sum| vadd_s16(vrshrn_n_s32::<3>(sum), vdup_n_s16(128));
    let columns = [
        [flat(vaddq_s32(low[0], high[0])), flat(vaddq_s32(low[1], high[1]))],
        [flat(vsubq_s32(low[0], high[0])), flat(vsubq_s32(low[1], high[1]))],
    ];
    for (column, [above, below]) in columns.into_iter().enumerate() {
        // The two samples of each block.
        let both = vqmovun_s16(vcombine_s16(vzip1_s16(above, below), vzip2_s16(above, below)));
        let both = vget_lane_u64::<0>(vreinterpret_u64_u8(both)).to_le_bytes();
        for (place, samples) in places.iter().zip(both.as_chunks::<2>().0) {
            let start = place.start + column * place.stride;
            out[start..start + 2].copy_from_slice(samples);
        }
    }
}
