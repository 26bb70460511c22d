//! The inverse transform of blocks at full, half and quarter size.

use std::arch::x86_64::*;

use super::{factors, load, transpose};
use crate::idct::{CoefficientPlace, EVEN, FIRST_SHIFT, ODD, SECOND_SHIFT};

/// Loads the same row of two blocks, one into each half.
#[inline]
#[target_feature(enable = "avx2")]
fn rows(low: &[i16; 64], high: &[i16; 64], row: usize) -> __m256i {
    let [low, high] = [low, high].map(|of| -> &[i16; 8] { of[row * 8..row * 8 + 8].try_into().expect("8 values") });
    // SAFETY: 16 bytes are read from each of two references to as many.
    unsafe { _mm256_loadu2_m128i(high.as_ptr().cast(), low.as_ptr().cast()) }
}

/// One pass of the transform over eight vectors of 16-bit values. The results have 16 bits, too.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(input: [__m256i; 8]) -> [__m256i; 8] {
    let pairs =
        |a: usize, b: usize| [_mm256_unpacklo_epi16(input[a], input[b]), _mm256_unpackhi_epi16(input[a], input[b])];
    let (ends, middle) = (pairs(0, 4), pairs(2, 6));
    let (low, high) = (pairs(1, 3), pairs(5, 7));
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let mut halves = [[_mm256_setzero_si256(); 8]; 2];
    for half in 0..2 {
        let sum = _mm256_add_epi32(_mm256_madd_epi16(ends[half], factors(1 << 13, 1 << 13)), round);
        let difference = _mm256_add_epi32(_mm256_madd_epi16(ends[half], factors(1 << 13, -(1 << 13))), round);
        let outer = _mm256_madd_epi16(middle[half], factors(EVEN[0][0], EVEN[0][1]));
        let inner = _mm256_madd_epi16(middle[half], factors(EVEN[1][0], EVEN[1][1]));
        let even = [
            _mm256_add_epi32(sum, outer),
            _mm256_add_epi32(difference, inner),
            _mm256_sub_epi32(difference, inner),
            _mm256_sub_epi32(sum, outer),
        ];
        for at in 0..4 {
            let by = ODD[at];
            let odd = _mm256_add_epi32(
                _mm256_madd_epi16(low[half], factors(by[0], by[1])),
                _mm256_madd_epi16(high[half], factors(by[2], by[3])),
            );
            halves[half][at] = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even[at], odd));
            halves[half][7 - at] = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even[at], odd));
        }
    }
    std::array::from_fn(|at| _mm256_packs_epi32(halves[0][at], halves[1][at]))
}

/// One pass of the transform over the four lowest of eight vectors, of the lower or the upper half of their values. All
/// other vectors are zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn low_half_pass<const SHIFT: i32>(even: __m256i, odd: __m256i) -> [__m256i; 8] {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let outer = [EVEN[0][0], EVEN[1][0], -EVEN[1][0], -EVEN[0][0]];
    let mut out = [_mm256_setzero_si256(); 8];
    for at in 0..4 {
        let even = _mm256_add_epi32(_mm256_madd_epi16(even, factors(1 << 13, outer[at])), round);
        let odd = _mm256_madd_epi16(odd, factors(ODD[at][0], ODD[at][1]));
        out[at] = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(even, odd));
        out[7 - at] = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(even, odd));
    }
    out
}

/// Computes the columns of two blocks that have only the four by four lowest frequencies.
#[inline]
#[target_feature(enable = "avx2")]
fn low_columns(rows: [__m256i; 4]) -> [__m256i; 8] {
    // Only the lower half of each row has values.
    let (even, odd) = (_mm256_unpacklo_epi16(rows[0], rows[2]), _mm256_unpacklo_epi16(rows[1], rows[3]));
    let zero = _mm256_setzero_si256();
    let between = low_half_pass::<{ FIRST_SHIFT as i32 }>(even, odd).map(|row| _mm256_packs_epi32(row, zero));
    let between = transpose(between);
    let low = low_half_pass::<{ SECOND_SHIFT as i32 }>(
        _mm256_unpacklo_epi16(between[0], between[2]),
        _mm256_unpacklo_epi16(between[1], between[3]),
    );
    let high = low_half_pass::<{ SECOND_SHIFT as i32 }>(
        _mm256_unpackhi_epi16(between[0], between[2]),
        _mm256_unpackhi_epi16(between[1], between[3]),
    );
    std::array::from_fn(|at| _mm256_packs_epi32(low[at], high[at]))
}

#[target_feature(enable = "avx2")]
pub(super) fn full_pair(
    blocks: [&[i16; 64]; 2],
    quants: [&[i16; 64]; 2],
    out: &mut [u8],
    places: [CoefficientPlace; 2],
) {
    let written: [__m256i; 8] = std::array::from_fn(|row| rows(blocks[0], blocks[1], row));
    let input: [__m256i; 8] =
        std::array::from_fn(|row| _mm256_mullo_epi16(written[row], rows(quants[0], quants[1], row)));
    // Whether there are values in the lower four rows, and in the right half of the upper four.
    let or = |a, b| _mm256_or_si256(a, b);
    let below = or(or(written[4], written[5]), or(written[6], written[7]));
    let above = or(or(written[0], written[1]), or(written[2], written[3]));
    let high = or(below, _mm256_srli_si256::<8>(above));
    let columns = if _mm256_testz_si256(high, high) == 1 {
        low_columns([input[0], input[1], input[2], input[3]])
    } else {
        pass::<{ SECOND_SHIFT as i32 }>(transpose(pass::<{ FIRST_SHIFT as i32 }>(input)))
    };
    for place in places {
        assert!(out.len() >= place.start + 7 * place.stride + 8, "a block at {place:?} of {}", out.len());
    }
    let middle = _mm256_set1_epi8(-128);
    let start: [*mut u8; 2] = places.map(|place| out[place.start..].as_mut_ptr());
    for pair in 0..4 {
        // Each half has eight samples of a column, then eight of the next.
        let packed = _mm256_xor_si256(_mm256_packs_epi16(columns[2 * pair], columns[2 * pair + 1]), middle);
        let halves = [_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed)];
        for block in 0..2 {
            let stride = places[block].stride;
            // SAFETY: the assertion above has `out` reach eight bytes beyond the start of the block's last column.
            unsafe {
                _mm_storel_epi64(start[block].add(2 * pair * stride).cast(), halves[block]);
                let second = start[block].add((2 * pair + 1) * stride);
                _mm_storel_epi64(second.cast(), _mm_unpackhi_epi64(halves[block], halves[block]));
            }
        }
    }
}

/// One pass of the transform over four vectors of 16-bit values.
#[inline]
#[target_feature(enable = "avx2")]
fn half_pass<const SHIFT: i32>(input: [__m256i; 4]) -> [__m256i; 4] {
    let pairs =
        |a: usize, b: usize| [_mm256_unpacklo_epi16(input[a], input[b]), _mm256_unpackhi_epi16(input[a], input[b])];
    let (even, odd) = (pairs(0, 2), pairs(1, 3));
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let mut halves = [[_mm256_setzero_si256(); 4]; 2];
    for half in 0..2 {
        let sum = _mm256_add_epi32(_mm256_madd_epi16(even[half], factors(1 << 13, 1 << 13)), round);
        let difference = _mm256_add_epi32(_mm256_madd_epi16(even[half], factors(1 << 13, -(1 << 13))), round);
        let outer = _mm256_madd_epi16(odd[half], factors(EVEN[0][0], EVEN[0][1]));
        let inner = _mm256_madd_epi16(odd[half], factors(EVEN[1][0], EVEN[1][1]));
        let whole = [
            _mm256_add_epi32(sum, outer),
            _mm256_add_epi32(difference, inner),
            _mm256_sub_epi32(difference, inner),
            _mm256_sub_epi32(sum, outer),
        ];
        halves[half] = whole.map(|value| _mm256_srai_epi32::<SHIFT>(value));
    }
    std::array::from_fn(|at| _mm256_packs_epi32(halves[0][at], halves[1][at]))
}

#[target_feature(enable = "avx2")]
pub(super) fn half_four(blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]) {
    let quant = load(quant);
    let of = |at: usize| _mm256_mullo_epi16(load(&blocks.as_chunks().0[at]), quant);
    let four = [of(0), of(1), of(2), of(3)];
    // Two rows of two blocks: the lower half has rows 0 or 1, the upper one rows 2 or 3.
    let first = [_mm256_unpacklo_epi64(four[0], four[1]), _mm256_unpackhi_epi64(four[0], four[1])];
    let second = [_mm256_unpacklo_epi64(four[2], four[3]), _mm256_unpackhi_epi64(four[2], four[3])];
    let rows = [
        _mm256_permute2x128_si256::<0x20>(first[0], second[0]),
        _mm256_permute2x128_si256::<0x20>(first[1], second[1]),
        _mm256_permute2x128_si256::<0x31>(first[0], second[0]),
        _mm256_permute2x128_si256::<0x31>(first[1], second[1]),
    ];
    let between = half_pass::<{ FIRST_SHIFT as i32 }>(rows);
    let low = [_mm256_unpacklo_epi16(between[0], between[1]), _mm256_unpacklo_epi16(between[2], between[3])];
    let high = [_mm256_unpackhi_epi16(between[0], between[1]), _mm256_unpackhi_epi16(between[2], between[3])];
    let [left, right] = [
        [_mm256_unpacklo_epi32(low[0], low[1]), _mm256_unpacklo_epi32(high[0], high[1])],
        [_mm256_unpackhi_epi32(low[0], low[1]), _mm256_unpackhi_epi32(high[0], high[1])],
    ];
    let columns = half_pass::<{ SECOND_SHIFT as i32 }>([
        _mm256_unpacklo_epi64(left[0], left[1]),
        _mm256_unpackhi_epi64(left[0], left[1]),
        _mm256_unpacklo_epi64(right[0], right[1]),
        _mm256_unpackhi_epi64(right[0], right[1]),
    ]);
    let middle = _mm256_set1_epi8(-128);
    for pair in 0..2 {
        // Four samples each: of a column the first two blocks (or the last two, in the upper half), then of the next column.
        let packed = _mm256_xor_si256(_mm256_packs_epi16(columns[2 * pair], columns[2 * pair + 1]), middle);
        for (half, samples) in
            [_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed)].into_iter().enumerate()
        {
            let words = [
                _mm_extract_epi32::<0>(samples),
                _mm_extract_epi32::<1>(samples),
                _mm_extract_epi32::<2>(samples),
                _mm_extract_epi32::<3>(samples),
            ];
            for (at, word) in words.into_iter().enumerate() {
                let place = places[half * 2 + at % 2];
                let start = place.start + (pair * 2 + at / 2) * place.stride;
                out[start..start + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn quarter_four(blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
    let factor = quant.iter().rev().fold(0, |all, value| all << 16 | i64::from(*value as u16));
    let input = _mm256_mullo_epi16(load(blocks), _mm256_set1_epi64x(factor));
    // Of each row the sum and the difference; two blocks in each half.
    let sums = _mm256_madd_epi16(input, factors(1, 1));
    let differences = _mm256_madd_epi16(input, factors(1, -1));
    let rows = [_mm256_hadd_epi32(sums, differences), _mm256_hsub_epi32(sums, differences)]
        .map(|row| _mm256_srai_epi32::<3>(_mm256_add_epi32(row, _mm256_set1_epi32(4))));
    // In each half the upper samples of two blocks' first columns and second columns, then the lower ones.
    let samples = _mm256_add_epi16(_mm256_packs_epi32(rows[0], rows[1]), _mm256_set1_epi16(128));
    let samples = _mm256_unpacklo_epi16(samples, _mm256_srli_si256::<8>(samples));
    let bytes = _mm256_packus_epi16(samples, samples);
    let halves = [_mm256_extract_epi64::<0>(bytes), _mm256_extract_epi64::<2>(bytes)];
    for (places, half) in places.as_chunks::<2>().0.iter().zip(halves) {
        let half = half.to_le_bytes();
        for (place, column) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let start = places[place].start + column * places[place].stride;
            let at = column * 4 + place * 2;
            out[start..start + 2].copy_from_slice(&half[at..at + 2]);
        }
    }
}
