//! The plan of `random_equalize`.

use spdl_job::RandomEqualize;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomEqualize {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Equalize);
        }
        Ok(())
    }
}
