//! The operations that `rand_augment`, `trivial_augment_wide` and `aug_mix` choose from, in torchvision's order.

use spdl_canvas::PixelOp;

use super::{Fill, PicturePlanner, WarpInterpolation, affine::warp};

/// An operation to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Augmentation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
}

use Augmentation::*;

/// The operations of `rand_augment` and `trivial_augment_wide`.
pub(super) const ALL: &[Augmentation] = &[
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

/// The operations of `aug_mix`, which may leave out the last four.
const OF_MIXES: &[Augmentation] = &[
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Brightness,
    Color,
    Contrast,
    Sharpness,
];

/// The greatest strength of each operation; the least one is 0.
pub(super) struct Space {
    /// Tangent of the angle.
    pub(super) shear: f64,
    /// To the right and down, in pixels.
    pub(super) translate: [f64; 2],
    /// In degrees.
    pub(super) rotate: f64,
    /// What is added to factors of 1.
    pub(super) factor: f64,
    /// Bits that are left at the least strength, and how many of them are taken away at the greatest.
    pub(super) posterize: [f64; 2],
    /// Number of different strengths.
    pub(super) bins: u32,
}

impl Augmentation {
    /// Draws one of these.
    pub(super) fn draw(choices: &[Self], planner: &mut PicturePlanner<'_>) -> Self {
        choices[planner.draw.below(choices.len() as u32) as usize]
    }

    /// Returns the operations of `aug_mix`: all, or only those that neither change colours by a factor nor sharpen.
    pub(super) const fn of_mixes(all_ops: bool) -> &'static [Self] {
        if all_ops { OF_MIXES } else { OF_MIXES.split_at(OF_MIXES.len() - 4).0 }
    }

    /// Returns whether the operation can be of different strength.
    pub(super) const fn has_magnitude(self) -> bool {
        !matches!(self, Identity | AutoContrast | Equalize)
    }
}

impl Space {
    /// Adds an operation to the plan. `bin` is its strength; where that can be positive or negative, the sign is drawn.
    pub(super) fn apply(
        &self,
        which: Augmentation,
        bin: Option<u32>,
        planner: &mut PicturePlanner<'_>,
        interpolation: WarpInterpolation,
        fill: Option<Fill>,
    ) {
        let bin = bin.unwrap_or(0);
        let is_signed = which.has_magnitude() && !matches!(which, Posterize | Solarize);
        let sign = if is_signed && planner.draw.unit() < 0.5 { -1.0 } else { 1.0 };
        let upto = |most: f64| sign * f64::from(self.magnitude(0.0, most as f32, bin));
        let fill = fill.map(|fill| fill.0);
        let size = planner.size();
        let [width, height] = size.map(f64::from);
        let mut move_by = |matrix: [f64; 6]| planner.change(warp(matrix, size, size, interpolation, fill));
        let factor = (1.0 + upto(self.factor)) as f32;
        match which {
            Identity => {}
            ShearX => {
                let tangent = upto(self.shear);
                move_by([1.0, tangent, tangent * height / 2.0, 0.0, 1.0, 0.0]);
            }
            ShearY => {
                let tangent = upto(self.shear);
                move_by([1.0, 0.0, 0.0, tangent, 1.0, tangent * width / 2.0]);
            }
            TranslateX => move_by([1.0, 0.0, -upto(self.translate[0]).trunc(), 0.0, 1.0, 0.0]),
            TranslateY => move_by([1.0, 0.0, 0.0, 0.0, 1.0, -upto(self.translate[1]).trunc()]),
            Rotate => planner.rotate(upto(self.rotate), false, interpolation, fill),
            Brightness => planner.change(PixelOp::Brightness(factor)),
            Color => planner.change(PixelOp::Saturation(factor)),
            Contrast => planner.change(PixelOp::Contrast(factor)),
            Sharpness => planner.change(PixelOp::Sharpness(factor)),
            Posterize => {
                let [bits, most] = self.posterize.map(|bits| bits as f32);
                let fewer = bin as f32 / ((self.bins - 1) as f32 / most);
                planner.change(PixelOp::Posterize((bits - fewer).round_ties_even() as u32));
            }
            Solarize => {
                let threshold = 255.0 * f64::from(self.magnitude(1.0, 0.0, bin));
                planner.change(PixelOp::Solarize(threshold as f32));
            }
            AutoContrast => planner.change(PixelOp::Autocontrast),
            Equalize => planner.change(PixelOp::Equalize),
        }
    }

    /// Returns one of `bins` numbers at equal distances from `first` to `last`, rounded as torch's `linspace` rounds: a
    /// move of 16 pixels must not become one of 15.
    fn magnitude(&self, first: f32, last: f32, bin: u32) -> f32 {
        let step = f64::from((last - first) / (self.bins - 1) as f32);
        if bin < self.bins / 2 {
            (f64::from(first) + step * f64::from(bin)) as f32
        } else {
            (f64::from(last) - step * f64::from(self.bins - 1 - bin)) as f32
        }
    }
}
