//! The plan of `random_autocontrast`.

use spdl_job::RandomAutocontrast;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomAutocontrast {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Autocontrast);
        }
        Ok(())
    }
}
