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
pub use pad::PadWith;
use pixel_pass::{PixelPass, write_across};
use points::ValueTables;
use spdl_pixels::{ResamplePlan, Resampler};
pub use views::View;
pub use warp::{Sampling, Warp};

/// An RGB picture of one byte per channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RgbPicture<'p> {
    /// Three bytes for each pixel, row by row. Borrowed pixels are only read; the first operation that changes them
    /// makes a copy.
    pub pixels: Cow<'p, [u8]>,
    /// Width and height.
    pub size: [u32; 2],
}

/// An operation on a picture, with all of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum PixelOp {
    /// Multiplies the values.
    Brightness(f32),
    /// Blends with the mean of the grey picture; a factor of 0 gives that mean.
    Contrast(f32),
    /// Blends with the grey picture; a factor of 0 gives that picture.
    Saturation(f32),
    /// Turns the hue by a part of the circle, -0.5 to 0.5.
    Hue(f32),
    /// Makes the channels equal.
    Grayscale,
    /// Subtracts the values from 255.
    Invert,
    /// Keeps the highest bits of the values.
    Posterize(u32),
    /// Inverts the values that are at least this.
    Solarize(f32),
    /// Stretches each channel to 0..=255.
    Autocontrast,
    /// Equalizes the histogram of each channel.
    Equalize,
    /// Blends with a smoothed picture; a factor of 0 gives that picture.
    Sharpness(f32),
    /// Blurs with a symmetric kernel, whose weights are given from its middle on.
    Blur(Vec<f32>),
    /// Paints a rectangle.
    Erase {
        /// First column and row.
        place: [u32; 2],
        /// Width and height.
        size: [u32; 2],
        /// Colour of the rectangle.
        color: [u8; 3],
    },
    /// Pads the picture.
    Pad {
        /// Pixels on the left, top, right and bottom.
        sides: [u32; 4],
        /// What is added.
        with: PadWith,
    },
    /// Rotates, shears and distorts.
    Warp(Warp),
    /// Crops, resizes, pads with black and mirrors.
    Resample(ResamplePlan),
    /// Cuts out parts, which lie one below the other in the result.
    Views {
        /// The parts, all inside of the picture.
        views: Vec<View>,
        /// Width and height of each part.
        size: [u32; 2],
    },
    /// Adds up the weighted values of the picture and of the results of chains of operations on it. The weights are not
    /// negative, and add up to about 1.
    Mix {
        /// The weight of the picture.
        own: f32,
        /// The chains.
        chains: Vec<MixedChain>,
    },
}

/// Operations whose result is mixed with the picture that they begin with. They keep its size.
#[derive(Clone, Debug, PartialEq)]
pub struct MixedChain {
    /// The weight of the result.
    pub weight: f32,
    /// The operations, in order.
    pub ops: Vec<PixelOp>,
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

impl PixelOp {
    /// Returns the width and height after the operation.
    #[must_use]
    pub const fn output_size(&self, before: [u32; 2]) -> [u32; 2] {
        match self {
            Self::Resample(plan) => plan.size,
            Self::Warp(warp) => warp.size,
            Self::Views { views, size: [width, height] } => [*width, height.saturating_mul(views.len() as u32)],
            Self::Pad { sides: [left, top, right, bottom], .. } => [
                before[0].saturating_add(*left).saturating_add(*right),
                before[1].saturating_add(*top).saturating_add(*bottom),
            ],
            _ => before,
        }
    }

    /// Returns the operation as a table of values, if the table is the same for every picture.
    fn table(&self) -> Option<[u8; 256]> {
        Some(match *self {
            Self::Brightness(factor) => points::brightness(factor),
            Self::Invert => points::invert(),
            Self::Posterize(bits) => points::posterize(bits),
            Self::Solarize(threshold) => points::solarize(threshold),
            _ => return None,
        })
    }
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
            PixelOp::Resample(plan) => bytes(after) + plan.scratch_bytes(before),
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
        if let Some(table) = op.table() {
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
                    plan.resample(&picture.pixels, picture.size, &mut scratch.resampler, result);
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
