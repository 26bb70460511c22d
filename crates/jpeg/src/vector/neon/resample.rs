//! The weighted sums of samples, across and down.

use std::arch::aarch64::*;

use super::{load_strip, store, transpose};
use crate::kernel::{ACROSS_SHIFT, DOWN_SHIFT, STRIP, Strip};

/// Loads two weights, which alternate in the result.
#[inline]
#[target_feature(enable = "neon")]
fn weights([first, second]: [i16; 2]) -> int16x4_t {
    vreinterpret_s16_u32(vdup_n_u32(u32::from(first as u16) | u32::from(second as u16) << 16))
}

/// Adds a vector, multiplied by one of two weights, to sums.
#[inline]
#[target_feature(enable = "neon")]
fn accumulate<const LANE: i32>(sums: [int32x4_t; 2], values: int16x8_t, weights: int16x4_t) -> [int32x4_t; 2] {
    [
        vmlal_lane_s16::<LANE>(sums[0], vget_low_s16(values), weights),
        vmlal_high_lane_s16::<LANE>(sums[1], values, weights),
    ]
}

sums_by_pairs!("neon");

#[inline]
#[target_feature(enable = "neon")]
fn across_of<P: AsRef<[[i16; 2]]>>(
    plane: &[u8],
    from: usize,
    stride: usize,
    firsts: &[u32; STRIP],
    pairs: impl IntoIterator<Item = P>,
    out: &mut [Strip; STRIP],
) {
    // For each pixel, its values in the upper eight rows and in the lower eight.
    let mut columns = [[vdupq_n_s16(0); 2]; STRIP];
    for ((column, first), pairs) in columns.iter_mut().zip(firsts).zip(pairs) {
        let pairs = pairs.as_ref();
        let begin = *first as usize * stride + from;
        // Up to the last sample, so that all loads lie inside.
        let samples = &plane[begin..begin + (2 * pairs.len()).saturating_sub(1) * stride + STRIP];
        let mut sums = [[vdupq_n_s32(1 << (ACROSS_SHIFT - 1)); 2]; 2];
        for (at, pair) in pairs.iter().enumerate() {
            let weights = weights(*pair);
            // SAFETY: of the rows of `samples`, which are `stride` bytes apart, the last begins 16 bytes before its end; there are
            // two for each pair.
            let [first, second] =
                [2 * at, 2 * at + 1].map(|row| wide(unsafe { vld1q_u8(samples.as_ptr().add(row * stride)) }));
            for half in 0..2 {
                sums[half] = accumulate::<0>(sums[half], first[half], weights);
                sums[half] = accumulate::<1>(sums[half], second[half], weights);
            }
        }
        *column = sums.map(|sum| narrow::<{ ACROSS_SHIFT as i32 }>(sum));
    }
    for (first_pixel, columns) in (0..STRIP).step_by(8).zip(columns.as_chunks::<8>().0) {
        for half in 0..2 {
            let rows = transpose(columns.map(|column| column[half]));
            for (out, row) in out[half * 8..].iter_mut().zip(rows) {
                store(out[first_pixel..].first_chunk_mut().expect("8 of 16 pixels"), row);
            }
        }
    }
}

/// Returns 16 bytes as two vectors of 16-bit values.
#[inline]
#[target_feature(enable = "neon")]
fn wide(bytes: uint8x16_t) -> [int16x8_t; 2] {
    [vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))), vreinterpretq_s16_u16(vmovl_high_u8(bytes))]
}

#[inline]
#[target_feature(enable = "neon")]
fn narrow<const SHIFT: i32>(sums: [int32x4_t; 2]) -> int16x8_t {
    vshrn_high_n_s32::<SHIFT>(vshrn_n_s32::<SHIFT>(sums[0]), sums[1])
}

#[inline]
#[target_feature(enable = "neon")]
fn down_of<P: AsRef<[[i16; 2]]>>(
    tile: &[Strip],
    firsts: &[u32],
    pairs: impl IntoIterator<Item = P>,
    out: &mut [Strip],
) {
    for ((out, first), pairs) in out.iter_mut().zip(firsts).zip(pairs) {
        let pairs = pairs.as_ref();
        let rows = &tile[*first as usize..][..2 * pairs.len()];
        let mut sums = [[vdupq_n_s32(1 << (DOWN_SHIFT - 1)); 2]; 2];
        for ([first, second], pair) in rows.as_chunks().0.iter().zip(pairs) {
            let weights = weights(*pair);
            let (first, second) = (load_strip(first), load_strip(second));
            for half in 0..2 {
                sums[half] = accumulate::<0>(sums[half], first[half], weights);
                sums[half] = accumulate::<1>(sums[half], second[half], weights);
            }
        }
        for (out, sums) in out.as_chunks_mut().0.iter_mut().zip(sums) {
            store(out, narrow::<{ DOWN_SHIFT as i32 }>(sums));
        }
    }
}
