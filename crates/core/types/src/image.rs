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

/// The mean and the standard deviation of each channel, in the order of the channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Normalise")]
#[serde(deny_unknown_fields)]
pub struct Normalise<Values = [f32; 3]> {
    /// The mean of each channel, in 0 to 1: of red, green and blue, unless there is another `color`. Means of values
    /// from 0 to 255, such as 123.675, are refused.
    #[schemars(length(min = 1, max = 4))]
    pub mean: Values,
    /// The standard deviation of each channel, in 0 to 1; not zero.
    #[schemars(length(min = 1, max = 4))]
    pub std: Values,
}

impl<Values: AsRef<[f32]>> Normalise<Values> {
    /// Returns what is wrong with the numbers, in words that follow their name. `is_scaled` is true if the values to
    /// normalise are from 0 to 1, and false if they are floats as they are stored.
    #[must_use]
    pub fn problem(&self, is_scaled: bool) -> Option<String> {
        let (means, stds) = (self.mean.as_ref(), self.std.as_ref());
        if stds.iter().any(|std| !std.is_normal()) || means.iter().any(|mean| !mean.is_finite()) {
            return Some("a std of zero or a value that is not a number".to_owned());
        }
        let mean = means.iter().find(|mean| is_scaled && !(-1.0..=1.0).contains(*mean))?;
        Some(format!(
            "the mean {mean}, and values are from 0 to 1 when they are normalised: divide means and stds of 0 to 255 by 255"
        ))
    }
}

impl From<Normalise> for Normalise<Vec<f32>> {
    fn from(Normalise { mean, std }: Normalise) -> Self {
        Self { mean: mean.to_vec(), std: std.to_vec() }
    }
}
