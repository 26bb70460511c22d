//! The operation `letterbox`.

use serde::{Deserialize, Serialize};

use super::{Fill, Operation, kind::check_size};
use crate::job::{KeyProblem, Size};

/// Resizes the picture so that it fits, and pads what is left, half on each side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Letterbox {
    /// Size of the result.
    pub size: Size,
    /// Colour of what is added.
    #[serde(default)]
    pub fill: Fill,
}

impl Operation for Letterbox {
    const NAME: &'static str = "letterbox";
    const SINCE: &'static str = "0.1.0";
    const KEYS: &'static [&'static str] = &["size", "fill"];
    const EXAMPLE: &'static str = "{ size = 640 }";

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }
}
