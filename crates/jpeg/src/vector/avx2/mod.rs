//! The inner loops with AVX2 instructions.
#![allow(unsafe_code)]

mod colour;
mod resample;
mod transform;

use std::arch::x86_64::*;

use self::{
    colour::{colour, grey},
    resample::{across, down},
    transform::{full_pair, half_four, quarter_four},
};
use crate::{
    idct::CoefficientPlace,
    kernel::{RowWork, STRIP, SimdKernel, Strip},
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

    vector_methods!();
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

/// Returns a vector in which two factors for neighbouring values alternate.
#[inline]
#[target_feature(enable = "avx2")]
fn factors(first: i16, second: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16)
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
