//! The geometry of `random_flip`.

use smallvec::smallvec;
use spdl_core::job::RandomFlip;

use super::{OperationGeometry, OperationInput, OperationSteps};
use crate::decode::{cause::BadSampleProblem, geometry::GeometryStep};

impl OperationGeometry for RandomFlip {
    fn steps(&self, input: OperationInput<'_>) -> Result<OperationSteps, BadSampleProblem> {
        let is_mirrored = input.draw.unit() < f64::from(self.p);
        Ok(if is_mirrored { smallvec![GeometryStep::Mirror] } else { OperationSteps::new() })
    }
}
