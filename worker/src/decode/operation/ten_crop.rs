//! The plan of `ten_crop`.

use spdl_job::{Operation, TenCrop};
use spdl_operations::{PixelOp, View};

use super::{PlanOperation, Planner, five_crop::corners_and_middle};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for TenCrop {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
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
