//! The operation `gaussian_blur`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;
use spdl_types::elementary::exp;

use super::{NumberOrRange, Operation, OperationProblem, PicturePlanner};
use crate::KeyProblem;

/// Blurs with a kernel of `kernel_size`, which reflects the picture at its border, and a random standard deviation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// The width and height of the kernel in pixels, odd.
    #[schemars(range(min = 1, max = 255))]
    pub kernel_size: u32,
    /// The standard deviation in pixels, or its range, above 0 and at most 1000.
    #[serde(default = "sigma")]
    pub sigma: NumberOrRange,
}

/// The largest kernel.
const MAX_KERNEL: u32 = 255;
/// The largest standard deviation: with it, the largest kernel weights all of its pixels almost equally.
const MAX_SIGMA: f32 = 1000.0;

const fn sigma() -> NumberOrRange {
    NumberOrRange::Range([0.1, 2.0])
}

impl GaussianBlur {
    /// Returns the range of the standard deviation.
    #[must_use]
    pub const fn sigmas(&self) -> [f32; 2] {
        match self.sigma {
            NumberOrRange::Number(sigma) => [sigma, sigma],
            NumberOrRange::Range(range) => range,
        }
    }
}

impl Operation for GaussianBlur {
    const NAME: &'static str = "gaussian_blur";
    const KEYS: &'static [&'static str] = &["kernel_size", "sigma"];
    const EXAMPLE: &'static str = "{ kernel_size = 23, sigma = [0.1, 2.0] }";

    fn check(&self) -> Result<(), KeyProblem> {
        if self.kernel_size.is_multiple_of(2) || self.kernel_size > MAX_KERNEL {
            return Err(("kernel_size", format!("is {}, not an odd number in 1..={MAX_KERNEL}", self.kernel_size)));
        }
        let [low, high] = self.sigmas();
        if !(low > 0.0 && low <= high && high <= MAX_SIGMA) {
            let problem = format!("is {}; give a number, or [low, high], above 0 and at most {MAX_SIGMA}", self.sigma);
            return Err(("sigma", problem));
        }
        Ok(())
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
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
