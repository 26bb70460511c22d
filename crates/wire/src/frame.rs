//! Frames: a message after a head of 8 bytes with a magic number, the protocol version, and the message's length.
//!
//! ```text
//! 0  "SP"                      anything else: the peer is another program
//! 2  u16 protocol version      not ours: the error names both
//! 4  u32 length of the message bounded by the type of message before anything is allocated
//! 8  the message
//! ```

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::codec::{self, CodecError, MAX_MESSAGE_BYTES};
use spdl_control::{
    help::HelpReply,
    messages::{FromCoordinator, FromHome, FromLeader, PROTOCOL_VERSION, PeerRequest, ToCoordinator, ToHome, ToLeader},
    peers::BlockReply,
};

/// The first bytes of every frame.
pub const MAGIC: [u8; 2] = *b"SP";
/// The number of bytes before the message.
pub const HEAD_BYTES: usize = 8;
/// The least number of bytes that a reader requests from the socket.
const READ_BYTES: usize = 8 << 10;

/// A type that is sent in frames.
pub trait Message: Serialize + DeserializeOwned {
    /// The type's name, for errors.
    const NAME: &'static str;
    /// The most bytes of one message.
    const MAX_BYTES: usize;
}

/// Each line: a type, its name, and the most bytes of one message.
macro_rules! messages {
    ($($(#[$doc:meta])* $Type:ty = $name:literal, $max_bytes:expr;)*) => {
        $(impl Message for $Type {
            const NAME: &'static str = $name;
            $(#[$doc])*
            const MAX_BYTES: usize = $max_bytes;
        })*
    };
}

messages! {
    /// A job file with as many redactions as it can have takes most of it.
    ToCoordinator = "request to the coordinator", 8 << 20;
    FromCoordinator = "reply of the coordinator", MAX_MESSAGE_BYTES;
    /// A job with as many redactions as it can have takes most of it.
    ToHome = "message to a home", 8 << 20;
    FromHome = "message of a home", 64 << 10;
    ToLeader = "message to the leader of a group", 64 << 10;
    FromLeader = "message of the leader of a group", 1 << 20;
    PeerRequest = "request of a worker", 8 << 20;
    BlockReply = "reply to a request for a block", 64;
    HelpReply = "reply of a helper", 128 << 10;
}

/// A frame that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum FrameError {
    #[error("peer sent {head:02x?} where a frame starts with \"SP\": it is not a part of spdl-cluster")]
    NotOurs { head: [u8; 2] },
    #[error(
        "peer speaks protocol version {theirs}, this program speaks {ours}: install the same release on both sides"
    )]
    Version { theirs: u16, ours: u16 },
    #[error("{message} is {bytes} bytes, more than the {most} it may have")]
    TooLong { message: &'static str, bytes: u64, most: usize },
    #[error("connection ended inside a {message}")]
    Cut { message: &'static str },
    #[error("{message} {source}")]
    Codec { message: &'static str, source: CodecError },
    #[error("connection broke: {0}")]
    Io(#[source] io::Error),
}

impl FrameError {
    /// Returns whether a new connection may succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::Io(_))
    }
}

/// Appends a frame to `bytes`; on an error leaves them unchanged.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::Codec`].
pub fn append_frame<M: Message>(message: &M, bytes: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = bytes.len();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let encoded = codec::encode(message, bytes).map_err(|source| FrameError::Codec { message: M::NAME, source });
    let length = bytes.len() - start - HEAD_BYTES;
    let checked = encoded.and_then(|()| check_length::<M>(length as u64));
    if let Err(error) = checked {
        bytes.truncate(start);
        return Err(error);
    }
    let length = u32::try_from(length).expect("MAX_BYTES fits 32 bits");
    bytes[start + 4..start + HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn check_length<M: Message>(bytes: u64) -> Result<(), FrameError> {
    if bytes > M::MAX_BYTES as u64 {
        return Err(FrameError::TooLong { message: M::NAME, bytes, most: M::MAX_BYTES });
    }
    Ok(())
}

/// Checks a head and returns the length of the message that follows it.
fn body_bytes<M: Message>(head: [u8; HEAD_BYTES]) -> Result<usize, FrameError> {
    let [m0, m1, v0, v1, length @ ..] = head;
    if [m0, m1] != MAGIC {
        return Err(FrameError::NotOurs { head: [m0, m1] });
    }
    let theirs = u16::from_le_bytes([v0, v1]);
    if theirs != PROTOCOL_VERSION {
        return Err(FrameError::Version { theirs, ours: PROTOCOL_VERSION });
    }
    let length = u32::from_le_bytes(length);
    check_length::<M>(length.into())?;
    Ok(length as usize)
}

fn decode<M: Message>(body: &[u8]) -> Result<M, FrameError> {
    codec::decode(body).map_err(|source| FrameError::Codec { message: M::NAME, source })
}

/// Writes one frame.
pub async fn write_frame<M: Message>(io: &mut (impl AsyncWrite + Unpin), message: &M) -> Result<(), FrameError> {
    let mut bytes = Vec::new();
    append_frame(message, &mut bytes)?;
    io.write_all(&bytes).await.map_err(FrameError::Io)
}

/// Reads one frame and not a byte more; returns `None` if the stream ends before the frame. Allocates in proportion to
/// the bytes that arrive.
pub async fn read_frame<M: Message>(io: &mut (impl AsyncRead + Unpin)) -> Result<Option<M>, FrameError> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    (&mut *io).take(HEAD_BYTES as u64).read_to_end(&mut head).await.map_err(FrameError::Io)?;
    if head.is_empty() {
        return Ok(None);
    }
    let head = head.try_into().map_err(|_| FrameError::Cut { message: M::NAME })?;
    let length = body_bytes::<M>(head)?;
    let mut body = Vec::new();
    io.take(length as u64).read_to_end(&mut body).await.map_err(FrameError::Io)?;
    if body.len() < length {
        return Err(FrameError::Cut { message: M::NAME });
    }
    decode(&body).map(Some)
}

/// Reads consecutive frames from one stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    io: R,
    bytes: Vec<u8>,
}

impl<R> FrameReader<R> {
    /// Makes a reader that starts with `bytes`, which were already read from `io`.
    pub const fn new(io: R, bytes: Vec<u8>) -> Self {
        Self { io, bytes }
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Returns the next message; `None` if the stream ends between two frames. Nothing is lost when the future is
    /// dropped.
    pub async fn next<M: Message>(&mut self) -> Result<Option<M>, FrameError> {
        loop {
            if let Some(message) = take_frame(&mut self.bytes)? {
                return Ok(Some(message));
            }
            self.bytes.reserve(READ_BYTES);
            if self.io.read_buf(&mut self.bytes).await.map_err(FrameError::Io)? == 0 {
                return if self.bytes.is_empty() { Ok(None) } else { Err(FrameError::Cut { message: M::NAME }) };
            }
        }
    }
}

/// Removes the frame at the front of `bytes` and returns its message, once the frame is complete.
///
/// Returns [`FrameError`] for an invalid head as soon as the head is complete.
pub fn take_frame<M: Message>(bytes: &mut Vec<u8>) -> Result<Option<M>, FrameError> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let end = HEAD_BYTES + body_bytes::<M>(*head)?;
    if bytes.len() < end {
        return Ok(None);
    }
    let message = decode(&bytes[HEAD_BYTES..end])?;
    bytes.drain(..end);
    Ok(Some(message))
}

/// Writes consecutive frames to one stream.
#[derive(Debug)]
pub struct FrameWriter<W> {
    io: W,
    /// Frames, whose first `written` bytes are already written.
    bytes: Vec<u8>,
    written: usize,
}

impl<W> FrameWriter<W> {
    /// Makes a writer to `io`.
    pub const fn new(io: W) -> Self {
        Self { io, bytes: Vec::new(), written: 0 }
    }

    /// Returns the stream.
    pub const fn io_mut(&mut self) -> &mut W {
        &mut self.io
    }
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Sends a message. If the future is dropped, the whole message stays queued and is sent with the next one.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), FrameError> {
        append_frame(message, &mut self.bytes)?;
        self.flush().await
    }

    /// Writes the bytes that a dropped [`send`](Self::send) left.
    ///
    /// # Errors
    /// [`FrameError::Io`].
    pub async fn flush(&mut self) -> Result<(), FrameError> {
        while self.written < self.bytes.len() {
            let written = self.io.write(&self.bytes[self.written..]).await.map_err(FrameError::Io)?;
            if written == 0 {
                return Err(FrameError::Io(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }
}
