//! The connections to helpers.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use quinn::{Connection, Endpoint};
use spdl_control::{
    Role,
    help::{DecodeRequest, HelpReply, MAX_BYTES},
    messages::PeerRequest,
    peers::PeerAddress,
};
use spdl_types::WorkerId;
use spdl_wire::quic::{self, CONNECT_TIMEOUT, QuicError};

use super::{AskHelper, DecodedSamples, HelpAnswer, LentJob};

/// Asks helpers over QUIC, each over a connection of its own.
#[derive(Debug)]
pub(crate) struct HelperLinks {
    endpoint: Endpoint,
    links: Mutex<HashMap<WorkerId, Arc<tokio::sync::Mutex<Option<Connection>>>>>,
}

impl HelperLinks {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, links: Mutex::default() }
    }

    async fn connection(&self, helper: PeerAddress) -> Result<Connection, QuicError> {
        let link = self.links.lock().entry(helper.worker).or_default().clone();
        let mut connection = link.lock().await;
        if let Some(connection) = connection.as_ref().filter(|connection| connection.close_reason().is_none()) {
            return Ok(connection.clone());
        }
        let connected = quic::connect(&self.endpoint, helper.quic, Role::Worker, CONNECT_TIMEOUT).await?;
        *connection = Some(connected.clone());
        Ok(connected)
    }

    /// Describes the job to a helper; returns the reason if it cannot decode its samples.
    async fn describe(connection: &Connection, job: &LentJob) -> Result<Result<(), String>, QuicError> {
        let request = PeerRequest::Job(Box::new((job.describe)()));
        let mut reply = quic::request_peer(connection, &request, Vec::new()).await?;
        match reply.next().await? {
            HelpReply::Ready => Ok(Ok(())),
            HelpReply::Unable { cause } => Ok(Err(cause)),
            other => Err(unexpected(connection, &other)),
        }
    }
}

fn unexpected(connection: &Connection, reply: &HelpReply) -> QuicError {
    let problem = format!("it answered a request for help with {reply:?}");
    QuicError::Protocol { address: connection.remote_address(), problem: problem.chars().take(200).collect() }
}

impl AskHelper for HelperLinks {
    fn keep(&self, helpers: &[PeerAddress]) {
        self.links.lock().retain(|worker, _| helpers.iter().any(|helper| helper.worker == *worker));
    }

    fn ask<'a>(
        &'a self,
        helper: PeerAddress,
        job: &'a LentJob,
        request: DecodeRequest,
        bytes: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<HelpAnswer, QuicError>> {
        async move {
            let connection = self.connection(helper).await?;
            let asked = request.samples.len();
            let request = PeerRequest::Decode(request);
            // The helper may have forgotten the job once, to make room for others.
            for _ in 0..2 {
                let mut reply = quic::request_peer(&connection, &request, bytes.clone()).await?;
                match reply.next().await? {
                    HelpReply::UnknownJob => {
                        if let Err(cause) = Self::describe(&connection, job).await? {
                            return Ok(HelpAnswer::Unable(cause));
                        }
                    }
                    HelpReply::Busy => return Ok(HelpAnswer::Busy),
                    HelpReply::Unable { cause } => return Ok(HelpAnswer::Unable(cause)),
                    HelpReply::Decoded(samples) => {
                        let count = job.sizes.reply_bytes(asked, &samples).filter(|bytes| *bytes <= MAX_BYTES);
                        let Some(count) = count.and_then(|bytes| usize::try_from(bytes).ok()) else {
                            return Err(unexpected(&connection, &HelpReply::Decoded(samples)));
                        };
                        let bytes = reply.bytes(count).await?;
                        return Ok(HelpAnswer::Decoded(DecodedSamples { samples, bytes }));
                    }
                    HelpReply::Ready => return Err(unexpected(&connection, &HelpReply::Ready)),
                }
            }
            Ok(HelpAnswer::Busy)
        }
        .boxed()
    }
}
