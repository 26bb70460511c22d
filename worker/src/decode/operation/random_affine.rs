//! The plan of `random_affine`.

use spdl_job::RandomAffine;

use super::{
    PlanOperation, Planner,
    affine::{Affine, warp},
};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for RandomAffine {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let draw = &mut planner.draw;
        let mut between = |[low, high]: [f32; 2]| draw.between(low.into(), high.into());
        let angle = between(self.degrees.around(0.0, f32::NEG_INFINITY));
        let mut affine = Affine { angle, ..Affine::default() };
        let size = planner.size();
        let draw = &mut planner.draw;
        if let Some(shares) = self.translate {
            for ((move_by, share), side) in affine.translate.iter_mut().zip(shares).zip(size) {
                let farthest = f64::from(share) * f64::from(side);
                *move_by = draw.between(-farthest, farthest).round_ties_even();
            }
        }
        if let Some([low, high]) = self.scale {
            affine.scale = draw.between(low.into(), high.into());
        }
        if let Some(shear) = self.shear {
            let [low, high] = shear.around(0.0, f32::NEG_INFINITY);
            affine.shear[0] = draw.between(low.into(), high.into());
        }
        planner.change(warp(affine.inverse(), size, size, self.interpolation, Some(self.fill.0)));
        Ok(())
    }
}
