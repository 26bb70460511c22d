//! The operation `random_affine`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, NumberOrRange, Operation, OperationProblem, PicturePlanner, WarpInterpolation,
    affine::{Affine, warp},
    kind::check_degrees,
};
use crate::KeyProblem;

/// Rotates, moves, scales and shears round the middle, by random amounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// The range of the angle in degrees, clockwise, -3600 to 3600. A number `n` is `[-n, n]`.
    pub degrees: NumberOrRange,
    /// The farthest move, as shares of the width and the height, 0 to 1. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<[f32; 2]>,
    /// The range of the factor of the size, 0.001 to 1000. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f32; 2]>,
    /// The range of the shear along the rows, in degrees, -89 to 89. A number `n` is `[-n, n]`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shear: Option<NumberOrRange>,
    /// How values between pixels are made.
    #[serde(default)]
    pub interpolation: WarpInterpolation,
    /// Colour of what lies beyond the picture.
    #[serde(default)]
    pub fill: Fill,
}

impl Operation for RandomAffine {
    const NAME: &'static str = "random_affine";
    const KEYS: &'static [&'static str] = &["degrees", "translate", "scale", "shear", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ degrees = 15, translate = [0.1, 0.1] }";

    fn check(&self) -> Result<(), KeyProblem> {
        if let Some(translate) = self.translate
            && !translate.iter().all(|share| (0.0..=1.0).contains(share))
        {
            return Err(("translate", format!("is {translate:?}; give two numbers in 0..1")));
        }
        if let Some(scale) = self.scale
            && !(1e-3 <= scale[0] && scale[0] <= scale[1] && scale[1] <= 1e3)
        {
            return Err(("scale", format!("is {scale:?}; give [low, high] in 0.001..1000")));
        }
        if let Some(shear) = self.shear {
            let [low, high] = shear.around(0.0, f32::NEG_INFINITY);
            if !(-89.0 <= low && low <= high && high <= 89.0) {
                return Err(("shear", format!("is {shear}; give a number, or [low, high], in -89..89")));
            }
        }
        check_degrees("degrees", self.degrees)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let draw = &mut planner.draw;
        let mut between = |[low, high]: [f32; 2]| draw.between(low.into(), high.into());
        let angle = between(self.degrees.around(0.0, f32::NEG_INFINITY));
        let mut affine = Affine { angle, ..Affine::default() };
        let size = planner.size();
        let draw = &mut planner.draw;
        if let Some(shares) = self.translate {
            for ((move_by, share), side) in affine.translate.iter_mut().zip(shares).zip(size) {
                let farthest = f64::from(share) * f64::from(side);
                *move_by = draw.between(-farthest, farthest).round_ties_even();
            }
        }
        if let Some([low, high]) = self.scale {
            affine.scale = draw.between(low.into(), high.into());
        }
        if let Some(shear) = self.shear {
            let [low, high] = shear.around(0.0, f32::NEG_INFINITY);
            affine.shear[0] = draw.between(low.into(), high.into());
        }
        planner.change(warp(affine.inverse(), size, size, self.interpolation, Some(self.fill.0)));
        Ok(())
    }
}
