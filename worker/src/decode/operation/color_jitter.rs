//! The plan of `color_jitter`.

use spdl_job::ColorJitter;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for ColorJitter {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        // First the order, then the factors in the order of the keys, as torchvision draws them.
        let mut order = [0, 1, 2, 3];
        for left in (1..order.len()).rev() {
            order.swap(left, planner.draw.below(left as u32 + 1) as usize);
        }
        let draw = &mut planner.draw;
        let factors = self.ranges().map(|range| range.map(|[low, high]| draw.between(low.into(), high.into()) as f32));
        for which in order {
            let Some(factor) = factors[which] else { continue };
            planner.change(match which {
                0 => PixelOp::Brightness(factor),
                1 => PixelOp::Contrast(factor),
                2 => PixelOp::Saturation(factor),
                _ => PixelOp::Hue(factor),
            });
        }
        Ok(())
    }
}
