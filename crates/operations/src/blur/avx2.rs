//! The passes with AVX2 instructions.
#![allow(unsafe_code)]

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
