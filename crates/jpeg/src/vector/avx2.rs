//! The inner loops with AVX2 instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::{
    idct::{CoefficientPlace, EVEN, FIRST_SHIFT, ODD, SECOND_SHIFT},
    kernel::{ACROSS_SHIFT, COLOUR, DOWN_SHIFT, FRACTION_BITS, RowWork, STRIP, SimdKernel, Strip},
    window::next_marker,
};

/// Proof that the processor has AVX2 and the bit instructions BMI1, BMI2 and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let has_bits =
            is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("popcnt");
        (is_x86_feature_detected!("avx2") && has_bits).then_some(Self(()))
    }
}

impl SimdKernel for Avx2 {
    #[inline(always)]
    fn run<W: RowWork>(self, work: W) -> W::Outcome {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        #[inline(never)]
        fn with<W: RowWork>(avx2: Avx2, work: W) -> W::Outcome {
            work.run(avx2)
        }
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { with(self, work) }
    }

    #[inline(always)]
    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize> {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { find_marker(raw, at) }
    }

    #[inline(always)]
    fn full_pair(
        self,
        blocks: [&[i16; 64]; 2],
        quants: [&[i16; 64]; 2],
        out: &mut [u8],
        places: [CoefficientPlace; 2],
    ) {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { full_pair(blocks, quants, out, places) }
    }

    #[inline(always)]
    fn half_four(self, blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]) {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { half_four(blocks, quant, out, places) }
    }

    #[inline(always)]
    fn quarter_four(self, blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { quarter_four(blocks, quant, out, places) }
    }

    #[inline(always)]
    fn across(
        self,
        plane: &[u8],
        from: usize,
        stride: usize,
        firsts: &[u32; STRIP],
        pairs: &[[i16; 2]],
        out: &mut [Strip; STRIP],
    ) {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { across(plane, from, stride, firsts, pairs, out) }
    }

    #[inline(always)]
    fn down(self, tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { down(tile, firsts, pairs, out) }
    }

    #[inline(always)]
    fn colour(self, values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { colour(values, interleaved) }
    }

    #[inline(always)]
    fn grey(self, luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
        // SAFETY: `self` is the proof that the processor has these instructions.
        unsafe { grey(luma, interleaved) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &Strip) -> __m256i {
    // SAFETY: 32 bytes are read from a reference to as many.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(values: &mut Strip, vector: __m256i) {
    // SAFETY: 32 bytes are written to a reference to as many.
    unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), vector) }
}

/// Loads the same row of two blocks, one into each half.
#[inline]
#[target_feature(enable = "avx2")]
fn rows(low: &[i16; 64], high: &[i16; 64], row: usize) -> __m256i {
    let [low, high] = [low, high].map(|of| -> &[i16; 8] { of[row * 8..row * 8 + 8].try_into().expect("8 values") });
    // SAFETY: 16 bytes are read from each of two references to as many.
    unsafe { _mm256_loadu2_m128i(high.as_ptr().cast(), low.as_ptr().cast()) }
}

/// Returns a vector in which two factors for neighbouring values alternate.
#[inline]
#[target_feature(enable = "avx2")]
fn factors(first: i16, second: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16)
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

/// Transposes the eight by eight values in each half.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
    let a: [__m256i; 8] = std::array::from_fn(|at| {
        let (low, high) = (v[at / 2 * 2], v[at / 2 * 2 + 1]);
        if at % 2 == 0 { _mm256_unpacklo_epi16(low, high) } else { _mm256_unpackhi_epi16(low, high) }
    });
    // a: 0 = rows 0,1 columns 0-3; 1 = rows 0,1 columns 4-7; 2, 3 = rows 2,3; ...
    let b = |half: usize, group: usize, high: bool| {
        let (first, second) = (a[group * 4 + half], a[group * 4 + 2 + half]);
        if high { _mm256_unpackhi_epi32(first, second) } else { _mm256_unpacklo_epi32(first, second) }
    };
    std::array::from_fn(|column| {
        let (half, high) = (column / 4, column / 2 % 2 == 1);
        let (top, bottom) = (b(half, 0, high), b(half, 1, high));
        if column % 2 == 0 { _mm256_unpacklo_epi64(top, bottom) } else { _mm256_unpackhi_epi64(top, bottom) }
    })
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
fn full_pair(blocks: [&[i16; 64]; 2], quants: [&[i16; 64]; 2], out: &mut [u8], places: [CoefficientPlace; 2]) {
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
fn half_four(blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]) {
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
fn quarter_four(blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
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

#[target_feature(enable = "avx2")]
fn across(
    plane: &[u8],
    from: usize,
    stride: usize,
    firsts: &[u32; STRIP],
    pairs: &[[i16; 2]],
    out: &mut [Strip; STRIP],
) {
    // The usual numbers are known where the loops over them are compiled.
    match pairs.len() / STRIP {
        1 => across_of(plane, from, stride, firsts, pairs.as_chunks::<1>().0, out),
        2 => across_of(plane, from, stride, firsts, pairs.as_chunks::<2>().0, out),
        3 => across_of(plane, from, stride, firsts, pairs.as_chunks::<3>().0, out),
        4 => across_of(plane, from, stride, firsts, pairs.as_chunks::<4>().0, out),
        count => across_of(plane, from, stride, firsts, pairs.chunks_exact(count.max(1)), out),
    }
}

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

#[target_feature(enable = "avx2")]
fn down(tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
    match pairs.len() / out.len().max(1) {
        1 => down_of(tile, firsts, pairs.as_chunks::<1>().0, out),
        2 => down_of(tile, firsts, pairs.as_chunks::<2>().0, out),
        3 => down_of(tile, firsts, pairs.as_chunks::<3>().0, out),
        4 => down_of(tile, firsts, pairs.as_chunks::<4>().0, out),
        count => down_of(tile, firsts, pairs.chunks_exact(count.max(1)), out),
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

#[inline]
#[target_feature(enable = "avx2")]
fn colour([luma, blue, red]: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
    let half = _mm256_set1_epi16(128 << FRACTION_BITS);
    let (y, b, r) = (load(luma), _mm256_sub_epi16(load(blue), half), _mm256_sub_epi16(load(red), half));
    let [red_r, red_g, blue_g, blue_b] = COLOUR;
    let part = |value: __m256i, of: i16| _mm256_mulhrs_epi16(value, _mm256_set1_epi16(of));
    let rgb = [
        _mm256_add_epi16(_mm256_add_epi16(y, r), part(r, red_r)),
        _mm256_sub_epi16(_mm256_add_epi16(_mm256_sub_epi16(y, r), part(r, red_g)), part(b, blue_g)),
        _mm256_sub_epi16(_mm256_add_epi16(_mm256_add_epi16(y, b), b), part(b, blue_b)),
    ];
    place(rgb, interleaved)
}

#[inline]
#[target_feature(enable = "avx2")]
fn grey(luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
    place([load(luma); 3], interleaved)
}

/// Rounds the values to bytes and arranges them.
#[inline]
#[target_feature(enable = "avx2")]
fn place(rgb: [__m256i; 3], interleaved: bool) -> [u8; 3 * STRIP] {
    let round = _mm256_set1_epi16(1 << (FRACTION_BITS - 1));
    let channels = rgb.map(|channel| {
        let whole = _mm256_srai_epi16::<{ FRACTION_BITS as i32 }>(_mm256_add_epi16(channel, round));
        _mm_packus_epi16(_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole))
    });
    let mut out = [0; 3 * STRIP];
    for (third, place) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let bytes = if interleaved {
            let [r, g, b] = std::array::from_fn(|channel| _mm_shuffle_epi8(channels[channel], shuffle(third, channel)));
            _mm_or_si128(_mm_or_si128(r, g), b)
        } else {
            channels[third]
        };
        // SAFETY: 16 bytes are written to a reference to as many.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), bytes) };
    }
    out
}

/// Returns the shuffle that moves a channel's 16 bytes to their places in one third of 48 interleaved ones.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffle(third: usize, channel: usize) -> __m128i {
    const MASKS: [[[i8; 16]; 3]; 3] = {
        let mut masks = [[[-1; 16]; 3]; 3];
        let mut byte = 0;
        while byte < 48 {
            masks[byte / 16][byte % 3][byte % 16] = (byte / 3) as i8;
            byte += 1;
        }
        masks
    };
    // SAFETY: 16 bytes are read from a reference to as many.
    unsafe { _mm_loadu_si128(MASKS[third][channel].as_ptr().cast()) }
}

/// Finds a marker. Compares 32 bytes, and the byte after each of them, at a time.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn find_marker(raw: &[u8], mut at: usize) -> Option<usize> {
    let (full, zero) = (_mm256_set1_epi8(-1), _mm256_setzero_si256());
    while let Some(chunk) = raw.get(at..at + 33) {
        // SAFETY: there are 33 bytes.
        let (bytes, behind) =
            unsafe { (_mm256_loadu_si256(chunk.as_ptr().cast()), _mm256_loadu_si256(chunk[1..].as_ptr().cast())) };
        let no_marker = _mm256_or_si256(_mm256_cmpeq_epi8(behind, zero), _mm256_cmpeq_epi8(behind, full));
        let found = _mm256_andnot_si256(no_marker, _mm256_cmpeq_epi8(bytes, full));
        let found = _mm256_movemask_epi8(found) as u32;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += 32;
    }
    next_marker(raw, at)
}
