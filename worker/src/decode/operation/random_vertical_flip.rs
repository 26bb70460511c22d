//! The plan of `random_vertical_flip`.

use spdl_job::RandomVerticalFlip;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomVerticalFlip {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.canvas().flip();
        }
        Ok(())
    }
}
