//! Messages as bytes: bincode 2, little-endian, variable-length integers. The only file that names the codec.
//!
//! bincode is no longer maintained; its format is frozen, which is what a wire format wants. Replacing it is a change
//! to this file and a new protocol version.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Serialize, de::DeserializeOwned};

/// The most bytes that any message takes: the decoder claims no more than this, whatever the bytes say.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Shorter messages may claim no more than [`SHORT_CLAIM_BYTES`]. The decoder counts a number as what it takes in memory,
/// which is up to 16 times as much as on the wire.
const SHORT_BYTES: usize = 64 << 10;
const SHORT_CLAIM_BYTES: usize = 2 << 20;

/// Bytes that are not a message, or a message that does not become bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// It does not encode.
    #[error("does not encode: {0}")]
    Encode(#[source] Box<bincode::error::EncodeError>),
    /// It does not decode.
    #[error("does not decode: {0}")]
    Decode(#[source] Box<bincode::error::DecodeError>),
    /// Bytes are left over.
    #[error("ends after {used} of {actual} bytes")]
    LeftOver {
        /// Bytes that the message took.
        used: usize,
        /// Bytes that were there.
        actual: usize,
    },
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

/// The message that `bytes` are, all of them. Allocates in proportion to the bytes that are there and at most 2 MiB more,
/// whatever lengths they claim.
///
/// # Errors
/// [`CodecError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let decoded = if bytes.len() <= SHORT_BYTES {
        bincode::serde::decode_from_slice(bytes, config::<SHORT_CLAIM_BYTES>())
    } else {
        bincode::serde::decode_from_slice(bytes, config::<MAX_MESSAGE_BYTES>())
    };
    let (message, used) = decoded.map_err(|error| CodecError::Decode(Box::new(error)))?;
    if used != bytes.len() {
        return Err(CodecError::LeftOver { used, actual: bytes.len() });
    }
    Ok(message)
}
