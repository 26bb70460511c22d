//! The form of column kinds, operations and types in messages.
//!
//! The codec gives each variant of an enum a number, and a program that lacks the number cannot read the message. So only
//! the variants that existed when the protocol's version was fixed have numbers. Every other one travels as a [`Named`]:
//! its name, the release that it needs, and its fields as JSON. A program that does not know the name can still say what
//! is missing, so a new kind or operation is no new version of the protocol.
//!
//! In JSON, as the coordinator stores jobs, all variants are written by name.

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, Error},
};
use spdl_types::variant::shown;

/// A variant without a number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
    /// The first release that knows the name.
    since: String,
    /// The fields of the variant.
    json: String,
}

impl Named {
    pub(super) fn new(name: &str, since: &str, fields: &impl Serialize) -> Self {
        let json = serde_json::to_string(fields).expect("plain data serialises");
        Self { name: name.to_owned(), since: since.to_owned(), json }
    }

    /// Reads the fields of a variant that is known.
    pub(super) fn fields<T: DeserializeOwned, E: Error>(&self, what: &str) -> Result<T, E> {
        serde_json::from_str(&self.json).map_err(|error| E::custom(format!("{what} `{}`: {error}", shown(&self.name))))
    }

    /// Returns the error of a variant that is not known.
    pub(super) fn unknown<E: Error>(&self, what: &str) -> E {
        E::custom(format!(
            "{what} `{}` needs spdl-cluster {} or later; this is {}",
            shown(&self.name),
            shown(&self.since),
            env!("CARGO_PKG_VERSION")
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::Error as ValueError;

    use super::*;

    #[test]
    fn a_variant_that_is_not_known_is_named_with_the_release_that_it_needs() {
        let named = Named::new("holo\ngram", "7.1.0", &[1, 2]);
        let error: ValueError = named.unknown("kind of column");
        let ours = env!("CARGO_PKG_VERSION");
        assert_eq!(
            error.to_string(),
            format!("kind of column `holo gram` needs spdl-cluster 7.1.0 or later; this is {ours}")
        );
        assert_eq!(named.fields::<Vec<u8>, ValueError>("kind of column").unwrap(), [1, 2]);
        let error = named.fields::<String, ValueError>("kind of column").unwrap_err().to_string();
        assert!(error.starts_with("kind of column `holo gram`: invalid type"), "{error}");
    }
}
