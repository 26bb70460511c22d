//! The operation `ten_crop`.

use serde::{Deserialize, Serialize};
use spdl_canvas::{PixelOp, View};

use super::{Operation, OperationProblem, PicturePlanner, five_crop::corners_and_middle, kind::check_size};
use crate::{KeyProblem, Size};

/// Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It
/// has to be the last operation. A picture that is smaller is a bad sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenCrop {
    /// Size of each picture.
    pub size: Size,
    /// Whether the mirrored picture has top and bottom exchanged, rather than left and right.
    #[serde(default)]
    pub vertical_flip: bool,
}

impl Operation for TenCrop {
    const NAME: &'static str = "ten_crop";
    const KEYS: &'static [&'static str] = &["size", "vertical_flip"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const ONLY_MOVES: bool = true;
    const PICTURES: u32 = 10;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let [rows, columns] = self.size.height_width();
        let [width, height] = planner.size();
        let five = corners_and_middle([width, height], [columns, rows], Self::NAME)?;
        // A crop of the mirrored picture is the mirrored crop at the opposite place of the picture.
        let across = |View { place: [left, top], .. }: View| match self.vertical_flip {
            false => View { place: [width - columns - left, top], mirrored: true, flipped: false },
            true => View { place: [left, height - rows - top], mirrored: false, flipped: true },
        };
        let views = five.into_iter().chain(five.map(across)).collect();
        planner.change(PixelOp::Views { views, size: [columns, rows] });
        Ok(())
    }
}
