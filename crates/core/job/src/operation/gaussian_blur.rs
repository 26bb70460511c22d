//! The operation `gaussian_blur`.

use serde::{Deserialize, Serialize};

use super::{NumberOrRange, Operation};
use crate::KeyProblem;

/// Blurs with a kernel of `kernel_size`, which reflects the picture at its border, and a random standard deviation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
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
}
