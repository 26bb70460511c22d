//! The kind `image_size`: the size of an `image` column's picture before its operations.

use serde::{Deserialize, Serialize};

use super::{
    ColumnKind, Kind, KindKeys,
    kind::{followed_image, image_name},
};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

/// The keys of an `image_size` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImageSizeKeys {
    /// For image_size: the name of the `image` column that it is of. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

impl KindKeys for ImageSizeKeys {
    const NAMES: &'static [&'static str] = &["follows"];
}

/// The height and width of the upright picture of an `image` column, before its operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSizeColumn {
    /// Name of the `image` column.
    pub follows: String,
}

impl Kind for ImageSizeColumn {
    const NAME: &'static str = "image_size";
    const EXAMPLE: &'static str = "follows = \"image\"";
    type Keys = ImageSizeKeys;

    fn read(keys: &ImageSizeKeys) -> Result<Self, KeyProblem> {
        Ok(Self { follows: image_name(keys.follows.as_ref())? })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        followed_image(&self.follows, followed).map(drop)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![2])
    }
}
