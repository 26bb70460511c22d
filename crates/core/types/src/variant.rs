//! The variant of an enum in messages and in JSON, and the errors of a variant that is not known.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// Length of the longest name that an error repeats, in characters.
const MAX_SHOWN: usize = 60;

/// Returns the error of a number that no variant has.
#[must_use]
pub fn no_such_number<E: Error>(what: &str, number: u32) -> E {
    E::custom(format!("there is no {what} with the number {number}"))
}

/// Shortens a name that a peer sent.
#[must_use]
pub fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SHOWN).collect()
}

/// The variant of an enum as a format gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariantId {
    /// Its number, which messages give.
    Number(u32),
    /// Its name, which JSON and TOML give.
    Name(String),
}

impl<'de> Deserialize<'de> for VariantId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(VariantVisitor)
    }
}

struct VariantVisitor;

impl Visitor<'_> for VariantVisitor {
    type Value = VariantId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number or the name of a variant")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<VariantId, E> {
        Ok(VariantId::Number(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<VariantId, E> {
        Ok(VariantId::Name(name.to_owned()))
    }
}
