//! The operation `grayscale`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{Operation, OperationProblem, PicturePlanner};

/// Makes the picture grey; it still has three channels, which are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {}

impl Operation for Grayscale {
    const NAME: &'static str = "grayscale";
    const KEYS: &'static [&'static str] = &[];
    const EXAMPLE: &'static str = "{}";

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        planner.change(PixelOp::Grayscale);
        Ok(())
    }
}
