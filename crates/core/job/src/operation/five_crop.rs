//! The operation `five_crop`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::check_size};
use crate::{KeyProblem, Size};

/// Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for
/// evaluation. It has to be the last operation. A picture that is smaller is a bad sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FiveCrop {
    /// Size of each picture.
    pub size: Size,
}

impl Operation for FiveCrop {
    const NAME: &'static str = "five_crop";
    const KEYS: &'static [&'static str] = &["size"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const PICTURES: u32 = 5;

    fn only_moves(&self) -> bool {
        true
    }

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        Some(self.size.height_width())
    }

    fn check(&self) -> Result<(), KeyProblem> {
        check_size(self.size)
    }
}
