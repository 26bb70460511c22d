//! The operation `resize`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::check_size};
use crate::job::{KeyProblem, Size};

/// Resizes: one number gives the shorter side and keeps the aspect ratio, two give height and width.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Size of the result.
    pub size: Size,
}

impl Operation for Resize {
    const NAME: &'static str = "resize";
    const SINCE: &'static str = "0.1.0";
    const KEYS: &'static [&'static str] = &["size"];
    const EXAMPLE: &'static str = "{ size = 256 }";

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        match self.size {
            Size::HeightWidth(size) => Some(size),
            Size::Square(_) => None,
        }
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }
}
