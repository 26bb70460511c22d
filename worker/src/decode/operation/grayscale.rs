//! The plan of `grayscale`.

use spdl_job::Grayscale;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for Grayscale {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        planner.change(PixelOp::Grayscale);
        Ok(())
    }
}
