//! The plan of `random_solarize`.

use spdl_job::RandomSolarize;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomSolarize {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Solarize(self.threshold));
        }
        Ok(())
    }
}
