//! The operation `trivial_augment_wide`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Operation, OperationProblem, PicturePlanner, WarpInterpolation,
    augment::{ALL, Augmentation, Space},
    kind::check_magnitude,
    rand_augment::num_magnitude_bins,
};
use crate::KeyProblem;

/// Applies one of the operations of `rand_augment`, of random strength (Müller and Hutter, ICCV 2021; torchvision's
/// operations).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrivialAugmentWide {
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

impl Operation for TrivialAugmentWide {
    const NAME: &'static str = "trivial_augment_wide";
    const KEYS: &'static [&'static str] = &["num_magnitude_bins", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ num_magnitude_bins = 31 }";

    fn check(&self) -> Result<(), KeyProblem> {
        check_magnitude(self.num_magnitude_bins)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let which = Augmentation::draw(ALL, planner);
        let bins = self.num_magnitude_bins;
        let space =
            Space { shear: 0.99, translate: [32.0; 2], rotate: 135.0, factor: 0.99, posterize: [8.0, 6.0], bins };
        let bin = if which.has_magnitude() { Some(planner.draw.below(bins)) } else { None };
        space.apply(which, bin, planner, self.interpolation, self.fill);
        Ok(())
    }
}
