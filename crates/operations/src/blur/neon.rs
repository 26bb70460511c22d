//! The passes with NEON instructions, which every 64-bit Arm processor has.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use super::{BITS, across_from, down_from, rounding};

/// Values that are loaded at a time.
const GROUP: usize = 16;
/// Values that are added up at a time.
const RUN: usize = 4 * GROUP;

/// Sixteen values.
type VectorPair = [uint16x8_t; 2];

/// Returns whether the weights beside the middle are below half. An instruction that has the upper half of a product takes
/// signed numbers.
pub(super) fn has_place_for(weights: &[u16]) -> bool {
    weights[1..].iter().all(|weight| weight.cast_signed() >= 0)
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes<const N: usize>(bytes: &[u8], at: usize) -> [uint8x16_t; N] {
    let (groups, _) = bytes[at..at + N * GROUP].as_chunks::<GROUP>();
    // SAFETY: 16 bytes are read from an array of as many.
    std::array::from_fn(|n| unsafe { vld1q_u8(groups[n].as_ptr()) })
}

#[inline]
#[target_feature(enable = "neon")]
fn load<const N: usize>(values: &[u16], at: usize) -> [VectorPair; N] {
    let (groups, _) = values[at..at + N * GROUP].as_chunks::<GROUP>();
    std::array::from_fn(|n| {
        let (halves, _) = groups[n].as_chunks::<8>();
        // SAFETY: 8 values are read from an array of as many.
        [0, 1].map(|half| unsafe { vld1q_u16(halves[half].as_ptr()) })
    })
}

/// Multiplies values by a weight; the bits beyond those of a value are cut off.
#[inline]
#[target_feature(enable = "neon")]
fn times(values: uint16x8_t, weight: uint16x4_t) -> uint16x8_t {
    let weights = vcombine_u16(weight, weight);
    let low = vreinterpretq_u16_u32(vmull_u16(vget_low_u16(values), weight));
    let high = vreinterpretq_u16_u32(vmull_high_u16(values, weights));
    vuzp2q_u16(low, high)
}

#[target_feature(enable = "neon")]
pub(super) fn down(rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
    let mut done = 0;
    while done + RUN <= sums.len() {
        down_run::<4>(done, rows, weights, sums);
        done += RUN;
    }
    while done + GROUP <= sums.len() {
        down_run::<1>(done, rows, weights, sums);
        done += GROUP;
    }
    down_from(done, rows, weights, sums);
}

#[inline]
#[target_feature(enable = "neon")]
fn down_run<const N: usize>(at: usize, rows: &[&[u8]], weights: &[u16], sums: &mut [u16]) {
    let reach = weights.len() - 1;
    let first = vdup_n_u16(weights[0]);
    let mut totals = load_bytes::<N>(rows[reach], at).map(|bytes| {
        [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)]
            .map(|values| times(vshlq_n_u16::<{ BITS.cast_signed() }>(values), first))
    });
    let (above, below) = (rows[..reach].iter().rev(), &rows[reach + 1..]);
    for ((above, below), weight) in above.zip(below).zip(&weights[1..]) {
        let (above, below) = (load_bytes::<N>(above, at), load_bytes::<N>(below, at));
        let weight = vdupq_n_s16(weight.cast_signed());
        for n in 0..N {
            let pairs = [vaddl_u8(vget_low_u8(above[n]), vget_low_u8(below[n])), vaddl_high_u8(above[n], below[n])];
            for half in 0..2 {
                // The instruction doubles the product, so the values are shifted by one bit less; all have place for it.
                let values = vreinterpretq_s16_u16(vshlq_n_u16::<{ BITS.cast_signed() - 1 }>(pairs[half]));
                let product = vreinterpretq_u16_s16(vqdmulhq_s16(values, weight));
                totals[n][half] = vaddq_u16(totals[n][half], product);
            }
        }
    }
    let (halves, _) = sums[at..at + N * GROUP].as_chunks_mut::<8>();
    for (half, total) in halves.iter_mut().zip(totals.as_flattened()) {
        // SAFETY: 8 values are written to an array of as many.
        unsafe { vst1q_u16(half.as_mut_ptr(), *total) };
    }
}

#[target_feature(enable = "neon")]
pub(super) fn across(sums: &[u16], weights: &[u16], out: &mut [u8]) {
    let mut done = 0;
    while done + RUN <= out.len() {
        across_run::<4>(done, sums, weights, out);
        done += RUN;
    }
    while done + GROUP <= out.len() {
        across_run::<1>(done, sums, weights, out);
        done += GROUP;
    }
    across_from(done, sums, weights, out);
}

#[inline]
#[target_feature(enable = "neon")]
fn across_run<const N: usize>(at: usize, sums: &[u16], weights: &[u16], out: &mut [u8]) {
    let middle = at + (weights.len() - 1) * 3;
    let (first, round) = (vdup_n_u16(weights[0]), vdupq_n_u16(rounding(weights)));
    let mut totals = load::<N>(sums, middle).map(|group| group.map(|values| vaddq_u16(round, times(values, first))));
    for (distance, weight) in weights.iter().enumerate().skip(1) {
        let (left, right) = (load::<N>(sums, middle - distance * 3), load::<N>(sums, middle + distance * 3));
        let weight = vdup_n_u16(*weight);
        for n in 0..N {
            for half in 0..2 {
                let product = times(vaddq_u16(left[n][half], right[n][half]), weight);
                totals[n][half] = vaddq_u16(totals[n][half], product);
            }
        }
    }
    let (groups, _) = out[at..at + N * GROUP].as_chunks_mut::<GROUP>();
    for (group, [low, high]) in groups.iter_mut().zip(totals) {
        let low = vqshrn_n_u16::<{ BITS.cast_signed() }>(low);
        let bytes = vqshrn_high_n_u16::<{ BITS.cast_signed() }>(low, high);
        // SAFETY: 16 bytes are written to an array of as many.
        unsafe { vst1q_u8(group.as_mut_ptr(), bytes) };
    }
}
