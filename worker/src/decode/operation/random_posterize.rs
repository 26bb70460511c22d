//! The plan of `random_posterize`.

use spdl_job::RandomPosterize;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomPosterize {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Posterize(self.bits));
        }
        Ok(())
    }
}
