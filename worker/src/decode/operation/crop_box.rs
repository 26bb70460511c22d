//! The plan of `crop_box`.

use spdl_job::CropBox;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for CropBox {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        planner.crop_box(&self.field, self.margin)
    }
}
