//! The operation `random_crop`.

use serde::{Deserialize, Serialize};

use super::{Fill, Operation, Padding, PaddingMode, kind::check_size};
use crate::{KeyProblem, Size};

/// Pads, then cuts out `size` at a random place. A picture that is smaller is a bad sample, unless `pad_if_needed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Size of the result.
    pub size: Size,
    /// The pixels to add before. Default: 0.
    #[serde(default, skip_serializing_if = "Padding::is_zero")]
    pub padding: Padding,
    /// Whether a picture that is smaller than `size` is padded on both sides by what it lacks.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Colour of what is added.
    #[serde(default)]
    pub fill: Fill,
    /// What is added.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl Operation for RandomCrop {
    const NAME: &'static str = "random_crop";
    const KEYS: &'static [&'static str] = &["size", "padding", "pad_if_needed", "fill", "padding_mode"];
    const EXAMPLE: &'static str = "{ size = 32, padding = 4 }";

    fn only_moves(&self) -> bool {
        true
    }

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        self.padding_mode.check(self.fill)?;
        self.padding.check()?;
        check_size(self.size)
    }
}
