//! The order of the values of a picture in the batch, and their normalisation.

use serde::{Deserialize, Serialize};

/// Order of an image's dimensions in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageLayout {
    /// Height, width, channel.
    #[default]
    Nhwc,
    /// Channel, height, width.
    Nchw,
}

/// Per-channel normalisation: `(value / 255 - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Normalise")]
#[serde(deny_unknown_fields)]
pub struct Normalise<Values = [f32; 3]> {
    /// Mean of each channel, in 0..1.
    #[schemars(length(min = 1, max = 4))]
    pub mean: Values,
    /// Standard deviation of each channel, in 0..1; not zero.
    #[schemars(length(min = 1, max = 4))]
    pub std: Values,
}

impl From<Normalise> for Normalise<Vec<f32>> {
    fn from(Normalise { mean, std }: Normalise) -> Self {
        Self { mean: mean.to_vec(), std: std.to_vec() }
    }
}
