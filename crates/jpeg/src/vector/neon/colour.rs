//! From luma and chroma to the bytes of pixels.

use std::arch::aarch64::*;

use super::load_strip;
use crate::kernel::{COLOUR, FRACTION_BITS, STRIP, Strip};

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn colour(values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
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
pub(super) fn grey(luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
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
