//! Messages with random values in all their fields, whatever fields they have: a message is deserialised from random
//! numbers.

mod jobs;

use std::{fmt::Debug, iter::repeat_n};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
        value::Error,
    },
    forward_to_deserialize_any,
};

/// Returns a strategy for all messages of a type.
pub(crate) fn message<M: DeserializeOwned + Debug>() -> impl Strategy<Value = M> {
    (any::<u64>(), jobs::job()).prop_map(|(seed, job)| {
        let job = serde_json::to_string(&job).expect("a job has a text");
        let drawn = |turn, job| {
            M::deserialize(&mut Drawn { rng: StdRng::seed_from_u64(seed.wrapping_add(turn)), key: "", job })
        };
        // A message that is refused has a job in it, for which most texts are none, or redacted samples, for which many bytes are none.
        let valid = |turn| drawn(turn, None).or_else(|_| drawn(turn, Some(&job)));
        (0..100).find_map(|turn| valid(turn).ok()).expect("all else is a valid message")
    })
}

/// Draws what a type asks for.
struct Drawn<'a> {
    rng: StdRng,
    /// The field, or the variant, that is drawn.
    key: &'static str,
    /// The text of everything that is called `job`.
    job: Option<&'a str>,
}

impl Drawn<'_> {
    fn text(&mut self) -> String {
        if let Some(job) = self.job.filter(|_| self.key.eq_ignore_ascii_case("job")) {
            return job.to_owned();
        }
        let length = self.rng.random_range(0..24);
        (0..length).map(|_| self.rng.random::<char>()).collect()
    }
}

macro_rules! numbers {
    ($($method:ident: $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.rng.random())
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Drawn<'_> {
    type Error = Error;

    numbers! {
        deserialize_bool: visit_bool,
        deserialize_u8: visit_u8,
        deserialize_u16: visit_u16,
        deserialize_u32: visit_u32,
        deserialize_u64: visit_u64,
        deserialize_u128: visit_u128,
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f32(self.rng.random_range(-1e6..1e6))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.rng.random_range(-1e9..1e9))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.rng.random() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let length = self.rng.random_range(0..4);
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(DrawnList { drawn: self, keys: repeat_n("", length) })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(DrawnList { drawn: self, keys: fields.iter().copied() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(DrawnVariant { drawn: self, variants })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no message has a value of this type"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 char bytes byte_buf unit unit_struct tuple_struct map identifier ignored_any
    }
}

struct DrawnList<'a, 'b, K> {
    drawn: &'a mut Drawn<'b>,
    keys: K,
}

impl<'de, K: Iterator<Item = &'static str>> SeqAccess<'de> for DrawnList<'_, '_, K> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(key) = self.keys.next() else { return Ok(None) };
        self.drawn.key = key;
        seed.deserialize(&mut *self.drawn).map(Some)
    }
}

struct DrawnVariant<'a, 'b> {
    drawn: &'a mut Drawn<'b>,
    variants: &'static [&'static str],
}

impl<'de, 'a, 'b> EnumAccess<'de> for DrawnVariant<'a, 'b> {
    type Error = Error;
    type Variant = &'a mut Drawn<'b>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant), Error> {
        let index = self.drawn.rng.random_range(0..self.variants.len());
        self.drawn.key = self.variants[index];
        Ok((seed.deserialize((index as u32).into_deserializer())?, self.drawn))
    }
}

impl<'de> VariantAccess<'de> for &mut Drawn<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.deserialize_struct("", fields, visitor)
    }
}
