//! One column of a batch: where it comes from, how it is decoded, and its type and shape.

use serde::{Deserialize, Serialize};

use super::{
    size::Size,
    transform::{Returns, Transform},
};

/// Type of a column's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    U8,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl DType {
    /// Returns the name of the type in a job file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Returns the size of one element in bytes, which is also its alignment.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

/// Order of an image's dimensions in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageLayout {
    /// Height, width, channel.
    #[default]
    Nhwc,
    /// Channel, height, width.
    Nchw,
}

/// Per-channel normalisation: `(value / 255 - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Normalise {
    /// Mean of red, green and blue, in 0..1.
    pub mean: [f32; 3],
    /// Standard deviation of red, green and blue, in 0..1; not zero.
    pub std: [f32; 3],
}

/// One step from a decoded picture to the pixels of the batch. Random ones draw from a generator keyed by
/// (seed, epoch, sample id).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ImageOp {
    /// Crops to the sample's bounding box, as the record's VOC annotation gives it.
    CropBox {
        /// Field that holds the annotation.
        #[serde(default = "defaults::annotation")]
        field: String,
        /// Widens the box on each side by this fraction of its size.
        #[serde(default)]
        margin: f32,
    },
    /// Crops a random rectangle and resizes it (Szegedy et al., CVPR 2015; torchvision's sampling).
    RandomResizedCrop {
        /// Size of the result.
        size: Size,
        /// Range of the crop's area as a fraction of the picture's.
        #[serde(default = "defaults::scale")]
        scale: [f32; 2],
        /// Range of the crop's aspect ratio (width / height).
        #[serde(default = "defaults::ratio")]
        ratio: [f32; 2],
    },
    /// Resizes: one number gives the shorter side and keeps the aspect ratio, two give height and width.
    Resize {
        /// Size of the result.
        size: Size,
    },
    /// Cuts the middle out; a picture that is smaller is padded with zeros.
    CenterCrop {
        /// Size of the result.
        size: Size,
    },
    /// Mirrors left to right.
    RandomFlip {
        /// Probability.
        #[serde(default = "defaults::flip")]
        p: f32,
    },
}

mod defaults {
    pub(super) fn annotation() -> String {
        "xml".to_owned()
    }
    pub(super) const fn scale() -> [f32; 2] {
        [0.08, 1.0]
    }
    pub(super) const fn ratio() -> [f32; 2] {
        [3.0 / 4.0, 4.0 / 3.0]
    }
    pub(super) const fn flip() -> f32 {
        0.5
    }
}

impl ImageOp {
    /// Returns the height and width after this step, given those before it (`None` if they differ from picture to
    /// picture).
    #[must_use]
    pub const fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        match self {
            Self::CropBox { .. } => None,
            Self::RandomResizedCrop { size, .. } | Self::CenterCrop { size } => Some(size.height_width()),
            Self::Resize { size: Size::HeightWidth(size) } => Some(*size),
            Self::Resize { size: Size::Square(_) } => None,
            Self::RandomFlip { .. } => before,
        }
    }
}

/// How a picture becomes a fixed-size array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageColumn {
    /// Steps, in order; the last size that they give is the column's.
    pub ops: Vec<ImageOp>,
    /// Order of dimensions.
    pub layout: ImageLayout,
    /// Normalisation for float types; without it a float column holds `value / 255`.
    pub normalise: Option<Normalise>,
    /// Height and width of the result.
    pub size: [u32; 2],
}

/// How a column is made from a record's field. `T` is [`Transform`], or [`Never`] for the input of a transform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind<T = Transform> {
    /// A picture, as RGB.
    Image(ImageColumn),
    /// A decimal integer in text.
    Int,
    /// A number in a JSON document.
    Json {
        /// Keys from the root to the number; places in a list are written as numbers.
        path: Vec<String>,
    },
    /// The field's bytes as they are: a ragged column.
    Bytes {
        /// The most bytes of one sample; a longer one is a bad sample.
        max_bytes: u32,
    },
    /// The class number of the sample's bounding box, by the dataset's class list.
    BoxClass,
    /// Any of the others, followed by a function in Python.
    Transformed(T),
}

/// A type without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

/// How a value is decoded, without a function in Python.
pub type Decoded = ColumnKind<Never>;

impl Decoded {
    /// Returns the shape of one sample; `None` if it is ragged.
    #[must_use]
    pub fn sample_shape(&self) -> Option<Vec<u32>> {
        match self {
            Self::Image(image) => {
                let [height, width] = image.size;
                Some(match image.layout {
                    ImageLayout::Nhwc => vec![height, width, 3],
                    ImageLayout::Nchw => vec![3, height, width],
                })
            }
            Self::Int | Self::Json { .. } | Self::BoxClass => Some(Vec::new()),
            Self::Bytes { .. } => None,
            Self::Transformed(never) => never.nothing(),
        }
    }
}

/// A valid column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Name in the batch.
    pub name: String,
    /// Fields of the record that it can come from; the first that exists is used.
    pub from: Vec<String>,
    /// How it is decoded.
    pub kind: ColumnKind,
    /// Type of its elements.
    pub dtype: DType,
}

impl Column {
    /// Returns the shape of one sample: `[H, W, 3]` or `[3, H, W]` for a picture, empty for a scalar, the declared
    /// shape for a function's result, and `None` if it is ragged.
    #[must_use]
    pub fn sample_shape(&self) -> Option<Vec<u32>> {
        match &self.kind {
            ColumnKind::Transformed(Transform { returns: Returns::Fixed { shape }, .. }) => Some(shape.clone()),
            ColumnKind::Transformed(Transform { returns: Returns::Ragged { .. }, .. }) => None,
            kind => kind.decoded().sample_shape(),
        }
    }

    /// Returns the upper limit of the bytes of one sample, if the column is ragged.
    #[must_use]
    pub const fn max_bytes(&self) -> Option<u32> {
        match &self.kind {
            ColumnKind::Bytes { max_bytes }
            | ColumnKind::Transformed(Transform { returns: Returns::Ragged { max_bytes }, .. }) => Some(*max_bytes),
            _ => None,
        }
    }

    /// Returns the function that makes the column's values, if there is one.
    #[must_use]
    pub const fn transform(&self) -> Option<&Transform> {
        match &self.kind {
            ColumnKind::Transformed(transform) => Some(transform),
            _ => None,
        }
    }
}
