//! The geometry of `crop_box`.

use smallvec::smallvec;
use spdl_core::job::CropBox;

use super::{OperationGeometry, OperationInput, OperationSteps};
use crate::decode::{cause::BadSampleProblem, geometry::GeometryStep};

impl OperationGeometry for CropBox {
    fn steps(&self, input: OperationInput<'_>) -> Result<OperationSteps, BadSampleProblem> {
        Ok(smallvec![GeometryStep::CropBox { edges: (input.box_of)(&self.field)?, margin: self.margin }])
    }
}
