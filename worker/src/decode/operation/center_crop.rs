//! The geometry of `center_crop`.

use smallvec::smallvec;
use spdl_core::job::CenterCrop;

use super::{OperationGeometry, OperationInput, OperationSteps};
use crate::decode::{cause::BadSampleProblem, geometry::GeometryStep};

impl OperationGeometry for CenterCrop {
    fn steps(&self, _: OperationInput<'_>) -> Result<OperationSteps, BadSampleProblem> {
        Ok(smallvec![GeometryStep::Center(self.size.height_width())])
    }
}
