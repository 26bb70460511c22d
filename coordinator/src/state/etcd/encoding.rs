//! The encoding of bytes and 64-bit numbers in the gateway's JSON: base64 and text.

/// Bytes as base64.
pub(super) mod encoded {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, de::Error};

    pub(in super::super) fn text(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

/// A number as text.
pub(super) mod number {
    use serde::{Deserialize, Deserializer, de::Error};

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
