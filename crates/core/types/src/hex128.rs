//! 128-bit digests in serialised form: 32 hex digits in human-readable formats, a plain number in all others.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Writes a digest.
///
/// # Errors
/// The errors of the serializer.
pub fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(&format_args!("{value:032x}"))
    } else {
        value.serialize(serializer)
    }
}

/// Reads a digest.
///
/// # Errors
/// The errors of the deserializer, or text that is not hex digits.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    if deserializer.is_human_readable() {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(|_| D::Error::custom(format!("`{text}` is not 32 hex digits")))
    } else {
        u128::deserialize(deserializer)
    }
}
