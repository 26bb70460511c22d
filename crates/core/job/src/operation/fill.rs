//! A colour that fills what a picture lacks, as users write it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::numbers::{self, WrittenNumbers};

/// A value for all channels, or `[red, green, blue]`; each 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill(pub [u8; 3]);

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [r, g, b] if r == g && g == b => r.serialize(serializer),
            color => color.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        numbers::read(deserializer, "a whole number from 0 to 255, or [red, green, blue]", |numbers| match numbers {
            WrittenNumbers::One(value) => Some(Self([value; 3])),
            WrittenNumbers::List(channels) => channels.try_into().ok().map(Self),
        })
    }
}
