//! From luma and chroma to the bytes of pixels.

use std::arch::x86_64::*;

use super::load;
use crate::kernel::{COLOUR, FRACTION_BITS, STRIP, Strip};

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn colour([luma, blue, red]: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
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
pub(super) fn grey(luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
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
