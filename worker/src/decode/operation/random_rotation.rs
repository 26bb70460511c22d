//! The plan of `random_rotation`.

use spdl_job::RandomRotation;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomRotation {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let [low, high] = self.degrees.around(0.0, f32::NEG_INFINITY);
        let angle = planner.draw.between(low.into(), high.into());
        planner.rotate(angle, self.expand, self.interpolation, Some(self.fill.0));
        Ok(())
    }
}
