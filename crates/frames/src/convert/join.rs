//! Joins channels to pixels: shuffles of bytes, by tables.

use fearless_simd::{Simd, prelude::*, u8x16, u8x64};

/// Pixels of a block.
pub(super) const BLOCK: usize = 64;
/// Bytes of a block.
pub(super) const BYTES: usize = 3 * BLOCK;

/// No place in a vector.
const NONE: u8 = u8::MAX;

/// For three vectors of `N` bytes, the places of their bytes in a vector of each channel.
const fn places<const N: usize>() -> [[[u8; N]; 3]; 3] {
    let mut places = [[[NONE; N]; 3]; 3];
    let mut at = 0;
    while at < 3 * N {
        places[at / N][at % 3][at % N] = (at / 3) as u8;
        at += 1;
    }
    places
}

/// For three vectors of 64 bytes, the places of their bytes in the vectors of red and green, and then in that of these and of blue.
const PAIRED: [[[u8; 64]; 2]; 3] = {
    let places = places::<64>();
    let mut paired = [[[0; 64]; 2]; 3];
    let mut at = 0;
    while at < 3 * 64 {
        let (vector, byte) = (at / 64, at % 64);
        let [red, green, blue] = places[vector];
        let [first, second] = match at % 3 {
            0 => [red[byte], byte as u8],
            1 => [64 + green[byte], byte as u8],
            _ => [0, 64 + blue[byte]],
        };
        paired[vector][0][byte] = first;
        paired[vector][1][byte] = second;
        at += 1;
    }
    paired
};

/// Writes the channels of pixels.
#[inline(always)]
pub(super) fn join<S: Simd>(simd: S, channels: &[[u8; BLOCK]; 3], block: &mut [u8; BYTES]) {
    if S::u8s::LEN == 64 {
        let [red, green, blue] = channels.each_ref().map(|channel| u8x64::from_slice(simd, channel));
        for (out, [first, second]) in block.as_chunks_mut::<64>().0.iter_mut().zip(&PAIRED) {
            let two = red.concat_swizzle_dyn(green, u8x64::from_slice(simd, first));
            two.concat_swizzle_dyn(blue, u8x64::from_slice(simd, second)).store_slice(out);
        }
        return;
    }
    const PLACES: [[[u8; 16]; 3]; 3] = places();
    for (at, out) in block.as_chunks_mut::<48>().0.iter_mut().enumerate() {
        let channels = channels.each_ref().map(|channel| u8x16::from_slice(simd, &channel.as_chunks::<16>().0[at]));
        for (out, places) in out.as_chunks_mut::<16>().0.iter_mut().zip(&PLACES) {
            let part =
                |channel: usize| channels[channel].swizzle_dyn_precise(u8x16::from_slice(simd, &places[channel]));
            (part(0) | part(1) | part(2)).store_slice(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;

    #[test]
    fn pixels_have_their_channels() {
        let channels: [[u8; BLOCK]; 3] = [0, 70, 140].map(|first| std::array::from_fn(|at| first + at as u8));
        let expected: Vec<u8> = (0..BLOCK).flat_map(|at| channels.map(|channel| channel[at])).collect();
        let mut block = [0; BYTES];
        dispatch!(Level::new(), simd => join(simd, &channels, &mut block));
        assert_eq!(block[..], expected);
        block.fill(0);
        dispatch!(Level::baseline(), simd => join(simd, &channels, &mut block));
        assert_eq!(block[..], expected);
    }
}
