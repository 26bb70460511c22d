//! The operation `rand_augment`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Operation, OperationProblem, PicturePlanner, WarpInterpolation,
    augment::{ALL, Augmentation, Space},
    kind::check_magnitude,
};
use crate::KeyProblem;

/// Applies `num_ops` of 14 operations, drawn anew each, all of strength `magnitude` (Cubuk et al., NeurIPS 2020;
/// torchvision's operations).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// The number of operations, which are applied one after the other.
    #[serde(default = "num_ops")]
    #[schemars(range(min = 0, max = 100))]
    pub num_ops: u32,
    /// The strength, below `num_magnitude_bins`.
    #[serde(default = "magnitude")]
    pub magnitude: u32,
    /// The number of strengths, 2 to 1000.
    #[serde(default = "num_magnitude_bins")]
    pub num_magnitude_bins: u32,
    /// How values between pixels are made.
    #[serde(default)]
    pub interpolation: WarpInterpolation,
    /// Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

/// The most operations that are applied.
const MAX_OPS: u32 = 100;

const fn num_ops() -> u32 {
    2
}

const fn magnitude() -> u32 {
    9
}

pub(super) const fn num_magnitude_bins() -> u32 {
    31
}

impl Operation for RandAugment {
    const NAME: &'static str = "rand_augment";
    const KEYS: &'static [&'static str] = &["num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ num_ops = 2, magnitude = 9 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if self.num_ops > MAX_OPS {
            return Err(("num_ops", format!("is {}, not in 0..={MAX_OPS}", self.num_ops)));
        }
        check_magnitude(self.num_magnitude_bins)?;
        if self.magnitude >= self.num_magnitude_bins {
            let problem = format!("is {}, not below `num_magnitude_bins`, {}", self.magnitude, self.num_magnitude_bins);
            return Err(("magnitude", problem));
        }
        Ok(())
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        for _ in 0..self.num_ops {
            let which = Augmentation::draw(ALL, planner);
            let [width, height] = planner.size().map(|side| 150.0 / 331.0 * f64::from(side));
            let space = Space {
                shear: 0.3,
                translate: [width, height],
                rotate: 30.0,
                factor: 0.9,
                posterize: [8.0, 4.0],
                bins: self.num_magnitude_bins,
            };
            let bin = which.has_magnitude().then_some(self.magnitude);
            space.apply(which, bin, planner, self.interpolation, self.fill);
        }
        Ok(())
    }
}
