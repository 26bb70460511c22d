//! Requests to the coordinator: each on its own stream, with one message each way.

use std::{sync::Arc, time::Duration};

use quinn::{Connection, RecvStream, SendStream};
use tokio::task::JoinSet;

use super::{Close, QuicError, until_closed};
use crate::frame::{self, FrameError};
use spdl_control::messages::{FromCoordinator, Refusal, ToCoordinator};

/// The default limit for one request; on the server, the limit for a request to arrive once its stream is open.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request and waits for the reply. A [`FromCoordinator::Refused`] is a reply.
pub async fn request(
    connection: &Connection,
    message: &ToCoordinator,
    timeout: Duration,
) -> Result<FromCoordinator, QuicError> {
    let address = connection.remote_address();
    let exchange = async {
        let (mut send, mut receive) = connection.open_bi().await.map_err(|error| QuicError::of(error, address))?;
        frame::write_frame(&mut send, message).await?;
        // If the stream is already closed, so is its connection, and reading the reply reports it.
        let _ = send.finish();
        let reply = frame::read_frame(&mut receive).await?;
        reply.ok_or(QuicError::Frame(FrameError::Cut { message: "reply of the coordinator" }))
    };
    tokio::select! {
        biased;
        done = exchange => done.map_err(|error| match connection.close_reason() {
            Some(reason) => QuicError::of(reason, address),
            None => error,
        }),
        error = until_closed(connection) => Err(error),
        () = tokio::time::sleep(timeout) => {
            Err(QuicError::NoReply { address, timeout_ms: timeout.as_millis() as u64 })
        }
    }
}

/// Serves the requests of one connection, several at once, until it ends; returns how it ended.
pub async fn serve_requests<H, F>(connection: Connection, handler: H) -> QuicError
where
    H: Fn(ToCoordinator) -> F + Send + Sync + 'static,
    F: Future<Output = FromCoordinator> + Send + 'static,
{
    let handler = Arc::new(handler);
    // At most as many as the allowed streams. They are cancelled when this future is dropped.
    let mut running = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept_bi() => accepted,
            // Otherwise its memory would be held until the next request.
            Some(_) = running.join_next() => continue,
        };
        match accepted {
            Ok((send, receive)) => {
                let (connection, handler) = (connection.clone(), Arc::clone(&handler));
                running.spawn(async move {
                    if let Err(error) = answer(send, receive, &*handler).await
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

async fn answer<H, F>(mut send: SendStream, mut receive: RecvStream, handler: &H) -> Result<(), FrameError>
where
    H: Fn(ToCoordinator) -> F,
    F: Future<Output = FromCoordinator>,
{
    let request = match tokio::time::timeout(REQUEST_TIMEOUT, frame::read_frame(&mut receive)).await {
        Ok(Ok(Some(request))) => request,
        Ok(Ok(None)) | Err(_) => return Ok(()),
        Ok(Err(error)) => return Err(error),
    };
    let reply = handler(request).await;
    match frame::write_frame(&mut send, &reply).await {
        Err(error @ (FrameError::TooLong { .. } | FrameError::Codec { .. })) => {
            let refused = FromCoordinator::Refused(Refusal::Internal { cause: error.to_string() });
            frame::write_frame(&mut send, &refused).await?;
        }
        written => written?,
    }
    let _ = send.finish();
    Ok(())
}
