//! The kind `json`: a number in a JSON document.

use serde::{Deserialize, Serialize};

use super::{DefaultValue, Kind, value::path_of, kind::keys};
use crate::KeyProblem;
use spdl_types::DType;

keys! {
    /// The keys of a `json` column in a job file.
    JsonKeys {
        /// For json: the keys from the root to the number, separated by dots, such as `camera.exposure`. An index in a list
        /// is a number. Required.
        path: Option<String>,
    }
}

/// A number in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonColumn {
    /// Keys from the root to the number; places in a list are written as numbers.
    pub path: Vec<String>,
}

impl Kind for JsonColumn {
    const NAME: &'static str = "json";
    const EXAMPLE: &'static str = "path = \"a.0\"";
    const IS_PLAIN: bool = true;
    type Keys = JsonKeys;

    fn read(keys: &JsonKeys) -> Result<Self, KeyProblem> {
        Ok(Self { path: path_of(keys.path.as_deref()) })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F64, DType::F32, DType::I64, DType::I32]
    }

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_number(dtype)
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        if self.path.is_empty() {
            return Err(("path", "is missing; write the keys to the number, as `camera.exposure`".to_owned()));
        }
        Ok(())
    }
}
