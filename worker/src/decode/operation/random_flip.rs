//! The plan of `random_flip`.

use spdl_job::RandomFlip;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomFlip {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) {
            planner.canvas().mirror();
        }
        Ok(())
    }
}
