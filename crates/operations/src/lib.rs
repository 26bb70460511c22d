//! Operations on a decoded RGB picture: pure functions of its pixels and their parameters. The caller draws random
//! parameters.
//!
//! Operations on single values are composed into one table for each channel, and applied in one pass. The operations
//! that mix two samples are separate: they work on values in a batch.

mod aug_mix;
mod blur;
mod channels;
mod grey;
mod histogram;
mod hue;
mod indices;
mod lookup;
mod mirror;
mod mix;
mod pad;
mod pixel_pass;
mod place;
mod planes;
mod points;
mod sharpness;
mod views;
mod warp;
mod wide;

use std::{borrow::Cow, mem};

pub use channels::{channel_memory_bytes, run_on_channels};
pub use grey::without_colors;
pub use indices::{IndexPicture, index_memory_bytes};
pub use mix::{MixShare, MixedValues, mix};
use pixel_pass::{PixelPass, write_across};
use points::ValueTables;
use spdl_canvas::PixelOp;
use spdl_pixels::Resampler;

/// An RGB picture of one byte per channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RgbPicture<'p> {
    /// Three bytes for each pixel, row by row. Borrowed pixels are only read; the first operation that changes them
    /// makes a copy.
    pub pixels: Cow<'p, [u8]>,
    /// Width and height.
    pub size: [u32; 2],
}

/// Buffers that are reused for the next picture.
#[derive(Debug, Default)]
pub struct OperationScratch {
    /// The result of an operation that does not work in place.
    result: Vec<u8>,
    resampler: Resampler,
    mix: Option<Box<MixScratch>>,
}

/// Buffers of mixes: those of the chains, and sums of values.
#[derive(Debug, Default)]
struct MixScratch {
    chain: OperationScratch,
    sums: Vec<f32>,
}

impl RgbPicture<'_> {
    /// Keeps at most about `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.pixels.len() > bytes {
            self.pixels = Cow::default();
        }
    }

    /// Changes owned pixels in place, and writes changed copies of borrowed ones to `result`.
    fn change(&mut self, result: &mut Vec<u8>, change: impl FnOnce(&mut PixelPass<'_>)) {
        match &mut self.pixels {
            Cow::Owned(own) => change(&mut PixelPass::in_place(own)),
            Cow::Borrowed(theirs) => {
                write_across(theirs, result, change);
                self.take(result, self.size);
            }
        }
    }

    /// Makes the result of an operation the picture, and keeps the memory of the old picture for the next result.
    fn take(&mut self, result: &mut Vec<u8>, size: [u32; 2]) {
        let next = mem::take(result);
        mem::replace(self, RgbPicture { pixels: Cow::Owned(next), size }).recycle(result);
    }

    /// Keeps the memory of the picture for the next result, if the picture owns it.
    fn recycle(self, result: &mut Vec<u8>) {
        if let Cow::Owned(pixels) = self.pixels {
            *result = pixels;
        }
    }
}

impl OperationScratch {
    /// Keeps at most about `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.result.capacity() > bytes {
            self.result = Vec::new();
        }
        self.resampler.shrink_to(bytes);
        self.mix = self.mix.take().filter(|mix| mix.sums.capacity() * size_of::<f32>() <= bytes);
    }
}

/// Returns the operation as a table of values, if the table is the same for every picture.
fn table(op: &PixelOp) -> Option<[u8; 256]> {
    Some(match *op {
        PixelOp::Brightness(factor) => points::brightness(factor),
        PixelOp::Invert => points::invert(),
        PixelOp::Posterize(bits) => points::posterize(bits),
        PixelOp::Solarize(threshold) => points::solarize(threshold),
        _ => return None,
    })
}

/// Returns an upper bound of the bytes that [`run`] uses for a picture of this size, including the picture and the result.
#[must_use]
pub fn memory_bytes(size: [u32; 2], ops: &[PixelOp]) -> u64 {
    let bytes = |[width, height]: [u32; 2]| u64::from(width) * u64::from(height) * 3;
    let mut before = size;
    let mut most = bytes(size);
    for op in ops {
        let after = op.output_size(before);
        let more = match op {
            PixelOp::Resample(plan) => bytes(after) + Resampler::apply_bytes(plan, before),
            PixelOp::Sharpness(_) | PixelOp::Pad { .. } | PixelOp::Views { .. } | PixelOp::Warp(_) => bytes(after),
            PixelOp::Mix { chains, .. } => {
                let chain = chains.iter().map(|chain| memory_bytes(before, &chain.ops)).max();
                bytes(after) + bytes(before) * size_of::<f32>() as u64 + chain.unwrap_or(0)
            }
            PixelOp::Blur(weights) => bytes(after) + (u64::from(before[0]) + 2 * weights.len() as u64) * 12,
            _ => 0,
        };
        most = most.max(bytes(before) + more);
        before = after;
    }
    most
}

/// Applies operations to a picture, in order.
pub fn run(ops: &[PixelOp], picture: &mut RgbPicture<'_>, scratch: &mut OperationScratch) {
    let mut tables = ValueTables::default();
    for op in ops {
        if let Some(table) = table(op) {
            tables.then(&table);
            continue;
        }
        match op {
            // The table of this operation depends on the picture, and is composed with the others.
            PixelOp::Autocontrast => {
                let [least, greatest] = histogram::extremes(&picture.pixels);
                let [least, greatest] = tables.extremes([least, greatest], &picture.pixels);
                tables.then_each(&std::array::from_fn(|c| points::autocontrast(least[c], greatest[c])));
                continue;
            }
            PixelOp::Equalize => {
                let histograms = tables.mapped(histogram::histograms(&picture.pixels));
                tables.then_each(&histograms.map(|histogram| points::equalize(&histogram)));
                continue;
            }
            _ => {}
        }
        tables.write(picture, &mut scratch.result);
        let size = op.output_size(picture.size);
        let result = &mut scratch.result;
        match op {
            PixelOp::Contrast(factor) => {
                let mean = grey::mean(&picture.pixels);
                tables.then(&points::blend(mean, *factor));
            }
            PixelOp::Saturation(factor) => picture.change(result, |pass| grey::saturate(pass, *factor, 1.0 - factor)),
            PixelOp::Hue(turn) => picture.change(result, |pass| hue::turn(pass, *turn)),
            PixelOp::Grayscale => picture.change(result, grey::grayscale),
            PixelOp::Sharpness(factor) => {
                sharpness::sharpen(&picture.pixels, size, *factor, result);
                picture.take(result, size);
            }
            PixelOp::Blur(weights) => {
                blur::blur(&picture.pixels, size, weights, result);
                picture.take(result, size);
            }
            PixelOp::Erase { place, size, color } => erase(picture, *place, *size, *color),
            PixelOp::Warp(warp) => {
                warp::warp(picture, warp, result);
                picture.take(result, size);
            }
            PixelOp::Pad { sides, with } => {
                pad::pad(picture, *sides, *with, result);
                picture.take(result, size);
            }
            PixelOp::Views { views, size: of_each } => {
                views::cut(picture, views, *of_each, result);
                picture.take(result, size);
            }
            PixelOp::Mix { own, chains } => {
                let MixScratch { chain, sums } = &mut **scratch.mix.get_or_insert_default();
                aug_mix::mix(picture, *own, chains, chain, sums, result);
                picture.take(result, size);
            }
            PixelOp::Resample(plan) => {
                if !place::place(picture, plan, result) {
                    scratch.resampler.apply(plan, &picture.pixels, picture.size, result);
                }
                picture.take(result, size);
            }
            _ => unreachable!("{op:?} is a table"),
        }
    }
    tables.write(picture, &mut scratch.result);
}

/// Paints a rectangle that is inside of the picture.
fn erase(picture: &mut RgbPicture<'_>, [left, top]: [u32; 2], [width, height]: [u32; 2], color: [u8; 3]) {
    let row_pixels = picture.size[0] as usize;
    let (pixels, _) = picture.pixels.to_mut().as_chunks_mut::<3>();
    for row in pixels.chunks_exact_mut(row_pixels).skip(top as usize).take(height as usize) {
        row[left as usize..][..width as usize].fill(color);
    }
}
