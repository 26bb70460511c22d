//! The plan of `aug_mix`.

use spdl_job::AugMix;
use spdl_operations::{MixedChain, PixelOp};

use super::{
    PlanOperation, Planner,
    augment::{Augmentation, Space},
    dirichlet::dirichlet,
};
use crate::decode::cause::BadSampleProblem;

/// Number of strengths; `severity` limits which of them are drawn.
const BINS: u32 = 10;
/// Maximum number of operations of a chain whose length is drawn.
const MOST_DRAWN: u32 = 3;

impl PlanOperation for AugMix {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
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
