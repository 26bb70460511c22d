//! The kind `bool`: yes or no, as a value of the type bool, a number or text.

use serde::{Deserialize, Serialize};

use super::{DefaultValue, Kind, NoKeys};
use crate::KeyProblem;
use spdl_types::DType;

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoolColumn;

impl Kind for BoolColumn {
    const NAME: &'static str = "bool";
    const IS_UNIT: bool = true;
    const IS_PLAIN: bool = true;
    const TAKES_DELTAS: bool = true;
    type Keys = NoKeys;

    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Ok(Self)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::Bool]
    }

    fn check_default(&self, default: &DefaultValue, _: DType) -> Result<(), String> {
        if matches!(default, DefaultValue::Bool(_)) { Ok(()) } else { Err("true or false".to_owned()) }
    }
}
