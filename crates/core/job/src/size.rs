//! The size of a picture, as users write it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Unexpected, Visitor},
};

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
        deserializer.deserialize_any(SizeText)
    }
}

struct SizeText;

impl<'de> Visitor<'de> for SizeText {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of pixels or [height, width]")
    }

    fn visit_u64<E: Error>(self, side: u64) -> Result<Size, E> {
        let side = u32::try_from(side).map_err(|_| E::invalid_value(Unexpected::Unsigned(side), &self))?;
        Ok(Size::Square(side))
    }

    fn visit_i64<E: Error>(self, side: i64) -> Result<Size, E> {
        let side = u32::try_from(side).map_err(|_| E::invalid_value(Unexpected::Signed(side), &self))?;
        Ok(Size::Square(side))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Size, A::Error> {
        let sides = [list.next_element()?, list.next_element()?];
        let [Some(height), Some(width)] = sides else {
            let entries = sides.iter().flatten().count();
            return Err(A::Error::invalid_length(entries, &self));
        };
        match list.next_element::<u32>()? {
            None => Ok(Size::HeightWidth([height, width])),
            Some(_) => Err(A::Error::invalid_length(3, &self)),
        }
    }
}
