//! The plan of `rand_augment`.

use spdl_job::RandAugment;

use super::{
    PlanOperation, Planner,
    augment::{ALL, Augmentation, Space},
};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandAugment {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
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
