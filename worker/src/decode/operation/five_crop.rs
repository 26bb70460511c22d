//! The plan of `five_crop`.

use spdl_job::{FiveCrop, Operation};
use spdl_operations::{PixelOp, View};

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for FiveCrop {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
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
) -> Result<[View; 5], BadSampleProblem> {
    let [width, height] = whole;
    let [columns, rows] = size;
    let (Some(right), Some(bottom)) = (width.checked_sub(columns), height.checked_sub(rows)) else {
        return Err(BadSampleProblem::TooSmall { width, height, columns, rows, operation });
    };
    // Half a pixel of spare rounds to even, as in torchvision.
    let half = |spare: u32| spare / 2 + if spare % 4 == 3 { 1 } else { 0 };
    let places = [[0, 0], [right, 0], [0, bottom], [right, bottom], [half(right), half(bottom)]];
    Ok(places.map(|place| View { place, ..View::default() }))
}
