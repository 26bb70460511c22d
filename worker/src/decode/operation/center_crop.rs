//! The plan of `center_crop`.

use spdl_job::CenterCrop;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for CenterCrop {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        planner.canvas().center(self.size.height_width());
        Ok(())
    }
}
