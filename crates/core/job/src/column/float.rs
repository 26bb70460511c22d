//! The kind `float`: a number of any numeric type, or a decimal number in text.

use serde::{Deserialize, Serialize};

use super::{DefaultValue, Kind, NoKeys};
use crate::KeyProblem;
use spdl_types::DType;

/// A number, which may have a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatColumn;

impl Kind for FloatColumn {
    const NAME: &'static str = "float";
    const IS_UNIT: bool = true;
    const IS_PLAIN: bool = true;
    const TAKES_DELTAS: bool = true;
    type Keys = NoKeys;

    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Ok(Self)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::F64, DType::F16, DType::Bf16]
    }

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_number(dtype)
    }
}
