//! The operation `random_resized_crop`: Szegedy et al., "Going deeper with convolutions" (CVPR 2015), sampled as
//! torchvision's `RandomResizedCrop` does.

use serde::{Deserialize, Serialize};
use spdl_canvas::Rectangle;
use spdl_types::{
    Draw,
    elementary::{exp, ln},
};

use super::{
    Interpolation, Operation, OperationProblem, PicturePlanner,
    kind::check_size,
    sampling::{antialias, is_default, is_default_antialias},
};
use crate::{KeyProblem, Size};

/// Crops a random rectangle and resizes it to `size` (Szegedy et al., CVPR 2015; torchvision's sampling).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Size of the result.
    pub size: Size,
    /// The range of the crop's area, as a share of the picture's.
    #[serde(default = "scale")]
    pub scale: [f32; 2],
    /// The range of the crop's aspect ratio, width / height.
    #[serde(default = "ratio")]
    pub ratio: [f32; 2],
    /// How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop,
    /// which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`,
    /// weights only the four pixels around, as OpenCV does. Default: `true`.
    #[serde(default = "antialias", skip_serializing_if = "is_default_antialias")]
    pub antialias: bool,
    /// Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes
    /// longer: several times where pictures are much larger than the result. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_decode: bool,
}

const fn scale() -> [f32; 2] {
    [0.08, 1.0]
}

const fn ratio() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl Operation for RandomResizedCrop {
    const NAME: &'static str = "random_resized_crop";
    const KEYS: &'static [&'static str] = &["size", "scale", "ratio", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { size, scale, ratio, interpolation, antialias, full_decode: _ } = self;
        let ordered = |[low, high]: [f32; 2]| low > 0.0 && low <= high && high.is_finite();
        if !ordered(*scale) || scale[1] > 1.0 {
            return Err(("scale", format!("is {scale:?}; give [low, high] with 0 < low <= high <= 1")));
        }
        if !ordered(*ratio) {
            return Err(("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high")));
        }
        interpolation.check(*antialias)?;
        check_size(*size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let crop = random_resized_crop(planner.size(), self.scale, self.ratio, planner.draw);
        planner.canvas().crop(crop);
        planner.resize(self.size.height_width(), self.interpolation, self.antialias, self.full_decode);
        Ok(())
    }
}

/// Number of tries before the middle of the picture is taken.
const ATTEMPTS: u32 = 10;

/// Draws a rectangle inside `width` x `height`. Its area is uniform in `scale` times the picture's area, the logarithm
/// of its aspect ratio (width / height) is uniform in the logarithms of `ratio`, and its position is uniform.
fn random_resized_crop([width, height]: [u32; 2], scale: [f32; 2], ratio: [f32; 2], draw: &mut Draw) -> Rectangle {
    let area = f64::from(width) * f64::from(height);
    let [ratio_low, ratio_high] = ratio.map(f64::from);
    let (log_low, log_high) = (ln(ratio_low), ln(ratio_high));
    for _ in 0..ATTEMPTS {
        let wanted = area * draw.between(f64::from(scale[0]), f64::from(scale[1]));
        let aspect = exp(draw.between(log_low, log_high));
        let crop_width = (wanted * aspect).sqrt().round_ties_even();
        let crop_height = (wanted / aspect).sqrt().round_ties_even();
        let fits = |side: f64, limit: u32| (1.0..=f64::from(limit)).contains(&side);
        if fits(crop_width, width) && fits(crop_height, height) {
            let (crop_width, crop_height) = (crop_width as u32, crop_height as u32);
            let top = draw.below(height - crop_height + 1);
            let left = draw.below(width - crop_width + 1);
            return Rectangle { left, top, width: crop_width, height: crop_height };
        }
    }
    middle([width, height], ratio_low, ratio_high)
}

/// Returns the largest rectangle in the middle with an allowed aspect ratio.
fn middle([width, height]: [u32; 2], ratio_low: f64, ratio_high: f64) -> Rectangle {
    let aspect = f64::from(width) / f64::from(height);
    let (crop_width, crop_height) = if aspect < ratio_low {
        (width, side(f64::from(width) / ratio_low, height))
    } else if aspect > ratio_high {
        (side(f64::from(height) * ratio_high, width), height)
    } else {
        (width, height)
    };
    Rectangle {
        left: (width - crop_width) / 2,
        top: (height - crop_height) / 2,
        width: crop_width,
        height: crop_height,
    }
}

fn side(pixels: f64, limit: u32) -> u32 {
    pixels.round_ties_even().clamp(1.0, f64::from(limit)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCALE: [f32; 2] = [0.08, 1.0];
    const RATIO: [f32; 2] = [0.75, 4.0 / 3.0];

    proptest! {
        #[test]
        fn a_rectangle_is_never_empty_and_never_outside(
            width in 1u32..5000, height in 1u32..5000, id: u64,
            scale_low in 0.0001f32..1.0, scale_span in 0.0f32..1.0,
            ratio_low in 0.01f32..10.0, ratio_span in 1.0f32..10.0,
        ) {
            let scale = [scale_low, (scale_low + scale_span).min(1.0)];
            let ratio = [ratio_low, ratio_low * ratio_span];
            let crop = random_resized_crop([width, height], scale, ratio, &mut Draw::new(0, 0, id));
            prop_assert!(crop.width >= 1 && crop.height >= 1);
            prop_assert!(crop.left + crop.width <= width && crop.top + crop.height <= height);
        }
    }

    #[test]
    fn area_and_ratio_stay_in_their_ranges() {
        let (mut areas, mut ratios) = (Vec::new(), Vec::new());
        for id in 0..4000 {
            let crop = random_resized_crop([1000, 1000], SCALE, RATIO, &mut Draw::new(5, 0, id));
            areas.push(f64::from(crop.width * crop.height) / 1e6);
            ratios.push(f64::from(crop.width) / f64::from(crop.height));
        }
        assert!(areas.iter().all(|area| (0.078..=1.0).contains(area)));
        assert!(ratios.iter().all(|ratio| (0.745..=1.342).contains(ratio)));
        // Tall and wide crops are equally likely, as the logarithm of the ratio is uniform.
        let tall = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        assert!((1850..2150).contains(&tall), "{tall} of 4000");
        assert!(areas.iter().any(|area| *area < 0.1) && areas.iter().any(|area| *area > 0.9));
    }

    #[test]
    fn places_reach_every_corner() {
        let crops: Vec<Rectangle> =
            (0..2000).map(|id| random_resized_crop([40, 40], [0.2, 0.5], RATIO, &mut Draw::new(5, 0, id))).collect();
        assert!(crops.iter().any(|crop| crop.left == 0) && crops.iter().any(|crop| crop.top == 0));
        assert!(crops.iter().any(|crop| crop.left + crop.width == 40));
        assert!(crops.iter().any(|crop| crop.top + crop.height == 40));
    }

    #[test]
    fn a_picture_too_long_for_any_ratio_gives_its_middle() {
        let mut draw = Draw::new(1, 1, 1);
        let crop = random_resized_crop([2000, 3], [1.0, 1.0], RATIO, &mut draw);
        assert_eq!(crop, Rectangle { left: 998, top: 0, width: 4, height: 3 });
        let crop = random_resized_crop([1, 900], [1.0, 1.0], RATIO, &mut draw);
        assert_eq!(crop, Rectangle { left: 0, top: 449, width: 1, height: 1 });
    }
}
