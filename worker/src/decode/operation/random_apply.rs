//! The plan of `random_apply`.

use spdl_job::RandomApply;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomApply {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p) { planner.add(&self.transforms) } else { Ok(()) }
    }
}
