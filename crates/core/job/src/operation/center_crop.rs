//! The operation `center_crop`.

use serde::{Deserialize, Serialize};

use super::{Operation, OperationProblem, PicturePlanner, kind::check_size};
use crate::{KeyProblem, Size};

/// Cuts out the middle. A smaller picture is padded with zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Size of the result.
    pub size: Size,
}

impl Operation for CenterCrop {
    const NAME: &'static str = "center_crop";
    const KEYS: &'static [&'static str] = &["size"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        planner.canvas().center(self.size.height_width());
        Ok(())
    }
}
