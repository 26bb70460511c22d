//! The channels of pictures, and the bits of their values.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::DType;

/// The channels of an image, in the order in which they lie in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageColor {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red, as in OpenCV.
    Bgr,
    /// Red, green, blue and opacity.
    Rgba,
    /// One channel: the luma of ITU-R BT.601, as Pillow's mode `L`.
    #[serde(alias = "grey")]
    Gray,
    /// That channel, and opacity.
    #[serde(alias = "grey_alpha")]
    GrayAlpha,
}

/// The bits of a value of an image, from the file to the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum ImageDepth {
    /// 8 bits: what is stored with more is rounded.
    #[default]
    Bits8,
    /// 16 bits: what is stored with 8 is multiplied by 257.
    Bits16,
    /// Floats, as they are stored; whole numbers become 0 to 1.
    Bits32,
}

impl ImageColor {
    /// Returns the number of channels.
    #[must_use]
    pub const fn channels(self) -> u32 {
        match self {
            Self::Gray => 1,
            Self::GrayAlpha => 2,
            Self::Rgb | Self::Bgr => 3,
            Self::Rgba => 4,
        }
    }

    /// Returns whether the last channel is opacity.
    #[must_use]
    pub const fn has_alpha(self) -> bool {
        matches!(self, Self::Rgba | Self::GrayAlpha)
    }

    /// Returns the name in a job file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rgb => "rgb",
            Self::Bgr => "bgr",
            Self::Rgba => "rgba",
            Self::Gray => "gray",
            Self::GrayAlpha => "gray_alpha",
        }
    }
}

impl ImageDepth {
    /// Returns the depth of a column of this type that names none.
    #[must_use]
    pub const fn default_of(dtype: DType) -> Self {
        if matches!(dtype, DType::U16) { Self::Bits16 } else { Self::Bits8 }
    }

    /// Returns whether a column of this type can have the depth.
    #[must_use]
    pub const fn fits(self, dtype: DType) -> bool {
        match dtype {
            DType::U8 => matches!(self, Self::Bits8),
            DType::U16 => matches!(self, Self::Bits16),
            _ => true,
        }
    }
}

impl From<ImageDepth> for u8 {
    fn from(depth: ImageDepth) -> Self {
        match depth {
            ImageDepth::Bits8 => 8,
            ImageDepth::Bits16 => 16,
            ImageDepth::Bits32 => 32,
        }
    }
}

impl TryFrom<u8> for ImageDepth {
    type Error = String;

    fn try_from(bits: u8) -> Result<Self, String> {
        match bits {
            8 => Ok(Self::Bits8),
            16 => Ok(Self::Bits16),
            32 => Ok(Self::Bits32),
            _ => Err(format!("{bits} is no depth; there are 8, 16 and 32")),
        }
    }
}

impl JsonSchema for ImageDepth {
    fn schema_name() -> Cow<'static, str> {
        "ImageDepth".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "The bits of a value: 8, 16, or 32 for floats.", "enum": [8, 16, 32] })
    }
}
