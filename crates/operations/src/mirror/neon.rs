//! Mirrors with NEON.

use std::{arch::aarch64::*, mem::MaybeUninit};

/// Mirrors most of a row, and returns the rest of both slices.
#[target_feature(enable = "neon")]
pub(super) fn mirror<'r>(
    mut from: &'r [u8],
    mut to: &'r mut [MaybeUninit<u8>],
) -> (&'r [u8], &'r mut [MaybeUninit<u8>]) {
    // The first byte, which belongs to no whole pixel, becomes the last one; the next vector overwrites it.
    const PLACES: [u8; 16] = [13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0];
    // SAFETY: 16 bytes are read from an array of as many.
    let places = unsafe { vld1q_u8(PLACES.as_ptr()) };
    while let (Some(last), Some(first)) = (from.last_chunk::<16>(), to.first_chunk_mut::<16>()) {
        // SAFETY: 16 bytes are read from an array of as many, and written to one.
        unsafe {
            let values = vld1q_u8(last.as_ptr());
            vst1q_u8(first.as_mut_ptr().cast(), vqtbl1q_u8(values, places));
        }
        from = &from[..from.len() - 15];
        to = &mut to[15..];
    }
    (from, to)
}
