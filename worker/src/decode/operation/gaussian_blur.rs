//! The plan of `gaussian_blur`.

use spdl_types::elementary::exp;
use spdl_job::GaussianBlur;
use spdl_operations::PixelOp;

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for GaussianBlur {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let [low, high] = self.sigmas();
        let sigma = planner.draw.between(low.into(), high.into());
        planner.change(PixelOp::Blur(weights(self.kernel_size, sigma)));
        Ok(())
    }
}

/// Returns the weights of a kernel from its middle on; over both halves, they add up to 1.
fn weights(kernel_size: u32, sigma: f64) -> Vec<f32> {
    // Below this, a weight is 0 as a float.
    const LEAST: f64 = -200.0;
    let height = |distance: u32| exp((-0.5 * (f64::from(distance) / sigma).powi(2)).max(LEAST));
    let heights: Vec<f64> = (0..=kernel_size / 2).map(height).collect();
    let sum = 2.0 * heights[1..].iter().sum::<f64>() + heights[0];
    heights.into_iter().map(|height| (height / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_to_one() {
        for (kernel_size, sigma) in [(1, 0.1), (3, 1e-30), (5, 0.3), (255, 1000.0), (23, 2.0)] {
            let weights = weights(kernel_size, sigma);
            assert_eq!(weights.len() as u32, kernel_size / 2 + 1);
            let sum = weights[0] + 2.0 * weights[1..].iter().sum::<f32>();
            assert!((sum - 1.0).abs() < 1e-5, "{kernel_size} {sigma}: {sum}");
            assert!(weights.is_sorted_by(|a, b| a >= b));
        }
    }
}
