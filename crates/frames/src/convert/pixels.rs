//! The pixels of a row, many at a time: plain loops over blocks, which the compiler vectorises for each kind of processor. What is
//! called in them has to be `inline(always)`: a function of its own would not have the vector instructions of its caller.

use fearless_simd::Simd;

use super::{
    join::{BLOCK, BYTES, join},
    weights::{LEVEL_BITS, PlaneWeights},
};

/// Numbers of a plane, of `N` bytes each.
pub(super) type PlaneRow<'r, const N: usize> = &'r [[u8; N]];

/// Pairs of pixels of a block.
const PAIRS: usize = BLOCK / 2;

/// The pixels of a row, in blocks.
pub(super) trait PixelRow {
    /// Writes the pixels of a block, from a pixel on. Of a block beyond the end of the row, those have any value.
    fn write_block<S: Simd>(&self, simd: S, from: usize, block: &mut [u8; BYTES]);

    /// Writes the first pixels of the row.
    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, out: &mut [u8]) {
        let (blocks, rest) = out.as_chunks_mut::<BYTES>();
        let whole = blocks.len() * BLOCK;
        for (at, block) in blocks.iter_mut().enumerate() {
            self.write_block(simd, at * BLOCK, block);
        }
        if !rest.is_empty() {
            let mut block = [0; BYTES];
            self.write_block(simd, whole, &mut block);
            rest.copy_from_slice(&block[..rest.len()]);
        }
    }
}

/// Pixels whose red, green and blue are the same.
pub(super) struct GreyRow<'r, const N: usize> {
    pub(super) weights: &'r PlaneWeights,
    pub(super) grey: PlaneRow<'r, N>,
}

/// Pixels of red, green and blue.
pub(super) struct RgbRow<'r, const N: usize> {
    pub(super) weights: &'r PlaneWeights,
    pub(super) channels: [PlaneRow<'r, N>; 3],
}

/// Pixels of luma and differences for each pixel.
pub(super) struct YuvRow<'r, const N: usize> {
    pub(super) weights: &'r PlaneWeights,
    pub(super) luma: PlaneRow<'r, N>,
    pub(super) differences: [PlaneRow<'r, N>; 2],
}

/// Pixels of luma, and of differences for each pair of pixels.
pub(super) struct PairRow<'r, const N: usize> {
    pub(super) weights: &'r PlaneWeights,
    pub(super) luma: PlaneRow<'r, N>,
    pub(super) differences: [PlaneRow<'r, N>; 2],
}

impl<const N: usize> PixelRow for GreyRow<'_, N> {
    #[inline(always)]
    fn write_block<S: Simd>(&self, simd: S, from: usize, block: &mut [u8; BYTES]) {
        let levels = levels(self.weights, &numbers(self.grey, from));
        join(simd, &[rounded(&levels, &[0; BLOCK]); 3], block);
    }
}

impl<const N: usize> PixelRow for RgbRow<'_, N> {
    #[inline(always)]
    fn write_block<S: Simd>(&self, simd: S, from: usize, block: &mut [u8; BYTES]) {
        let mut channels = [[0; BLOCK]; 3];
        for (channel, row) in channels.iter_mut().zip(self.channels) {
            *channel = rounded(&levels(self.weights, &numbers(row, from)), &[0; BLOCK]);
        }
        join(simd, &channels, block);
    }
}

impl<const N: usize> PixelRow for YuvRow<'_, N> {
    #[inline(always)]
    fn write_block<S: Simd>(&self, simd: S, from: usize, block: &mut [u8; BYTES]) {
        let levels = levels(self.weights, &numbers(self.luma, from));
        let [blue, red] = self.differences;
        let tints: [_; 3] = tints::<N, BLOCK>(self.weights, &numbers(blue, from), &numbers(red, from));
        let mut channels = [[0; BLOCK]; 3];
        for (channel, tint) in channels.iter_mut().zip(&tints) {
            *channel = rounded(&levels, tint);
        }
        join(simd, &channels, block);
    }
}

impl<const N: usize> PixelRow for PairRow<'_, N> {
    #[inline(always)]
    fn write_block<S: Simd>(&self, simd: S, from: usize, block: &mut [u8; BYTES]) {
        let levels = levels(self.weights, &numbers(self.luma, from));
        let [blue, red] = self.differences;
        let tints = tints::<N, PAIRS>(self.weights, &numbers(blue, from / 2), &numbers(red, from / 2));
        let mut channels = [[0; BLOCK]; 3];
        for (channel, tint) in channels.iter_mut().zip(&tints) {
            *channel = rounded(&levels, &repeated(tint));
        }
        join(simd, &channels, block);
    }
}

/// Returns the numbers of a row from one on; zeros beyond its end.
#[inline(always)]
fn numbers<const N: usize, const COUNT: usize>(row: PlaneRow<'_, N>, from: usize) -> [[u8; N]; COUNT] {
    let row = &row[from.min(row.len())..];
    if let Some(numbers) = row.first_chunk() {
        return *numbers;
    }
    let mut numbers = [[0; N]; COUNT];
    numbers[..row.len()].copy_from_slice(row);
    numbers
}

/// Returns a number moved up, so that it has 16 bits.
#[inline(always)]
fn whole<const N: usize>(number: [u8; N], scale: u16) -> u16 {
    let number = if N == 1 { u16::from(number[0]) } else { u16::from_le_bytes([number[0], number[1]]) };
    number.wrapping_mul(scale)
}

/// Returns the levels of luma, with the half that rounds.
#[inline(always)]
fn levels<const N: usize>(weights: &PlaneWeights, luma: &[[u8; N]; BLOCK]) -> [i16; BLOCK] {
    let mut levels = [0; BLOCK];
    for (level, number) in levels.iter_mut().zip(luma) {
        let product = u32::from(whole(*number, weights.scale)).wrapping_mul(weights.luma.into()) >> 16;
        *level = (product as i16).wrapping_add(weights.offset);
    }
    levels
}

/// Returns the levels that differences add to red, green and blue.
#[inline(always)]
fn tints<const N: usize, const COUNT: usize>(
    weights: &PlaneWeights,
    blue: &[[u8; N]; COUNT],
    red: &[[u8; N]; COUNT],
) -> [[i16; COUNT]; 3] {
    let part = |difference: i16, weight: i16| (i32::from(difference).wrapping_mul(weight.into()) >> 16) as i16;
    let mut tints = [[0; COUNT]; 3];
    for at in 0..COUNT {
        // Moved down by half the range, which is the highest bit.
        let [blue, red] = [blue[at], red[at]].map(|number| (whole(number, weights.scale) ^ 0x8000) as i16);
        tints[0][at] = part(red, weights.red);
        tints[1][at] = part(blue, weights.green[0]).wrapping_add(part(red, weights.green[1]));
        tints[2][at] = part(blue, weights.blue);
    }
    tints
}

/// Returns each value twice.
#[inline(always)]
fn repeated(pairs: &[i16; PAIRS]) -> [i16; BLOCK] {
    let mut repeated = [0; BLOCK];
    for (two, value) in repeated.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
        *two = [*value; 2];
    }
    repeated
}

/// Returns the sums as whole levels from 0 to 255.
#[inline(always)]
fn rounded(levels: &[i16; BLOCK], tints: &[i16; BLOCK]) -> [u8; BLOCK] {
    let mut rounded = [0; BLOCK];
    for (value, (level, tint)) in rounded.iter_mut().zip(levels.iter().zip(tints)) {
        *value = (level.wrapping_add(*tint) >> LEVEL_BITS).clamp(0, 255) as u8;
    }
    rounded
}
