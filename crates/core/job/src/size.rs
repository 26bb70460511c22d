//! The size of a picture, as users write it.

use serde::{Deserialize, Deserializer, Serialize};

use crate::numbers::{self, WrittenNumbers};

/// `224` for a square, or `[height, width]`, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Size {
    Square(u32),
    HeightWidth([u32; 2]),
}

impl Size {
    /// Returns height and width in pixels.
    #[must_use]
    pub const fn height_width(self) -> [u32; 2] {
        match self {
            Self::Square(side) => [side, side],
            Self::HeightWidth(size) => size,
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        numbers::read(deserializer, "a number of pixels or [height, width]", |numbers| match numbers {
            WrittenNumbers::One(side) => Some(Self::Square(side)),
            WrittenNumbers::List(sides) => sides.try_into().ok().map(Self::HeightWidth),
        })
    }
}
