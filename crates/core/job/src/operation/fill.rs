//! A colour that fills what a picture lacks, as users write it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Unexpected, Visitor},
};

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
        deserializer.deserialize_any(FillText)
    }
}

struct FillText;

impl<'de> Visitor<'de> for FillText {
    type Value = Fill;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 255, or [red, green, blue]")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Fill, E> {
        let value = u8::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))?;
        Ok(Fill([value; 3]))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Fill, E> {
        let value = u8::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?;
        Ok(Fill([value; 3]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Fill, A::Error> {
        let channels = [list.next_element()?, list.next_element()?, list.next_element()?];
        let [Some(red), Some(green), Some(blue)] = channels else {
            return Err(A::Error::invalid_length(channels.iter().flatten().count(), &self));
        };
        match list.next_element::<u8>()? {
            None => Ok(Fill([red, green, blue])),
            Some(_) => Err(A::Error::invalid_length(4, &self)),
        }
    }
}
