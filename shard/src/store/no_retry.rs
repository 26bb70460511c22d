//! A client that asks once: nothing is tried again inside it, and what a busy server said of when to come back is kept.
//! For whoever decides about retries himself, so that two of them do not multiply.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
    },
};

use super::error::chain;

/// The longest that a server may ask for, in seconds; it is a peer like any other.
const MAX_RETRY_AFTER_S: u64 = 60;

/// A server that answered and cannot serve just then: 408, 429, or its own failure, 5xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The status code.
    pub status: u16,
    /// How long it asks us to stay away, a minute at most.
    pub retry_after: Option<Duration>,
}

impl Busy {
    /// What the server said, where `error` comes of such an answer to a client that asks once.
    #[must_use]
    pub fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        chain(error).find_map(|error| error.downcast_ref()).copied()
    }

    fn of(response: &HttpResponse) -> Option<Self> {
        let status = response.status().as_u16();
        let is_busy = status >= 500 || status == 408 || status == 429;
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        // A date is the other form that HTTP allows; stores send seconds.
        let seconds = after.and_then(|value| value.trim().parse::<u64>().ok());
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_S)));
        is_busy.then_some(Self { status, retry_after })
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)?;
        match self.retry_after {
            Some(after) => write!(f, " and asks to come back in {} s", after.as_secs()),
            None => Ok(()),
        }
    }
}

impl Error for Busy {}

/// Makes the clients of stores.
#[derive(Clone)]
pub(super) struct Connector {
    /// A busy server's answer becomes an error that is [`Busy`].
    pub(super) asks_once: bool,
    /// What the server is told of who asks.
    pub(super) authorization: Option<Arc<str>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("asks_once", &self.asks_once).finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut client = ReqwestConnector::default().connect(options)?;
        if let Some(authorization) = &self.authorization {
            client = HttpClient::new(Authorized { client, authorization: Arc::clone(authorization) });
        }
        Ok(if self.asks_once { HttpClient::new(NoRetry(client)) } else { client })
    }
}

struct Authorized {
    client: HttpClient,
    authorization: Arc<str>,
}

impl fmt::Debug for Authorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorized").field("client", &self.client).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpService for Authorized {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // It is printable: it was encoded in base 64.
        if let Ok(value) = self.authorization.parse() {
            request.headers_mut().insert("authorization", value);
        }
        self.client.execute(request).await
    }
}

#[derive(Debug)]
struct NoRetry(HttpClient);

#[async_trait::async_trait]
impl HttpService for NoRetry {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        match Busy::of(&response) {
            Some(busy) => Err(HttpError::new(HttpErrorKind::Unknown, busy)),
            None => Ok(response),
        }
    }
}
