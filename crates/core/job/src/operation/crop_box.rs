//! The operation `crop_box`.

use serde::{Deserialize, Serialize};

use super::{Operation, OperationProblem, PicturePlanner};
use crate::KeyProblem;

/// Crops to the sample's bounding box, as its Pascal VOC annotation gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CropBox {
    /// The field that holds the annotation.
    #[serde(default = "annotation")]
    pub field: String,
    /// Widens the box on each side by this share of its size, 0 to 10.
    #[serde(default)]
    pub margin: f32,
}

fn annotation() -> String {
    "xml".to_owned()
}

impl Operation for CropBox {
    const NAME: &'static str = "crop_box";
    const KEYS: &'static [&'static str] = &["field", "margin"];
    const EXAMPLE: &'static str = "{ field = \"xml\", margin = 0.1 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        None
    }

    fn field(&self) -> Option<&str> {
        Some(&self.field)
    }

    fn check(&self) -> Result<(), KeyProblem> {
        if (0.0..=10.0).contains(&self.margin) {
            return Ok(());
        }
        Err((Self::NAME, format!("has margin = {}, not in 0..10", self.margin)))
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        planner.crop_box(&self.field, self.margin)
    }
}
