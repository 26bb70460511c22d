//! The inner loops with NEON instructions, which every 64-bit Arm processor has.
#![allow(unsafe_code)]

use std::arch::aarch64::*;

use crate::{
    idct::{CoefficientPlace, EVEN, FIRST_SHIFT, ODD, SECOND_SHIFT},
    kernel::{ACROSS_SHIFT, COLOUR, DOWN_SHIFT, FRACTION_BITS, RowWork, STRIP, SimdKernel, Strip},
    window::next_marker,
};

/// The kernel for 64-bit Arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// Returns the kernel, for every processor.
    pub(crate) fn detect() -> Option<Self> {
        Some(Self(()))
    }
}

impl SimdKernel for Neon {
    #[inline(always)]
    fn run<W: RowWork>(self, work: W) -> W::Outcome {
        work.run(self)
    }

    #[inline(always)]
    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize> {
        // SAFETY: every processor of this kind has these instructions.
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
        // SAFETY: every processor of this kind has these instructions.
        unsafe {
            full(blocks[0], quants[0], out, places[0]);
            if places[1].start != places[0].start {
                full(blocks[1], quants[1], out, places[1]);
            }
        }
    }

    #[inline(always)]
    fn half_four(self, blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]) {
        for (two, places) in blocks.as_chunks().0.iter().zip(places.as_chunks().0) {
            // SAFETY: every processor of this kind has these instructions.
            unsafe { half_two(two, quant, out, places) };
        }
    }

    #[inline(always)]
    fn quarter_four(self, blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
        // SAFETY: every processor of this kind has these instructions.
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
        // SAFETY: every processor of this kind has these instructions.
        unsafe { across(plane, from, stride, firsts, pairs, out) }
    }

    #[inline(always)]
    fn down(self, tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
        // SAFETY: every processor of this kind has these instructions.
        unsafe { down(tile, firsts, pairs, out) }
    }

    #[inline(always)]
    fn colour(self, values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
        // SAFETY: every processor of this kind has these instructions.
        unsafe { colour(values, interleaved) }
    }

    #[inline(always)]
    fn grey(self, luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
        // SAFETY: every processor of this kind has these instructions.
        unsafe { grey(luma, interleaved) }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(values: &[i16; 8]) -> int16x8_t {
    // SAFETY: 16 bytes are read from a reference to as many.
    unsafe { vld1q_s16(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 bytes are read from a reference to as many.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(values: &mut [i16; 8], vector: int16x8_t) {
    // SAFETY: 16 bytes are written to a reference to as many.
    unsafe { vst1q_s16(values.as_mut_ptr(), vector) }
}

/// Loads both halves of a strip.
#[inline]
#[target_feature(enable = "neon")]
fn load_strip(values: &Strip) -> [int16x8_t; 2] {
    let (halves, _) = values.as_chunks();
    [load(&halves[0]), load(&halves[1])]
}

/// Loads two weights, which alternate in the result.
#[inline]
#[target_feature(enable = "neon")]
fn weights([first, second]: [i16; 2]) -> int16x4_t {
    vreinterpret_s16_u32(vdup_n_u32(u32::from(first as u16) | u32::from(second as u16) << 16))
}

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

/// Transposes the four by four values in each half.
#[inline]
#[target_feature(enable = "neon")]
fn transpose_halves(v: [int16x8_t; 4]) -> [int16x8_t; 4] {
    let pairs = [[vtrn1q_s16(v[0], v[1]), vtrn1q_s16(v[2], v[3])], [vtrn2q_s16(v[0], v[1]), vtrn2q_s16(v[2], v[3])]]
        .map(|pair| pair.map(|vector| vreinterpretq_s32_s16(vector)));
    [
        vtrn1q_s32(pairs[0][0], pairs[0][1]),
        vtrn1q_s32(pairs[1][0], pairs[1][1]),
        vtrn2q_s32(pairs[0][0], pairs[0][1]),
        vtrn2q_s32(pairs[1][0], pairs[1][1]),
    ]
    .map(|vector| vreinterpretq_s16_s32(vector))
}

/// Transposes eight by eight values.
#[inline]
#[target_feature(enable = "neon")]
fn transpose(v: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let [above, below] = [0, 4].map(|first| {
        transpose_halves([v[first], v[first + 1], v[first + 2], v[first + 3]]).map(|half| vreinterpretq_s64_s16(half))
    });
    std::array::from_fn(|column| {
        let (above, below) = (above[column % 4], below[column % 4]);
        vreinterpretq_s16_s64(if column < 4 { vtrn1q_s64(above, below) } else { vtrn2q_s64(above, below) })
    })
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
fn full(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
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
fn half_two(blocks: &[i16; 32], quant: &[i16; 16], out: &mut [u8], places: &[CoefficientPlace; 2]) {
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
fn quarter_four(blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
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

/// Adds a vector, multiplied by one of two weights, to sums.
#[inline]
#[target_feature(enable = "neon")]
fn accumulate<const LANE: i32>(sums: [int32x4_t; 2], values: int16x8_t, weights: int16x4_t) -> [int32x4_t; 2] {
    [
        vmlal_lane_s16::<LANE>(sums[0], vget_low_s16(values), weights),
        vmlal_high_lane_s16::<LANE>(sums[1], values, weights),
    ]
}

#[target_feature(enable = "neon")]
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

#[target_feature(enable = "neon")]
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

#[inline]
#[target_feature(enable = "neon")]
fn colour(values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
    let middle = vdupq_n_s16(128 << FRACTION_BITS);
    let [luma, blue, red] = values.map(|values| load_strip(values));
    let [red_r, red_g, blue_g, blue_b] = COLOUR;
    // Rounds, as the portable kernel does.
    let part = |value, of: i16| vqrdmulhq_n_s16(value, of);
    let halves = [0, 1].map(|half| {
        let (y, b, r) = (luma[half], vsubq_s16(blue[half], middle), vsubq_s16(red[half], middle));
        [
            vaddq_s16(vaddq_s16(y, r), part(r, red_r)),
            vsubq_s16(vaddq_s16(vsubq_s16(y, r), part(r, red_g)), part(b, blue_g)),
            vsubq_s16(vaddq_s16(vaddq_s16(y, b), b), part(b, blue_b)),
        ]
    });
    place(std::array::from_fn(|channel| bytes([halves[0][channel], halves[1][channel]])), interleaved)
}

#[inline]
#[target_feature(enable = "neon")]
fn grey(luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
    place([bytes(load_strip(luma)); 3], interleaved)
}

/// Rounds values to bytes.
#[inline]
#[target_feature(enable = "neon")]
fn bytes(halves: [int16x8_t; 2]) -> uint8x16_t {
    let round = vdupq_n_s16(1 << (FRACTION_BITS - 1));
    let [low, high] = halves.map(|half| vqshrun_n_s16::<{ FRACTION_BITS as i32 }>(vaddq_s16(half, round)));
    vcombine_u8(low, high)
}

/// Arranges the bytes of the three channels.
#[inline]
#[target_feature(enable = "neon")]
fn place([r, g, b]: [uint8x16_t; 3], interleaved: bool) -> [u8; 3 * STRIP] {
    let mut out = [0; 3 * STRIP];
    let to: *mut u8 = out.as_mut_ptr();
    // SAFETY: the three vectors have as many bytes as `out`.
    unsafe {
        if interleaved {
            vst3q_u8(to, uint8x16x3_t(r, g, b));
        } else {
            vst1q_u8_x3(to, uint8x16x3_t(r, g, b));
        }
    }
    out
}

/// Finds a marker. Compares 16 bytes, and the byte after each of them, at a time.
#[inline]
#[target_feature(enable = "neon")]
fn find_marker(raw: &[u8], mut at: usize) -> Option<usize> {
    let full = vdupq_n_u8(255);
    while let Some(chunk) = raw.get(at..at + 17) {
        let (first, last) = (chunk.first_chunk().expect("17 bytes"), chunk.last_chunk().expect("17 bytes"));
        let (bytes, behind) = (load_bytes(first), load_bytes(last));
        let no_marker = vorrq_u8(vceqzq_u8(behind), vceqq_u8(behind, full));
        let found = vbicq_u8(vceqq_u8(bytes, full), no_marker);
        // Four bits for each byte.
        let found = vshrn_n_u16::<4>(vreinterpretq_u16_u8(found));
        let found = vget_lane_u64::<0>(vreinterpret_u64_u8(found));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 4);
        }
        at += 16;
    }
    next_marker(raw, at)
}
