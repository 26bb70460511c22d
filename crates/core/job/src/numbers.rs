//! Values that users write as one number or as a list of numbers.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Unexpected, Visitor, value::SeqAccessDeserializer},
};

/// Numbers as they are written.
pub(crate) enum WrittenNumbers<'n, N> {
    One(N),
    List(&'n [N]),
}

/// The type of such numbers.
pub(crate) trait WrittenNumber: for<'de> Deserialize<'de> {
    fn of_whole(number: i128) -> Option<Self>;

    fn of_fraction(_number: f64) -> Option<Self> {
        None
    }
}

impl WrittenNumber for u8 {
    fn of_whole(number: i128) -> Option<Self> {
        number.try_into().ok()
    }
}

impl WrittenNumber for u32 {
    fn of_whole(number: i128) -> Option<Self> {
        number.try_into().ok()
    }
}

impl WrittenNumber for f32 {
    fn of_whole(number: i128) -> Option<Self> {
        Some(number as Self)
    }

    fn of_fraction(number: f64) -> Option<Self> {
        Some(number as Self)
    }
}

/// Reads what `value_of` makes of the numbers; `expected` says in words how many there are.
pub(crate) fn read<'de, D: Deserializer<'de>, N: WrittenNumber, V>(
    deserializer: D,
    expected: &'static str,
    value_of: fn(WrittenNumbers<'_, N>) -> Option<V>,
) -> Result<V, D::Error> {
    deserializer.deserialize_any(WrittenVisitor { expected, value_of })
}

struct WrittenVisitor<N, V> {
    expected: &'static str,
    value_of: fn(WrittenNumbers<'_, N>) -> Option<V>,
}

impl<N: WrittenNumber, V> WrittenVisitor<N, V> {
    fn one<E: Error>(self, number: Option<N>, error: impl FnOnce(&Self) -> E) -> Result<V, E> {
        number.and_then(|number| (self.value_of)(WrittenNumbers::One(number))).ok_or_else(|| error(&self))
    }
}

impl<'de, N: WrittenNumber, V> Visitor<'de> for WrittenVisitor<N, V> {
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<V, E> {
        self.one(N::of_whole(number.into()), |this| E::invalid_value(Unexpected::Unsigned(number), this))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<V, E> {
        self.one(N::of_whole(number.into()), |this| E::invalid_value(Unexpected::Signed(number), this))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<V, E> {
        self.one(N::of_fraction(number), |this| E::invalid_type(Unexpected::Float(number), this))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V, A::Error> {
        let numbers: Vec<N> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        (self.value_of)(WrittenNumbers::List(&numbers)).ok_or_else(|| A::Error::invalid_length(numbers.len(), &self))
    }
}
