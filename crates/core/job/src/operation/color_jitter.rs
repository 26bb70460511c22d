//! The operation `color_jitter`.

use serde::{Deserialize, Serialize};
use spdl_canvas::PixelOp;

use super::{NumberOrRange, Operation, OperationProblem, PicturePlanner};
use crate::KeyProblem;

/// Changes brightness, contrast, saturation and hue by random factors, in random order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    /// The range of the factor of the brightness, 0 to 1000: 0 gives black, and 1 changes nothing. A number `n` is `[1
    /// - n, 1 + n]`, but not below 0. Default: not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brightness: Option<NumberOrRange>,
    /// The range of the factor of the contrast, 0 to 1000: 0 gives the mean grey, and 1 changes nothing. A number `n`
    /// is `[1 - n, 1 + n]`, but not below 0. Default: not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contrast: Option<NumberOrRange>,
    /// The range of the factor of the saturation, 0 to 1000: 0 gives the grey picture, and 1 changes nothing. A number
    /// `n` is `[1 - n, 1 + n]`, but not below 0. Default: not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<NumberOrRange>,
    /// The range of the turn of the hue, as a part of the circle, -0.5 to 0.5. A number `n` is `[-n, n]`. Default: not
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hue: Option<NumberOrRange>,
}

/// The largest factor.
const MAX_FACTOR: f32 = 1000.0;

impl ColorJitter {
    /// Returns the ranges of the factors of brightness, contrast and saturation, and of the turn of the hue; `None` for
    /// a property that is not changed.
    #[must_use]
    pub fn ranges(&self) -> [Option<[f32; 2]>; 4] {
        let of = |value: Option<NumberOrRange>, center: f32, floor: f32| {
            value.map(|value| value.around(center, floor)).filter(|range| *range != [center, center])
        };
        let Self { brightness, contrast, saturation, hue } = *self;
        [of(brightness, 1.0, 0.0), of(contrast, 1.0, 0.0), of(saturation, 1.0, 0.0), of(hue, 0.0, -0.5)]
    }
}

impl Operation for ColorJitter {
    const NAME: &'static str = "color_jitter";
    const KEYS: &'static [&'static str] = &["brightness", "contrast", "saturation", "hue"];
    const EXAMPLE: &'static str = "{ brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 }";

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { brightness, contrast, saturation, hue } = *self;
        for (key, value) in [("brightness", brightness), ("contrast", contrast), ("saturation", saturation)] {
            if let Some(value) = value.filter(|value| !value.is_within(1.0, [0.0, MAX_FACTOR])) {
                let problem = format!("is {value}; give a number, or [low, high] in 0..{MAX_FACTOR}");
                return Err((key, problem));
            }
        }
        if let Some(hue) = hue {
            let [low, high] = hue.around(0.0, f32::NEG_INFINITY);
            if !(-0.5 <= low && low <= high && high <= 0.5) {
                return Err(("hue", format!("is {hue}; give a number in 0..0.5, or [low, high] in -0.5..0.5")));
            }
        }
        Ok(())
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
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
