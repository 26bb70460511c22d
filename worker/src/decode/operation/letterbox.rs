//! The plan of `letterbox`.

use spdl_job::{Letterbox, PaddingMode};

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for Letterbox {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let [rows, columns] = self.size.height_width();
        let [width, height] = planner.size();
        let scale = (f64::from(rows) / f64::from(height)).min(f64::from(columns) / f64::from(width));
        let shown = |side: u32, most: u32| ((f64::from(side) * scale).round() as u32).clamp(1, most);
        let [shown_width, shown_height] = [shown(width, columns), shown(height, rows)];
        planner.resize([shown_height, shown_width], self.interpolation, self.antialias, self.full_decode);
        let (across, down) = (columns - shown_width, rows - shown_height);
        let sides = [across / 2, down / 2, across - across / 2, down - down / 2];
        planner.pad(sides, self.fill, PaddingMode::Constant);
        Ok(())
    }
}
