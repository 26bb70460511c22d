//! Rotates, shears and distorts: each pixel of the result comes from a place in the picture.

use spdl_canvas::{Sampling, Warp};

use super::{
    RgbPicture,
    wide::{level, wide, within},
};

/// Pixels whose places are computed at a time.
const RUN: usize = 64;

/// Warps the picture and writes the result to `out`.
pub(super) fn warp(picture: &RgbPicture<'_>, warp: &Warp, out: &mut Vec<u8>) {
    let [width, height] = warp.size.map(|side| side as usize);
    out.clear();
    out.resize(width * height * 3, 0);
    let source = WarpSource {
        rgb: &picture.pixels,
        width: picture.size[0] as i32,
        height: picture.size[1] as i32,
        fill: warp.fill,
    };
    for (y, row) in out.chunks_exact_mut(width * 3).enumerate() {
        for (run, pixels) in row.as_chunks_mut::<3>().0.chunks_mut(RUN).enumerate() {
            let first = [(run * RUN) as f32 + 0.5, y as f32 + 0.5];
            match warp.sampling {
                Sampling::Nearest => nearest(&source, &warp.factors, first, pixels),
                Sampling::Bilinear => bilinear(&source, &warp.factors, first, pixels),
            }
        }
    }
}

/// Warps a picture of numbers and writes the result to `out`: each pixel takes the number of the nearest pixel, or
/// `beyond`.
pub(super) fn warp_indices((values, size): (&[u16], [u32; 2]), warp: &Warp, out: &mut Vec<u16>, beyond: u16) {
    let [width, height] = warp.size.map(|side| side as usize);
    out.clear();
    out.resize(width * height, beyond);
    let mut pixels = [0; RUN];
    for (y, row) in out.chunks_exact_mut(width).enumerate() {
        for (run, numbers) in row.chunks_mut(RUN).enumerate() {
            let first = [(run * RUN) as f32 + 0.5, y as f32 + 0.5];
            nearest_pixels(size.map(|side| side as i32), &warp.factors, first, &mut pixels);
            for (number, pixel) in numbers.iter_mut().zip(pixels) {
                *number = values.get(pixel as usize).copied().unwrap_or(beyond);
            }
        }
    }
}

/// A picture, and the colour beyond its border.
struct WarpSource<'p> {
    rgb: &'p [u8],
    width: i32,
    height: i32,
    fill: Option<[u8; 3]>,
}

impl WarpSource<'_> {
    #[inline(always)]
    fn contains(&self, x: i32, y: i32) -> bool {
        (x as u32) < self.width as u32 && (y as u32) < self.height as u32
    }

    #[inline(always)]
    const fn place(&self, x: i32, y: i32) -> usize {
        (y * self.width + x) as usize * 3
    }

    /// Samples between pixels of which some are beyond the border, as torchvision does: blends `fill` with the sum over
    /// the pixels inside, by their total weight.
    #[inline(never)]
    fn at_border(&self, [x, y]: [i32; 2], [right, below]: [f32; 2]) -> [u8; 3] {
        let (mut sums, mut weight) = ([0.0; 3], 0.0);
        for (dx, across) in [(0, 1.0 - right), (1, right)] {
            for (dy, down) in [(0, 1.0 - below), (1, below)] {
                if self.contains(x + dx, y + dy) {
                    let place = self.place(x + dx, y + dy);
                    weight += across * down;
                    for (sum, value) in sums.iter_mut().zip(&self.rgb[place..place + 3]) {
                        *sum += f32::from(*value) * (across * down);
                    }
                }
            }
        }
        if let Some(fill) = self.fill {
            for (sum, fill) in sums.iter_mut().zip(fill.map(f32::from)) {
                *sum = (*sum - fill) * weight + fill;
            }
        }
        sums.map(|sum| sum.round_ties_even() as u8)
    }
}

/// Computes the places of a run of pixels: columns and rows, where whole numbers are the middles of pixels.
#[inline(always)]
fn find_places([a, b, c, d, e, f, g, h]: &[f32; 8], [x, y]: [f32; 2]) -> [[f32; RUN]; 2] {
    let (column, row, scale) = (b * y + c, e * y + f, h * y + 1.0);
    let mut places = [[0.0; RUN]; 2];
    let [columns, rows] = &mut places;
    if (*g, *h) == (0.0, 0.0) {
        // Dividing by 1 takes as long as everything else.
        for at in 0..RUN {
            let x = x + at as f32;
            columns[at] = (a * x + column) - 0.5;
            rows[at] = (d * x + row) - 0.5;
        }
    } else {
        for at in 0..RUN {
            let x = x + at as f32;
            columns[at] = (a * x + column) / (g * x + scale) - 0.5;
            rows[at] = (d * x + row) / (g * x + scale) - 0.5;
        }
    }
    places
}

/// Clamps a place so that it fits an integer. Places far beyond the border and NaN stay beyond it.
#[inline(always)]
fn bounded(place: f32) -> f32 {
    within(place, -2.0, 65_536.0)
}

/// Rounds a number from -2 to 65536 to the nearest whole one, half to even. Unlike `as i32`, it takes one addition.
#[inline(always)]
fn nearest_whole(value: f32) -> i32 {
    // Beside 1.5 * 2^23, the lowest bits of a float are those of the whole number that was added.
    const BIAS: f32 = 12_582_912.0;
    (value + BIAS).to_bits() as i32 - BIAS.to_bits() as i32
}

wide! {
    /// Finds the numbers of the pixels nearest to the places of a run; a place beyond the border gets `u32::MAX`.
    fn nearest_pixels(size: [i32; 2], factors: &[f32; 8], first: [f32; 2], pixels: &mut [u32; RUN]) {
        let ([width, height], [columns, rows]) = (size, find_places(factors, first));
        for at in 0..RUN {
            let (x, y) = (nearest_whole(bounded(columns[at])), nearest_whole(bounded(rows[at])));
            let is_inside = (x >= 0) & (y >= 0) & (x < width) & (y < height);
            pixels[at] = if is_inside { (y * width + x) as u32 } else { u32::MAX };
        }
    }
}

/// Copies the nearest pixels. This function has no vector instructions, because the compiler would use them to gather
/// the pixels, which takes longer.
fn nearest(source: &WarpSource<'_>, factors: &[f32; 8], first: [f32; 2], out: &mut [[u8; 3]]) {
    let mut pixels = [0; RUN];
    nearest_pixels([source.width, source.height], factors, first, &mut pixels);
    let fill = source.fill.unwrap_or_default();
    // Four bytes are copied at a time; the next pixel overwrites the fourth.
    let mut run = [0; RUN * 3 + 1];
    let count = out.len().min(RUN);
    for (at, pixel) in pixels[..count].iter().enumerate() {
        let offset = *pixel as usize * 3;
        let color = &mut run[at * 3..at * 3 + 4];
        if let Some(four) = source.rgb.get(offset..offset + 4) {
            color.copy_from_slice(four);
        } else {
            color[..3].copy_from_slice(source.rgb.get(offset..offset + 3).unwrap_or(&fill));
        }
    }
    out.as_flattened_mut().copy_from_slice(&run[..count * 3]);
}

wide! {
    fn bilinear(source: &WarpSource<'_>, factors: &[f32; 8], first: [f32; 2], out: &mut [[u8; 3]]) {
        let [columns, rows] = find_places(factors, first);
        let (lefts, tops) = (columns.map(|place| bounded(place).floor()), rows.map(|place| bounded(place).floor()));
        let (mut rights, mut belows) = ([0.0; RUN], [0.0; RUN]);
        let mut offsets = [0_u32; RUN];
        let mut are_inner = true;
        // The last of a place's four pixels is read with a fourth byte, which must exist.
        let last = (source.height - 2) * source.width + source.width - 2;
        for at in 0..RUN {
            let (x, y) = (nearest_whole(lefts[at]), nearest_whole(tops[at]));
            rights[at] = columns[at] - lefts[at];
            belows[at] = rows[at] - tops[at];
            // The product may overflow for a place outside a large picture, which is not inner.
            let place = y.wrapping_mul(source.width).wrapping_add(x);
            let is_inner = (x >= 0) & (y >= 0) & (x < source.width - 1) & (y < source.height - 1) & (place < last);
            are_inner &= is_inner | (at >= out.len());
            offsets[at] = if is_inner { place as u32 * 3 } else { u32::MAX };
        }
        let mut taps = [[0_u32; RUN]; 4];
        find_taps(source, &offsets[..out.len().min(RUN)], &mut taps);
        let mut colors = [[0_u8; RUN]; 3];
        for (channel, values) in colors.iter_mut().enumerate() {
            for at in 0..RUN {
                let value = |tap: usize| ((taps[tap][at] >> (8 * channel)) & 255) as i32 as f32;
                let upper = value(0) + (value(1) - value(0)) * rights[at];
                let lower = value(2) + (value(3) - value(2)) * rights[at];
                values[at] = level(upper + (lower - upper) * belows[at] + 0.5);
            }
        }
        let [reds, greens, blues] = &colors;
        for (((pixel, r), g), b) in out.iter_mut().zip(reds).zip(greens).zip(blues) {
            *pixel = [*r, *g, *b];
        }
        if are_inner {
            return;
        }
        for (at, pixel) in out.iter_mut().enumerate().filter(|(at, _)| offsets[*at] == u32::MAX) {
            let (x, y) = (lefts[at] as i32, tops[at] as i32);
            let is_outside = x < -1 || y < -1 || x >= source.width || y >= source.height;
            *pixel = if is_outside {
                source.fill.unwrap_or_default()
            } else {
                source.at_border([x, y], [rights[at], belows[at]])
            };
        }
    }
}

/// Reads the four pixels around each place, if all are there. It is a function of its own for the same reason as [`nearest`].
#[inline(never)]
fn find_taps(source: &WarpSource<'_>, offsets: &[u32], taps: &mut [[u32; RUN]; 4]) {
    let row_bytes = source.width as usize * 3;
    for (at, offset) in offsets.iter().enumerate() {
        let offset = *offset as usize;
        let seven = |offset: usize| source.rgb.get(offset..).and_then(<[u8]>::first_chunk::<7>);
        let Some((upper, lower)) = seven(offset).zip(seven(offset.saturating_add(row_bytes))) else { continue };
        [taps[0][at], taps[1][at]] = two_pixels(upper);
        [taps[2][at], taps[3][at]] = two_pixels(lower);
    }
}

/// Returns two pixels as two numbers, whose highest byte belongs to the next pixel.
#[inline(always)]
fn two_pixels(bytes: &[u8; 7]) -> [u32; 2] {
    let four = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
    [four(&bytes[..4]), four(&bytes[3..])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> RgbPicture<'static> {
        RgbPicture { pixels: (0..7 * 5 * 3).map(|at| (at * 83 % 256) as u8).collect::<Vec<u8>>().into(), size: [7, 5] }
    }

    fn warped(factors: [f32; 8], sampling: Sampling, fill: Option<[u8; 3]>) -> Vec<u8> {
        let mut out = Vec::new();
        warp(&picture(), &Warp { factors, sampling, fill, size: [7, 5] }, &mut out);
        out
    }

    #[test]
    fn a_warp_that_changes_no_place_changes_no_pixel() {
        for sampling in [Sampling::Nearest, Sampling::Bilinear] {
            let same = warped([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], sampling, Some([1, 2, 3]));
            assert_eq!(same, *picture().pixels, "{sampling:?}");
        }
    }

    #[test]
    fn what_lies_beyond_the_border_is_filled() {
        for sampling in [Sampling::Nearest, Sampling::Bilinear] {
            for factors in [
                [1.0, 0.0, 9.0, 0.0, 1.0, 0.0, 0.0, 0.0],
                [1.0, 0.0, 0.0, 0.0, 1.0, -1e30, 0.0, 0.0],
                [f32::NAN; 8],
                [0.0, 0.0, f32::INFINITY, 0.0, 0.0, 0.0, 0.0, 0.0],
            ] {
                assert_eq!(
                    warped(factors, sampling, Some([1, 2, 3])),
                    [1, 2, 3].repeat(35),
                    "{sampling:?} {factors:?}"
                );
            }
        }
    }

    #[test]
    fn moving_by_whole_pixels_is_exact() {
        let moved = warped([1.0, 0.0, 2.0, 0.0, 1.0, 1.0, 0.0, 0.0], Sampling::Bilinear, None);
        for y in 0..4 {
            for x in 0..5 {
                let of = |pixels: &[u8], x: usize, y: usize| pixels[(y * 7 + x) * 3..][..3].to_vec();
                assert_eq!(of(&moved, x, y), of(&picture().pixels, x + 2, y + 1));
            }
        }
    }
}
