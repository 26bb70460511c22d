//! The size of a picture, as people write it and as the wire carries it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `224` for a square, or `[height, width]`, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Size {
    Square(u32),
    HeightWidth([u32; 2]),
}

impl Size {
    /// Height and width in pixels.
    #[must_use]
    pub const fn height_width(self) -> [u32; 2] {
        match self {
            Self::Square(side) => [side, side],
            Self::HeightWidth(size) => size,
        }
    }
}

/// As in a job file: a number or a list. Needs a format that describes itself.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Square(u32),
    HeightWidth([u32; 2]),
}

/// As in a message, whose format does not say what comes next.
#[derive(Serialize, Deserialize)]
enum Packed {
    Square(u32),
    HeightWidth([u32; 2]),
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (serializer.is_human_readable(), *self) {
            (true, Self::Square(side)) => Written::Square(side).serialize(serializer),
            (true, Self::HeightWidth(size)) => Written::HeightWidth(size).serialize(serializer),
            (false, Self::Square(side)) => Packed::Square(side).serialize(serializer),
            (false, Self::HeightWidth(size)) => Packed::HeightWidth(size).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(if deserializer.is_human_readable() {
            match Written::deserialize(deserializer)? {
                Written::Square(side) => Self::Square(side),
                Written::HeightWidth(size) => Self::HeightWidth(size),
            }
        } else {
            match Packed::deserialize(deserializer)? {
                Packed::Square(side) => Self::Square(side),
                Packed::HeightWidth(size) => Self::HeightWidth(size),
            }
        })
    }
}
