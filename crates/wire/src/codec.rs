//! Encodes messages as bytes: bincode 2, little-endian, variable-length integers. The only file that names the codec.
//!
//! bincode is no longer maintained, so its format is frozen, which suits a wire format. Replacing it needs a change of
//! this file and a new protocol version.

use bincode::{
    config::{Configuration, Limit, LittleEndian, Varint},
    error::DecodeError,
};
use serde::{Serialize, de::DeserializeOwned};

/// The most bytes of any message. The decoder allocates no more than this, whatever lengths the bytes claim.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Messages of up to this length may claim at most [`SHORT_CLAIM_BYTES`]. The decoder counts a number by its size in
/// memory, which is up to 16 times its size on the wire.
const SHORT_BYTES: usize = 64 << 10;
const SHORT_CLAIM_BYTES: usize = 2 << 20;

/// A message cannot be encoded, or bytes cannot be decoded as one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum CodecError {
    /// The message cannot be encoded.
    #[error("does not encode: {0}")]
    Encode(#[source] Box<bincode::error::EncodeError>),
    /// The bytes hold something that this program does not know, such as a kind of column of a later release.
    #[error("does not decode: {0}")]
    Unknown(String),
    /// The bytes cannot be decoded.
    #[error("does not decode: {0}")]
    Decode(#[source] Box<bincode::error::DecodeError>),
    /// Bytes follow the message.
    #[error("ends after {used} of {actual} bytes")]
    LeftOver { used: usize, actual: usize },
}

const fn config<const CLAIM_BYTES: usize>() -> Configuration<LittleEndian, Varint, Limit<CLAIM_BYTES>> {
    bincode::config::standard().with_limit::<CLAIM_BYTES>()
}

/// Appends the message to `bytes`.
///
/// # Errors
/// [`CodecError::Encode`].
pub fn encode<T: Serialize>(message: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_std_write(message, bytes, config::<MAX_MESSAGE_BYTES>())
        .map(drop)
        .map_err(|error| CodecError::Encode(Box::new(error)))
}

/// Decodes a message from `bytes`, which must hold nothing else. Allocates in proportion to the bytes given and at most
/// 2 MiB more, whatever lengths they claim.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let decoded = if bytes.len() <= SHORT_BYTES {
        bincode::serde::decode_from_slice(bytes, config::<SHORT_CLAIM_BYTES>())
    } else {
        bincode::serde::decode_from_slice(bytes, config::<MAX_MESSAGE_BYTES>())
    };
    let (message, used) = decoded.map_err(|error| match error {
        DecodeError::OtherString(text) => CodecError::Unknown(text),
        error => CodecError::Decode(Box::new(error)),
    })?;
    if used != bytes.len() {
        return Err(CodecError::LeftOver { used, actual: bytes.len() });
    }
    Ok(message)
}
