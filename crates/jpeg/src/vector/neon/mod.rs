//! The inner loops with NEON instructions, which every 64-bit Arm processor has.
#![allow(unsafe_code)]

mod colour;
mod resample;
mod transform;

use std::arch::aarch64::*;

use self::{
    colour::{colour, grey},
    resample::{across, down},
    transform::{full, half_two, quarter_four},
};
use crate::{
    idct::CoefficientPlace,
    kernel::{RowWork, STRIP, SimdKernel, Strip},
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

    vector_methods!();
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
