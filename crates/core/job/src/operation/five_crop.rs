//! The operation `five_crop`.

use serde::{Deserialize, Serialize};
use spdl_canvas::{PixelOp, View};

use super::{Operation, OperationProblem, PicturePlanner, kind::check_size};
use crate::{KeyProblem, Size};

/// Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for
/// evaluation. It has to be the last operation. A picture that is smaller is a bad sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FiveCrop {
    /// Size of each picture.
    pub size: Size,
}

impl Operation for FiveCrop {
    const NAME: &'static str = "five_crop";
    const KEYS: &'static [&'static str] = &["size"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const ONLY_MOVES: bool = true;
    const PICTURES: u32 = 5;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let [rows, columns] = self.size.height_width();
        let views = corners_and_middle(planner.size(), [columns, rows], Self::NAME)?.to_vec();
        planner.change(PixelOp::Views { views, size: [columns, rows] });
        Ok(())
    }
}

/// Returns the corners and the middle, all of `size`, of a picture of `whole`: widths and heights.
pub(super) fn corners_and_middle(
    whole: [u32; 2],
    size: [u32; 2],
    operation: &'static str,
) -> Result<[View; 5], OperationProblem> {
    let [width, height] = whole;
    let [columns, rows] = size;
    let (Some(right), Some(bottom)) = (width.checked_sub(columns), height.checked_sub(rows)) else {
        return Err(OperationProblem::TooSmall { width, height, columns, rows, operation });
    };
    // Half a pixel of spare rounds to even, as in torchvision.
    let half = |spare: u32| spare / 2 + if spare % 4 == 3 { 1 } else { 0 };
    let places = [[0, 0], [right, 0], [0, bottom], [right, bottom], [half(right), half(bottom)]];
    Ok(places.map(|place| View { place, ..View::default() }))
}
