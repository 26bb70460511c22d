//! The plan of `random_grayscale`.

use spdl_job::RandomGrayscale;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomGrayscale {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.change(PixelOp::Grayscale);
        }
        Ok(())
    }
}
