//! The operation `aug_mix`.

use serde::{Deserialize, Serialize};
use spdl_canvas::{MixedChain, PixelOp};

use super::{
    Fill, Operation, OperationProblem, PicturePlanner, WarpInterpolation,
    augment::{Augmentation, Space},
    dirichlet::dirichlet,
};
use crate::KeyProblem;

/// Mixes the picture with those that `mixture_width` random chains of operations make of it (Hendrycks et al., ICLR
/// 2020; torchvision's operations).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AugMix {
    /// The greatest strength of an operation.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 10))]
    pub severity: u32,
    /// The number of chains; each costs as much as its operations.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 10))]
    pub mixture_width: u32,
    /// The operations of a chain, 1 to 10; -1 draws 1 to 3 for each.
    #[serde(default = "random_depth")]
    #[schemars(range(min = -1, max = 10))]
    pub chain_depth: i32,
    /// The parameter of the distributions of the weights, those of Dirichlet: the smaller, the more does one of the
    /// pictures prevail.
    #[serde(default = "alpha")]
    #[schemars(range(min = 0.001, max = 1000))]
    pub alpha: f32,
    /// Whether brightness, saturation, contrast and sharpness are among the operations.
    #[serde(default = "all_ops")]
    pub all_ops: bool,
    /// How values between pixels are made.
    #[serde(default = "WarpInterpolation::bilinear")]
    pub interpolation: WarpInterpolation,
    /// Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

/// The greatest strength.
const MAX_SEVERITY: u32 = 10;
/// The most chains, and the most operations of one: together, they are as many as `rand_augment` may have.
const MAX_CHAINS: u32 = 10;

const fn three() -> u32 {
    3
}

const fn random_depth() -> i32 {
    -1
}

const fn alpha() -> f32 {
    1.0
}

const fn all_ops() -> bool {
    true
}

/// Number of strengths; `severity` limits which of them are drawn.
const BINS: u32 = 10;
/// Maximum number of operations of a chain whose length is drawn.
const MOST_DRAWN: u32 = 3;

impl Operation for AugMix {
    const NAME: &'static str = "aug_mix";
    const KEYS: &'static [&'static str] =
        &["severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ severity = 3 }";

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { severity, mixture_width, chain_depth, alpha, .. } = *self;
        if !(1..=MAX_SEVERITY).contains(&severity) {
            return Err(("severity", format!("is {severity}, not in 1..={MAX_SEVERITY}")));
        }
        if !(1..=MAX_CHAINS).contains(&mixture_width) {
            return Err(("mixture_width", format!("is {mixture_width}, not in 1..={MAX_CHAINS}")));
        }
        if chain_depth != -1 && !(1..=MAX_CHAINS.cast_signed()).contains(&chain_depth) {
            return Err(("chain_depth", format!("is {chain_depth}; give -1, or 1 to {MAX_CHAINS}")));
        }
        if !(1e-3..=1e3).contains(&alpha) {
            return Err(("alpha", format!("is {alpha}, not in 0.001..1000")));
        }
        Ok(())
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let alpha = f64::from(self.alpha);
        // In torchvision's order: the share of the picture, those of the chains, and then the chains.
        let of_picture = dirichlet(planner.draw, alpha, 2);
        let of_chains = dirichlet(planner.draw, alpha, self.mixture_width);
        let [width, height] = planner.size().map(|side| f64::from(side) / 3.0);
        let space = Space {
            shear: 0.3,
            translate: [width, height],
            rotate: 30.0,
            factor: 0.9,
            posterize: [4.0, 4.0],
            bins: BINS,
        };
        let choices = Augmentation::of_mixes(self.all_ops);
        let mut chains = Vec::new();
        for share in of_chains {
            let depth = u32::try_from(self.chain_depth).unwrap_or_else(|_| 1 + planner.draw.below(MOST_DRAWN));
            let ops = planner.aside(|planner| {
                for _ in 0..depth {
                    let which = Augmentation::draw(choices, planner);
                    let bin = which.has_magnitude().then(|| planner.draw.below(self.severity));
                    space.apply(which, bin, planner, self.interpolation, self.fill);
                }
            });
            // As floats, because that is how torchvision multiplies them.
            chains.push(MixedChain { weight: share as f32 * of_picture[1] as f32, ops });
        }
        planner.change(PixelOp::Mix { own: of_picture[0] as f32, chains });
        Ok(())
    }
}
