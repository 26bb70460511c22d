//! The channel between a home and a client, with the same API over shared memory and over QUIC.
//!
//! A worker takes [`AttachRequest`]s from a [`HomeListener`] and replies with a slab; from then on it has a
//! [`HomeSender`] and a [`HomeReceiver`]. A client calls [`attach`] and gets a [`ClientSender`] and a
//! [`ClientReceiver`]. On both transports a batch is a slot of a slab, and batches are received in order.

mod client;
mod joining;
mod received;
mod worker;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use quinn::{RecvStream, SendStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
};

pub use client::{Attach, ClientReceiver, ClientSender, attach, attach_local, attach_quic};
pub use worker::{AttachRequest, HomeListener, HomeReceiver, HomeSender};

use crate::{
    frame::FrameError,
    local::LocalChannelError,
    quic::{Close, QuicError},
    slab::SlabError,
};

/// A peer that does not send its first message, or does not take its slab, within this time is dropped.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a home waits for its last messages to arrive before it closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A channel cannot be opened, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ChannelError {
    #[error("home refused: {message}")]
    Refused { message: String, is_retryable: bool },
    #[error("the other side closed the channel")]
    Closed,
    #[error("home did not attach rank {rank} within {timeout_ms} ms")]
    Timeout { rank: u32, timeout_ms: u64 },
    #[error("the other side broke the protocol: {problem}")]
    Protocol { problem: String },
    #[error("home `{name}` is on another node, and this process has no QUIC endpoint to reach it")]
    NoEndpoint { name: String },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error(transparent)]
    Local(#[from] LocalChannelError),
    #[error(transparent)]
    Slab(#[from] SlabError),
}

impl ChannelError {
    /// Returns whether the same home may succeed later, or another one now.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { is_retryable, .. } => *is_retryable,
            Self::Closed | Self::Timeout { .. } => true,
            Self::Protocol { .. } | Self::NoEndpoint { .. } | Self::Slab(_) => false,
            Self::Frame(error) => error.is_retryable(),
            Self::Quic(error) => error.is_retryable(),
            Self::Local(error) => error.is_retryable(),
        }
    }

    pub(crate) fn protocol(problem: impl Into<String>) -> Self {
        Self::Protocol { problem: problem.into() }
    }
}

/// The reading side of a control channel.
#[derive(Debug)]
enum Inbound {
    Local(OwnedReadHalf),
    Quic(RecvStream),
}

/// The writing side of a control channel.
#[derive(Debug)]
enum Outbound {
    Local(OwnedWriteHalf),
    Quic(SendStream),
}

impl AsyncRead for Inbound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Local(half) => Pin::new(half).poll_read(cx, buf),
            Self::Quic(stream) => AsyncRead::poll_read(Pin::new(stream), cx, buf),
        }
    }
}

impl AsyncWrite for Outbound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Local(half) => Pin::new(half).poll_write(cx, buf),
            Self::Quic(stream) => AsyncWrite::poll_write(Pin::new(stream), cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Local(half) => Pin::new(half).poll_flush(cx),
            Self::Quic(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Local(half) => Pin::new(half).poll_shutdown(cx),
            Self::Quic(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Closes connections that are still open.
fn close_all(connections: &[quinn::Connection], close: Close, reason: &str) {
    for connection in connections {
        close.close(connection, reason);
    }
}

/// Returns why a control channel ended: the connection's own reason if there is one. On the local channel the other
/// process has closed its end: a writer gets a broken pipe, and a reader gets the end of the stream or, if the other
/// process had not read everything that it was sent, a reset.
fn ended(error: FrameError, connection: Option<&quinn::Connection>) -> ChannelError {
    let Some(connection) = connection else {
        return match &error {
            FrameError::Io(io) if matches!(io.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                ChannelError::Closed
            }
            _ => error.into(),
        };
    };
    match connection.close_reason().map(|reason| QuicError::of(reason, connection.remote_address())) {
        Some(QuicError::Closed { .. }) => ChannelError::Closed,
        Some(reason) => reason.into(),
        None => error.into(),
    }
}
