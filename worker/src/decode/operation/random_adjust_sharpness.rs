//! The plan of `random_adjust_sharpness`.

use spdl_job::RandomAdjustSharpness;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomAdjustSharpness {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Sharpness(self.sharpness_factor));
        }
        Ok(())
    }
}
