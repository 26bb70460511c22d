//! The plan of `random_erasing`.

use spdl_types::elementary::{exp, ln};
use spdl_job::RandomErasing;
use spdl_operations::PixelOp;
use spdl_functions::Draw;

use super::{PlanOperation, Planner};
use crate::decode::{
    cause::BadSampleProblem,
    geometry::Rectangle,
};

/// Number of tries before nothing is erased.
const ATTEMPTS: u32 = 10;

impl PlanOperation for RandomErasing {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        if planner.happens(self.p)
            && let Some(rectangle) = rectangle(planner.size(), self.scale, self.ratio, planner.draw)
        {
            let Rectangle { left, top, width, height } = rectangle;
            planner.change(PixelOp::Erase { place: [left, top], size: [width, height], color: self.value.0 });
        }
        Ok(())
    }
}

/// Draws a rectangle that is smaller than `width` x `height` in both directions.
fn rectangle(
    [width, height]: [u32; 2],
    [least, most]: [f32; 2],
    ratio: [f32; 2],
    draw: &mut Draw,
) -> Option<Rectangle> {
    let area = f64::from(width) * f64::from(height);
    let [low, high] = ratio.map(|ratio| ln(ratio.into()));
    for _ in 0..ATTEMPTS {
        let wanted = area * draw.between(least.into(), most.into());
        let aspect = exp(draw.between(low, high));
        let rows = (wanted * aspect).sqrt().round_ties_even();
        let columns = (wanted / aspect).sqrt().round_ties_even();
        if rows < f64::from(height) && columns < f64::from(width) {
            let (rows, columns) = (rows as u32, columns as u32);
            let top = draw.below(height - rows + 1);
            let left = draw.below(width - columns + 1);
            return Some(Rectangle { left, top, width: columns, height: rows });
        }
    }
    None
}
