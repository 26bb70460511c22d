//! How operations make values between pixels, as users write it.

use serde::{Deserialize, Serialize};

/// How a value between pixels is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WarpInterpolation {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// The four pixels around.
    Bilinear,
}

impl WarpInterpolation {
    /// The default of `random_perspective`.
    pub(super) const fn bilinear() -> Self {
        Self::Bilinear
    }
}
