//! The plan of `pad`.

use spdl_job::Pad;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for Pad {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        planner.pad(self.padding.sides(), self.fill, self.padding_mode);
        Ok(())
    }
}
