//! The plan of `random_invert`.

use spdl_job::RandomInvert;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomInvert {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Invert);
        }
        Ok(())
    }
}
