//! The operation `pad`.

use serde::{Deserialize, Serialize};

use super::{Fill, Operation, OperationProblem, Padding, PaddingMode, PicturePlanner};
use crate::KeyProblem;

/// Adds pixels around the picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// The pixels to add.
    pub padding: Padding,
    /// Colour of what is added.
    #[serde(default)]
    pub fill: Fill,
    /// What is added.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl Operation for Pad {
    const NAME: &'static str = "pad";
    const KEYS: &'static [&'static str] = &["padding", "fill", "padding_mode"];
    const EXAMPLE: &'static str = "{ padding = 4 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        before.map(|before| Padding::around(before, self.padding.sides()))
    }

    fn check(&self) -> Result<(), KeyProblem> {
        self.padding_mode.check(self.fill)?;
        self.padding.check()
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        planner.pad(self.padding.sides(), self.fill, self.padding_mode);
        Ok(())
    }
}
