//! The plan of `random_crop`.

use spdl_job::{Operation, RandomCrop};

use super::{PlanOperation, Planner};
use crate::decode::{cause::BadSampleProblem, geometry::Rectangle};

impl PlanOperation for RandomCrop {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let Self { padding, fill, padding_mode, .. } = *self;
        planner.pad(padding.sides(), fill, padding_mode);
        let [rows, columns] = self.size.height_width();
        let [width, height] = planner.size();
        let (across, down) = (columns.saturating_sub(width), rows.saturating_sub(height));
        if across > 0 || down > 0 {
            if !self.pad_if_needed {
                let operation = Self::NAME;
                return Err(BadSampleProblem::TooSmall { width, height, columns, rows, operation });
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
