//! The kind `float`: a number of any numeric type, or a decimal number in text.

use serde::{Deserialize, Serialize};

use super::{Kind, NoKeys};
use spdl_types::{SampleShape, DType};
use crate::KeyProblem;

/// A number, which may have a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatColumn;

impl Kind for FloatColumn {
    const NAME: &'static str = "float";
    const IS_UNIT: bool = true;
    type Keys = NoKeys;

    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Ok(Self)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::F64, DType::F16, DType::Bf16]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(Vec::new())
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        Ok(())
    }
}
