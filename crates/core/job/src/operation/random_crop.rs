//! The operation `random_crop`.

use serde::{Deserialize, Serialize};
use spdl_canvas::Rectangle;

use super::{Fill, Operation, OperationProblem, Padding, PaddingMode, PicturePlanner, kind::check_size};
use crate::{KeyProblem, Size};

/// Pads, then cuts out `size` at a random place. A picture that is smaller is a bad sample, unless `pad_if_needed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        self.padding_mode.check(self.fill)?;
        self.padding.check()?;
        check_size(self.size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let Self { padding, fill, padding_mode, .. } = *self;
        planner.pad(padding.sides(), fill, padding_mode);
        let [rows, columns] = self.size.height_width();
        let [width, height] = planner.size();
        let (across, down) = (columns.saturating_sub(width), rows.saturating_sub(height));
        if across > 0 || down > 0 {
            if !self.pad_if_needed {
                let operation = Self::NAME;
                return Err(OperationProblem::TooSmall { width, height, columns, rows, operation });
            }
            planner.pad([across, down, across, down], fill, padding_mode);
        }
        let [width, height] = planner.size();
        let mut place = |spare: u32| if spare > 0 { planner.draw.below(spare + 1) } else { 0 };
        let (top, left) = (place(height - rows), place(width - columns));
        planner.canvas().crop(Rectangle { left, top, width: columns, height: rows });
        Ok(())
    }
}
