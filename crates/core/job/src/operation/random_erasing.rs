//! The operation `random_erasing`.

use serde::{Deserialize, Serialize};
use spdl_canvas::{PixelOp, Rectangle};
use spdl_types::{
    Draw,
    elementary::{exp, ln},
};

use super::{
    Fill, Operation, OperationProblem, PicturePlanner,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Paints a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
    /// The range of the rectangle's area, as a share of the picture's, 0 to 1.
    #[serde(default = "scale")]
    pub scale: [f32; 2],
    /// The range of the rectangle's aspect ratio, height / width.
    #[serde(default = "ratio")]
    pub ratio: [f32; 2],
    /// Colour of the rectangle.
    #[serde(default)]
    pub value: Fill,
}

const fn scale() -> [f32; 2] {
    [0.02, 0.33]
}

const fn ratio() -> [f32; 2] {
    [0.3, 3.3]
}

/// Number of tries before nothing is erased.
const ATTEMPTS: u32 = 10;

impl Operation for RandomErasing {
    const NAME: &'static str = "random_erasing";
    const KEYS: &'static [&'static str] = &["p", "scale", "ratio", "value"];
    const EXAMPLE: &'static str = "{ p = 0.25 }";

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { p, scale, ratio, .. } = self;
        if !(0.0 <= scale[0] && scale[0] <= scale[1] && scale[1] <= 1.0) {
            return Err(("scale", format!("is {scale:?}; give [low, high] with 0 <= low <= high <= 1")));
        }
        if !(1e-6 <= ratio[0] && ratio[0] <= ratio[1] && ratio[1] <= 1e6) {
            return Err(("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high")));
        }
        check_probability(Self::NAME, *p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
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
