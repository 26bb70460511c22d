//! The operation `ten_crop`.

use serde::{Deserialize, Serialize};

use super::{Operation, kind::check_size};
use crate::{KeyProblem, Size};

/// Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It
/// has to be the last operation. A picture that is smaller is a bad sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenCrop {
    /// Size of each picture.
    pub size: Size,
    /// Whether the mirrored picture has top and bottom exchanged, rather than left and right.
    #[serde(default)]
    pub vertical_flip: bool,
}

impl Operation for TenCrop {
    const NAME: &'static str = "ten_crop";
    const KEYS: &'static [&'static str] = &["size", "vertical_flip"];
    const EXAMPLE: &'static str = "{ size = 224 }";
    const PICTURES: u32 = 10;

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
