//! Blocks between workers: each request on its own stream, answered by messages and then the bytes.

use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream, SendStream};
use tokio::task::JoinSet;

use super::{Close, QuicError, REQUEST_TIMEOUT};
use crate::frame::{self, FrameError, Message};
use spdl_core::peers::{BlockReply, BlockRequest};

/// Asks the worker at the other end of `connection` for bytes of a block. Dropping the result cancels the request.
///
/// # Errors
/// [`QuicError`].
pub async fn request_block(connection: &Connection, request: &BlockRequest) -> Result<RequestedBlock, QuicError> {
    let address = connection.remote_address();
    let (mut send, receive) = connection.open_bi().await.map_err(|error| QuicError::of(error, address))?;
    frame::write_frame(&mut send, request).await.map_err(|error| explain(error, connection))?;
    // If the stream is already closed, so is its connection, and reading the reply reports it.
    let _ = send.finish();
    Ok(RequestedBlock { receive, connection: connection.clone() })
}

/// A request for bytes of a block that is being answered.
#[derive(Debug)]
pub struct RequestedBlock {
    receive: RecvStream,
    connection: Connection,
}

impl RequestedBlock {
    /// Returns the next message.
    ///
    /// # Errors
    /// [`QuicError`].
    pub async fn next(&mut self) -> Result<BlockReply, QuicError> {
        match frame::read_frame(&mut self.receive).await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(explain(FrameError::Cut { message: BlockReply::NAME }, &self.connection)),
            Err(error) => Err(explain(error, &self.connection)),
        }
    }

    /// Returns the `count` bytes that follow [`BlockReply::Block`]; the caller has room for them.
    ///
    /// # Errors
    /// [`QuicError`], also if the peer sends fewer bytes or more.
    pub async fn bytes(mut self, count: usize) -> Result<Bytes, QuicError> {
        let address = self.connection.remote_address();
        let broken = |problem: String| QuicError::Protocol { address, problem };
        let mut bytes = vec![0; count];
        self.receive.read_exact(&mut bytes).await.map_err(|error| match error {
            ReadExactError::FinishedEarly(read) => broken(format!("it sent {read} of {count} bytes of a block")),
            ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => QuicError::of(error, address),
            ReadExactError::ReadError(other) => broken(format!("a block was cut: {other}")),
        })?;
        match self.receive.read(&mut [0]).await {
            Ok(None) => Ok(bytes.into()),
            _ => Err(broken(format!("it sent more than the {count} bytes of a block"))),
        }
    }
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
pub async fn serve_blocks<H, F>(connection: Connection, handler: H) -> QuicError
where
    H: Fn(BlockRequest, BlockSender) -> F + Send + Sync + 'static,
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
                        Ok(Ok(Some(request))) => handler(request, BlockSender { send }).await,
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

/// The answer to one request for a block.
#[derive(Debug)]
pub struct BlockSender {
    send: SendStream,
}

impl BlockSender {
    /// Sends a message that no bytes follow.
    ///
    /// # Errors
    /// [`FrameError`] if the peer is gone.
    pub async fn reply(&mut self, reply: &BlockReply) -> Result<(), FrameError> {
        frame::write_frame(&mut self.send, reply).await
    }

    /// Sends the bytes, and ends the answer. Returns when the connection has taken all of them.
    ///
    /// # Errors
    /// [`FrameError`] if the peer is gone.
    pub async fn block(mut self, bytes: Vec<Bytes>) -> Result<(), FrameError> {
        let mut chunks = Vec::new();
        frame::append_frame(&BlockReply::Block, &mut chunks)?;
        let mut chunks: Vec<Bytes> = [Bytes::from(chunks)].into_iter().chain(bytes).collect();
        self.send.write_all_chunks(&mut chunks).await.map_err(|error| FrameError::Io(error.into()))?;
        let _ = self.send.finish();
        Ok(())
    }
}
