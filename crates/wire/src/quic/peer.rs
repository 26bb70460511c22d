//! Requests between workers, each on its own stream: a message and its bytes, then in reply one or more messages and
//! the bytes that follow the last of them.

use std::{io, sync::Arc};

use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream, SendStream};
use tokio::task::JoinSet;

use super::{Close, QuicError, REQUEST_TIMEOUT};
use crate::frame::{self, FrameError, Message};
use spdl_control::messages::PeerRequest;

/// Sends a request, and the bytes that follow it, to the worker at the other end of `connection`. Dropping the result cancels
/// the request.
pub async fn request_peer(
    connection: &Connection,
    request: &PeerRequest,
    bytes: Vec<Bytes>,
) -> Result<PeerReply, QuicError> {
    let address = connection.remote_address();
    let (mut send, receive) = connection.open_bi().await.map_err(|error| QuicError::of(error, address))?;
    match write_all(&mut send, request, bytes).await {
        Ok(()) => {}
        // The peer needs no more of the bytes to answer.
        Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(explain(error, connection)),
    }
    // If the stream is already closed, so is its connection, and reading the reply reports it.
    let _ = send.finish();
    Ok(PeerReply { receive, connection: connection.clone() })
}

/// The reply to a request.
#[derive(Debug)]
pub struct PeerReply {
    receive: RecvStream,
    connection: Connection,
}

impl PeerReply {
    /// Returns the next message.
    pub async fn next<M: Message>(&mut self) -> Result<M, QuicError> {
        match frame::read_frame(&mut self.receive).await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(explain(FrameError::Cut { message: M::NAME }, &self.connection)),
            Err(error) => Err(explain(error, &self.connection)),
        }
    }

    /// Returns the `count` bytes that follow the last message; the caller has room for them.
    ///
    /// # Errors
    /// [`QuicError`], also if the peer sends fewer bytes or more.
    pub async fn bytes(mut self, count: usize) -> Result<Bytes, QuicError> {
        let address = self.connection.remote_address();
        let broken = |problem: String| QuicError::Protocol { address, problem };
        let mut bytes = vec![0; count];
        self.receive.read_exact(&mut bytes).await.map_err(|error| match error {
            ReadExactError::FinishedEarly(read) => broken(format!("it sent {read} of {count} bytes of a reply")),
            ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => QuicError::of(error, address),
            ReadExactError::ReadError(other) => broken(format!("a reply was cut: {other}")),
        })?;
        match self.receive.read(&mut [0]).await {
            Ok(None) => Ok(bytes.into()),
            _ => Err(broken(format!("it sent more than the {count} bytes of a reply"))),
        }
    }
}

/// Writes a message, and the bytes that follow it.
async fn write_all<M: Message>(send: &mut SendStream, message: &M, bytes: Vec<Bytes>) -> Result<(), FrameError> {
    let mut head = Vec::new();
    frame::append_frame(message, &mut head)?;
    let mut chunks: Vec<Bytes> = [Bytes::from(head)].into_iter().chain(bytes).collect();
    send.write_all_chunks(&mut chunks).await.map_err(|error| FrameError::Io(error.into()))
}

/// Returns why a message was not exchanged: the connection's own reason if there is one.
fn explain(error: FrameError, connection: &Connection) -> QuicError {
    match connection.close_reason() {
        Some(reason) => QuicError::of(reason, connection.remote_address()),
        None => error.into(),
    }
}

/// Serves the requests of a worker, several at once, until its connection ends; returns how it ended. `handler` answers
/// one request.
pub async fn serve_peer<H, F>(connection: Connection, handler: H) -> QuicError
where
    H: Fn(PeerRequest, PeerStream) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), FrameError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    // At most as many as the allowed streams. They are cancelled when this future is dropped.
    let mut running = JoinSet::new();
    loop {
        match connection.accept_bi().await {
            Ok((send, mut receive)) => {
                while running.try_join_next().is_some() {}
                let (connection, handler) = (connection.clone(), Arc::clone(&handler));
                running.spawn(async move {
                    let request = tokio::time::timeout(REQUEST_TIMEOUT, frame::read_frame(&mut receive)).await;
                    let answered = match request {
                        Ok(Ok(Some(request))) => handler(request, PeerStream { send, receive }).await,
                        Ok(Ok(None)) | Err(_) => Ok(()),
                        Ok(Err(error)) => Err(error),
                    };
                    if let Err(error) = answered
                        && !error.is_retryable()
                    {
                        Close::Protocol.close(&connection, &error.to_string());
                    }
                });
            }
            Err(error) => return QuicError::of(error, connection.remote_address()),
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct PeerStream {
    send: SendStream,
    receive: RecvStream,
}

impl PeerStream {
    /// Returns the `count` bytes that follow the request; the caller has room for them.
    ///
    /// # Errors
    /// [`FrameError`] if they do not come within the time for a request.
    pub async fn bytes(&mut self, count: usize) -> Result<Bytes, FrameError> {
        let mut bytes = vec![0; count];
        let cut = || FrameError::Cut { message: PeerRequest::NAME };
        match tokio::time::timeout(REQUEST_TIMEOUT, self.receive.read_exact(&mut bytes)).await {
            Ok(Ok(())) => Ok(bytes.into()),
            Ok(Err(_)) | Err(_) => Err(cut()),
        }
    }

    /// Sends a message that others may follow.
    ///
    /// # Errors
    /// [`FrameError`] if the peer is gone.
    pub async fn reply<M: Message>(&mut self, reply: &M) -> Result<(), FrameError> {
        frame::write_frame(&mut self.send, reply).await
    }

    /// Sends the last message and the bytes that follow it. Returns when the connection has taken all of them.
    ///
    /// # Errors
    /// [`FrameError`] if the peer is gone.
    pub async fn finish<M: Message>(mut self, reply: &M, bytes: Vec<Bytes>) -> Result<(), FrameError> {
        write_all(&mut self.send, reply, bytes).await?;
        let _ = self.send.finish();
        Ok(())
    }
}
