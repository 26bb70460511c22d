//! The kind `int`: a decimal integer in text.

use serde::{Deserialize, Serialize};

use super::{DefaultValue, Kind, NoKeys};
use crate::KeyProblem;
use spdl_types::DType;

/// A decimal integer in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntColumn;

impl Kind for IntColumn {
    const NAME: &'static str = "int";
    const IS_UNIT: bool = true;
    const IS_PLAIN: bool = true;
    const TAKES_CLASSES: bool = true;
    const TAKES_DELTAS: bool = true;
    type Keys = NoKeys;

    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Ok(Self)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32]
    }

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_number(dtype)
    }
}
