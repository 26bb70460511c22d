//! The operation `letterbox`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Interpolation, Operation, OperationProblem, PaddingMode, PicturePlanner,
    kind::check_size,
    sampling::{antialias, is_default, is_default_antialias},
};
use crate::{KeyProblem, Size};

/// Resizes the picture so that it fits into `size`, and pads what is left, half on each side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Letterbox {
    /// Size of the result.
    pub size: Size,
    /// Colour of what is added.
    #[serde(default)]
    pub fill: Fill,
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

impl Operation for Letterbox {
    const NAME: &'static str = "letterbox";
    const KEYS: &'static [&'static str] = &["size", "fill", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ size = 640 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        self.interpolation.check(self.antialias)?;
        check_size(self.size)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
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
