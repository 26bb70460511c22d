//! The channels of pictures, and the bits of their values.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::DType;

/// The channels of an image, in the order in which they lie in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageColor {
    /// Red, green, blue. A grey picture has them equal.
    #[default]
    Rgb,
    /// Blue, green, red, which models trained with OpenCV expect.
    Bgr,
    /// Red, green, blue and opacity, of which 0 is transparent. A picture without opacity is opaque. Where a picture is
    /// resized, colours weigh as much as they are opaque, as in Pillow, so that what cannot be seen does not show at
    /// edges. What a crop, `pad` or `letterbox` adds is transparent, unless it has a `fill` other than black. Only
    /// operations that move pixels work on these channels.
    Rgba,
    /// One channel: the luma of ITU-R BT.601, as Pillow's `convert("L")` gives it, within one level. A grey picture
    /// stays as it is. Operations on values, such as `random_equalize`, see the grey picture; what concerns colours
    /// alone, such as `saturation`, changes nothing. A colour as `fill` becomes its luma. `grey` is the same.
    #[serde(alias = "grey")]
    Gray,
    /// The channel of `gray`, and opacity as for `rgba`. `grey_alpha` is the same.
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

/// The description of depths in a job file's schema.
const DEPTHS: &str = "The bits of a value, from the file to the batch.\n\n\
    - 8: values of 8 bits. 16 bits are rounded to 8, and floats of 0 to 1 are multiplied by 255. A float column holds them divided by 255.\n\
    - 16: values of 16 bits as they are stored. Values of 8 bits are multiplied by 257, so that white is 65535, and floats of 0 to 1 by 65535. A float column holds them divided by 65535.\n\
    - 32: floats as they are stored, such as those of a TIFF, for float columns. Whole numbers of 8 or 16 bits become 0 to 1, and all pictures are resized as floats.\n\n\
    Without the key, a float column holds what it does with 32, but only pictures of more than 8 bits are resized as floats; with an operation that works on 8 bits, it is as with 8. Floats beyond 0 to 1, such as distances in metres, do not fit 8 and 16 bits, nor floats beyond 65504 `f16`: such pictures are bad samples that say so. NaN becomes 0 there.\n\n\
    Values are those that tifffile, NumPy and torchvision's `decode_image(mode=\"UNCHANGED\")` read, and resizing does not round them before the batch. Pictures of more than 8 bits are decoded as a whole, to their stored samples, and resized as floats: several times slower than 8 bits of RGB, and with 4 bytes more for each value of the picture's rows at the width of the result. Only a baseline or progressive JPEG is still decoded no further than the crop needs. A `[mix]` takes such columns as floats, not as `u16`.";

impl JsonSchema for ImageDepth {
    fn schema_name() -> Cow<'static, str> {
        "ImageDepth".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": DEPTHS, "enum": [8, 16, 32] })
    }
}
