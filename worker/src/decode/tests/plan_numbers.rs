//! Plans as lists of numbers: they show what was drawn, and no names of the code.

use spdl_canvas::{Filter, MixedChain, PadWith, PixelOp, ResamplePlan, Sampling, View};
use spdl_job::PicturePlan;
use spdl_types::Fingerprint;

/// The numbers of plans, in an order that never changes, whatever the code calls them.
#[derive(Default)]
pub(super) struct PlanNumbers(Vec<u8>);

impl PlanNumbers {
    /// Appends those of a plan.
    pub(super) fn add(&mut self, plan: &PicturePlan) {
        self.resample(&plan.decode);
        self.whole([plan.then.len() as u32]);
        plan.then.iter().for_each(|op| self.operation(op));
    }

    pub(super) fn digest(&self) -> String {
        Fingerprint::of(&self.0).to_string()
    }

    fn whole(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.0.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
    }

    fn floats(&mut self, numbers: impl IntoIterator<Item = f32>) {
        self.whole(numbers.into_iter().map(f32::to_bits));
    }

    fn resample(&mut self, plan: &ResamplePlan) {
        for span in [plan.x, plan.y] {
            self.whole([u32::from(span.is_some())]);
            if let Some(span) = span {
                self.0.extend([span.from, span.extent].into_iter().flat_map(f64::to_le_bytes));
                self.whole([span.readable.0, span.readable.1, span.place, span.pixels, span.size]);
            }
        }
        self.whole([u32::from(plan.mirrored), u32::from(plan.flipped), plan.size[0], plan.size[1]]);
        if plan.filter != Filter::default() {
            self.whole([plan.filter as u32]);
        }
    }

    fn operation(&mut self, op: &PixelOp) {
        let mut of = |number: u32, floats: &[f32]| {
            self.whole([number]);
            self.floats(floats.iter().copied());
        };
        match op {
            PixelOp::Brightness(factor) => of(0, &[*factor]),
            PixelOp::Contrast(factor) => of(1, &[*factor]),
            PixelOp::Saturation(factor) => of(2, &[*factor]),
            PixelOp::Hue(turn) => of(3, &[*turn]),
            PixelOp::Grayscale => of(4, &[]),
            PixelOp::Invert => of(5, &[]),
            PixelOp::Posterize(bits) => of(6, &[*bits as f32]),
            PixelOp::Solarize(threshold) => of(7, &[*threshold]),
            PixelOp::Autocontrast => of(8, &[]),
            PixelOp::Equalize => of(9, &[]),
            PixelOp::Sharpness(factor) => of(10, &[*factor]),
            PixelOp::Blur(weights) => of(11, weights),
            PixelOp::Erase { place, size, color } => {
                of(12, &[]);
                self.whole(place.iter().chain(size).copied());
                self.0.extend(color);
            }
            PixelOp::Pad { sides, with } => {
                let with = match with {
                    PadWith::Constant([r, g, b]) => u32::from_le_bytes([0, *r, *g, *b]),
                    PadWith::Edge => 1,
                    PadWith::Reflect => 2,
                    PadWith::Symmetric => 3,
                };
                of(13, &[]);
                self.whole(sides.iter().copied().chain([with]));
            }
            PixelOp::Warp(warp) => {
                of(14, &warp.factors);
                let fill = warp.fill.map_or(0, |[r, g, b]| u32::from_le_bytes([1, r, g, b]));
                self.whole([u32::from(warp.sampling == Sampling::Bilinear), fill, warp.size[0], warp.size[1]]);
            }
            PixelOp::Resample(plan) => {
                of(15, &[]);
                self.resample(plan);
            }
            PixelOp::Views { views, size } => {
                of(17, &[]);
                self.whole(*size);
                for View { place, mirrored, flipped } in views {
                    self.whole(place.iter().copied().chain([u32::from(*mirrored), u32::from(*flipped)]));
                }
            }
            PixelOp::Mix { own, chains } => {
                of(16, &[*own]);
                for MixedChain { weight, ops } in chains {
                    self.floats([*weight]);
                    self.whole([ops.len() as u32]);
                    ops.iter().for_each(|op| self.operation(op));
                }
            }
        }
    }
}
