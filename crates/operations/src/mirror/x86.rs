//! Mirrors with AVX2 and with AVX-512.

use std::{arch::x86_64::*, mem::MaybeUninit};

use super::one_by_one;

/// Returns the places of the bytes of a vector whose pixels are mirrored. The first byte, which belongs to no whole pixel,
/// becomes the last one; the next vector overwrites it.
const fn places<const BYTES: usize>() -> [u8; BYTES] {
    let mut places = [0; BYTES];
    let mut at = 0;
    while at + 1 < BYTES {
        places[at] = (BYTES - 3 - at / 3 * 3 + at % 3) as u8;
        at += 1;
    }
    places
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx2")]
pub(super) fn mirror_vbmi(mut from: &[u8], mut to: &mut [MaybeUninit<u8>]) {
    const PLACES: [u8; 64] = places();
    // SAFETY: 64 bytes are read from an array of as many.
    let places = unsafe { _mm512_loadu_si512(PLACES.as_ptr().cast()) };
    while let (Some(last), Some(first)) = (from.last_chunk::<64>(), to.first_chunk_mut::<64>()) {
        // SAFETY: 64 bytes are read from an array of as many, and written to one.
        unsafe {
            let values = _mm512_loadu_si512(last.as_ptr().cast());
            _mm512_storeu_si512(first.as_mut_ptr().cast(), _mm512_permutexvar_epi8(places, values));
        }
        from = &from[..from.len() - 63];
        to = &mut to[63..];
    }
    let left = from.len();
    let is_left = (1_u64 << left) - 1;
    let places = _mm512_sub_epi8(places, _mm512_set1_epi8((64 - left) as i8));
    // SAFETY: only the bytes that are left are read and written, of which both slices have as many.
    unsafe {
        let values = _mm512_maskz_loadu_epi8(is_left, from.as_ptr().cast());
        _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), is_left, _mm512_permutexvar_epi8(places, values));
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn mirror_avx2(mut from: &[u8], mut to: &mut [MaybeUninit<u8>]) {
    const PLACES: [u8; 16] = places();
    // SAFETY: 16 bytes are read from an array of as many.
    let places = unsafe { _mm_loadu_si128(PLACES.as_ptr().cast()) };
    while let (Some(last), Some(first)) = (from.last_chunk::<16>(), to.first_chunk_mut::<16>()) {
        // SAFETY: 16 bytes are read from an array of as many, and written to one.
        unsafe {
            let values = _mm_loadu_si128(last.as_ptr().cast());
            _mm_storeu_si128(first.as_mut_ptr().cast(), _mm_shuffle_epi8(values, places));
        }
        from = &from[..from.len() - 15];
        to = &mut to[15..];
    }
    one_by_one(from, to);
}
