//! The inner loops that vector instructions speed up: one set in plain Rust, and others that give the same bytes.

use crate::{
    idct::{self, CoefficientPlace},
    window::next_marker,
};

/// The number of pixels that the last steps process together.
pub(crate) const STRIP: usize = 16;
/// The number of fraction bits of resampled values.
pub(crate) const FRACTION_BITS: u32 = 6;
/// The shift from a sum of weighted samples to a resampled value.
pub(crate) const ACROSS_SHIFT: u32 = 14 - FRACTION_BITS;
/// The shift from a sum of weighted resampled values to a resampled value.
pub(crate) const DOWN_SHIFT: u32 = 14;

/// 0.402, 0.285864, 0.344136 and 0.228 in units of 2^-15: what remains of the factors of Cr and Cb (ITU-R BT.601, as in
/// JFIF) after whole numbers are split off.
pub(crate) const COLOUR: [i16; 4] = [13_173, 9367, 11_277, 7471];

/// A strip of resampled values, one for each pixel.
pub(crate) type Strip = [i16; STRIP];

/// The inner loops for one kind of processor.
pub(crate) trait SimdKernel: Copy {
    /// Runs work that is compiled for this kind of processor, in a function of its own.
    fn run<W: RowWork>(self, work: W) -> W::Outcome;

    /// Returns the position of the next marker from `at` on.
    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize>;

    /// Transforms two blocks at full size. The second may be the same as the first.
    fn full_pair(self, blocks: [&[i16; 64]; 2], quants: [&[i16; 64]; 2], out: &mut [u8], places: [CoefficientPlace; 2]);

    /// Transforms four blocks of four by four coefficients, which follow each other, to half size.
    fn half_four(self, blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]);

    /// Transforms four blocks of two by two coefficients, which follow each other, to quarter size.
    fn quarter_four(self, blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]);

    /// Resamples horizontally: 16 rows, which begin at offset `from`, to 16 pixels each: `out[row][pixel]`.
    fn across(
        self,
        plane: &[u8],
        from: usize,
        stride: usize,
        firsts: &[u32; STRIP],
        pairs: &[[i16; 2]],
        out: &mut [Strip; STRIP],
    );

    /// Resamples vertically: each strip of the result is the weighted sum of rows of `tile`, which begin at the strip's first one.
    fn down(self, tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]);

    /// Converts luma and chroma to RGB, pixel by pixel if `interleaved`, channel by channel otherwise.
    fn colour(self, values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP];

    /// Converts luma alone to RGB, in the same order.
    fn grey(self, luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP];
}

/// Work that is compiled once for each kind of processor. All functions that it calls must be inlined.
pub(crate) trait RowWork {
    type Outcome;

    fn run<K: SimdKernel>(self, kernel: K) -> Self::Outcome;
}

/// The implementation in plain Rust, for all machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl SimdKernel for Portable {
    fn run<W: RowWork>(self, work: W) -> W::Outcome {
        work.run(self)
    }

    fn next_marker(self, raw: &[u8], at: usize) -> Option<usize> {
        next_marker(raw, at)
    }

    fn full_pair(
        self,
        blocks: [&[i16; 64]; 2],
        quants: [&[i16; 64]; 2],
        out: &mut [u8],
        places: [CoefficientPlace; 2],
    ) {
        idct::full(blocks[0], quants[0], out, places[0]);
        if places[1].start != places[0].start {
            idct::full(blocks[1], quants[1], out, places[1]);
        }
    }

    fn half_four(self, blocks: &[i16; 64], quant: &[i16; 16], out: &mut [u8], places: [CoefficientPlace; 4]) {
        for (block, place) in blocks.as_chunks().0.iter().zip(places) {
            idct::half_of_four(block, quant, out, place);
        }
    }

    fn quarter_four(self, blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
        for (block, place) in blocks.as_chunks().0.iter().zip(places) {
            idct::quarter_of_two(block, quant, out, place);
        }
    }

    fn across(
        self,
        plane: &[u8],
        from: usize,
        stride: usize,
        firsts: &[u32; STRIP],
        pairs: &[[i16; 2]],
        out: &mut [Strip; STRIP],
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

    fn down(self, tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
        let pairs = pairs.chunks_exact((pairs.len() / out.len().max(1)).max(1));
        for ((out, first), pairs) in out.iter_mut().zip(firsts).zip(pairs) {
            let mut sums = [1 << (DOWN_SHIFT - 1); STRIP];
            for (row, weight) in tile[*first as usize..].iter().zip(pairs.as_flattened()) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += i32::from(*value) * i32::from(*weight);
                }
            }
            *out = sums.map(|sum| (sum >> DOWN_SHIFT) as i16);
        }
    }

    fn colour(self, [luma, blue, red]: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
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

    fn grey(self, luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
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
