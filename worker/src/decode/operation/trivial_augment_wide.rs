//! The plan of `trivial_augment_wide`.

use spdl_job::TrivialAugmentWide;

use super::{
    PlanOperation, Planner,
    augment::{ALL, Augmentation, Space},
};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for TrivialAugmentWide {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let which = Augmentation::draw(ALL, planner);
        let bins = self.num_magnitude_bins;
        let space =
            Space { shear: 0.99, translate: [32.0; 2], rotate: 135.0, factor: 0.99, posterize: [8.0, 6.0], bins };
        let bin = if which.has_magnitude() { Some(planner.draw.below(bins)) } else { None };
        space.apply(which, bin, planner, self.interpolation, self.fill);
        Ok(())
    }
}
