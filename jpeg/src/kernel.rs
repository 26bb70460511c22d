//! The inner loops that vector instructions speed up: one set in plain Rust, and others that give the same bytes.

use crate::{
    bits::Block,
    idct::{self, Place},
    segments::next_marker,
};

/// Pixels that go through the last steps together.
pub(crate) const STRIP: usize = 16;
/// Fraction bits of resampled values.
pub(crate) const FRACTION_BITS: u32 = 6;
/// What shifts the sum of weighted samples to a resampled value.
pub(crate) const ACROSS_SHIFT: u32 = 14 - FRACTION_BITS;
/// What shifts the sum of weighted resampled values to one.
pub(crate) const DOWN_SHIFT: u32 = 14;

/// 0.402, 0.285864, 0.344136 and 0.228 in 2^-15: what is left of the factors of Cr and Cb (ITU-R BT.601, as in JFIF)
/// beside whole ones.
pub(crate) const COLOUR: [i16; 4] = [13_173, 9367, 11_277, 7471];

/// A strip of resampled values, one of each pixel.
pub(crate) type Values = [i16; STRIP];

/// The inner loops.
pub(crate) trait Kernel: Copy {
    /// Does work that is compiled for this kind of processor, in a function of its own.
    fn run<W: Work>(self, work: W) -> W::Outcome;

    /// The place of the next marker from `at` on.
    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize>;

    /// Transforms two blocks at full size; the second one may be the first.
    fn full_pair(self, blocks: [&Block; 2], quants: [&[i16; 64]; 2], out: &mut [u8], places: [Place; 2]);

    /// Resamples 16 neighbours down the plane, from `from` on, for 16 pixels across: `out[down][across]`.
    fn across(
        self,
        plane: &[u8],
        from: usize,
        stride: usize,
        firsts: &[u32; STRIP],
        pairs: &[[i16; 2]],
        out: &mut [Values; STRIP],
    );

    /// Resamples down for one pixel: the weighted sum of rows of `tile`.
    fn down(self, tile: &[Values], pairs: &[[i16; 2]]) -> Values;

    /// From luma and chroma to RGB, one pixel after the other or one channel after the other.
    fn colour(self, values: [&Values; 3], interleaved: bool) -> [u8; 3 * STRIP];

    /// The same from luma alone.
    fn grey(self, luma: &Values, interleaved: bool) -> [u8; 3 * STRIP];
}

/// Work that is compiled once for every kind of processor: what it calls has to be inlined all the way.
pub(crate) trait Work {
    type Outcome;

    fn run<K: Kernel>(self, kernel: K) -> Self::Outcome;
}

/// Plain Rust, for every machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Kernel for Portable {
    fn run<W: Work>(self, work: W) -> W::Outcome {
        work.run(self)
    }

    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize> {
        next_marker(raw, at)
    }

    fn full_pair(self, blocks: [&Block; 2], quants: [&[i16; 64]; 2], out: &mut [u8], places: [Place; 2]) {
        idct::full(blocks[0].coefficients(), quants[0], out, places[0]);
        if places[1].start != places[0].start {
            idct::full(blocks[1].coefficients(), quants[1], out, places[1]);
        }
    }

    fn across(
        self,
        plane: &[u8],
        from: usize,
        stride: usize,
        firsts: &[u32; STRIP],
        pairs: &[[i16; 2]],
        out: &mut [Values; STRIP],
    ) {
        let pairs_per_pixel = pairs.len() / STRIP;
        for (pixel, &first) in firsts.iter().enumerate() {
            let mut sums = [1 << (ACROSS_SHIFT - 1); STRIP];
            let mut at = first as usize * stride + from;
            for weight in pairs[pixel * pairs_per_pixel..][..pairs_per_pixel].as_flattened() {
                for (sum, sample) in sums.iter_mut().zip(&plane[at..at + STRIP]) {
                    *sum += i32::from(*sample) * i32::from(*weight);
                }
                at += stride;
            }
            for (row, sum) in out.iter_mut().zip(sums) {
                row[pixel] = (sum >> ACROSS_SHIFT) as i16;
            }
        }
    }

    fn down(self, tile: &[Values], pairs: &[[i16; 2]]) -> Values {
        let mut sums = [1 << (DOWN_SHIFT - 1); STRIP];
        for (row, weight) in tile.iter().zip(pairs.as_flattened()) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * i32::from(*weight);
            }
        }
        sums.map(|sum| (sum >> DOWN_SHIFT) as i16)
    }

    fn colour(self, [luma, blue, red]: [&Values; 3], interleaved: bool) -> [u8; 3 * STRIP] {
        let [red_r, red_g, blue_g, blue_b] = COLOUR;
        let part = |value: i16, of: i16| ((i32::from(value) * i32::from(of) + (1 << 14)) >> 15) as i16;
        let mut out = [0; 3 * STRIP];
        for pixel in 0..STRIP {
            let y = luma[pixel];
            let [b, r] = [blue[pixel], red[pixel]].map(|chroma| chroma - (128 << FRACTION_BITS));
            let rgb = [y + r + part(r, red_r), y - r + part(r, red_g) - part(b, blue_g), y + b + b - part(b, blue_b)];
            place(&mut out, pixel, rgb, interleaved);
        }
        out
    }

    fn grey(self, luma: &Values, interleaved: bool) -> [u8; 3 * STRIP] {
        let mut out = [0; 3 * STRIP];
        for (pixel, y) in luma.iter().enumerate() {
            place(&mut out, pixel, [*y; 3], interleaved);
        }
        out
    }
}

fn place(out: &mut [u8; 3 * STRIP], pixel: usize, rgb: [i16; 3], interleaved: bool) {
    for (channel, value) in rgb.into_iter().enumerate() {
        let byte = ((value + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS).clamp(0, 255) as u8;
        out[if interleaved { pixel * 3 + channel } else { channel * STRIP + pixel }] = byte;
    }
}
