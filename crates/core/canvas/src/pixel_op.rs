//! Operations on the pixels of a decoded picture, with all of their parameters.

use super::{ResamplePlan, Warp};

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
}

/// What lies beyond the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadWith {
    /// One colour.
    Constant([u8; 3]),
    /// The pixel of the border.
    Edge,
    /// The reflection at the pixels of the border, which are not repeated.
    Reflect,
    /// The reflection at the border, whose pixels are repeated.
    Symmetric,
}

/// A part of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// First column and row.
    pub place: [u32; 2],
    /// Whether left and right are exchanged.
    pub mirrored: bool,
    /// Whether top and bottom are exchanged.
    pub flipped: bool,
}
