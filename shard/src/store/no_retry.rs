//! An HTTP client that sends each request once: it never retries, and it keeps the delay that a busy server asks for.
//! It is for callers with a retry policy of their own and avoids retrying twice.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
    },
};

use super::error::chain;

/// Upper limit of the delay that a server may ask for, in seconds; a server is not trusted more than any other peer.
const MAX_RETRY_AFTER_S: u64 = 60;

/// The answer of a server that cannot serve at the moment: status 408 or 429, or a failure of its own, 5xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The status code.
    pub status: u16,
    /// How long the server asks the client to wait, at most a minute.
    pub retry_after: Option<Duration>,
}

impl Busy {
    /// Returns the server's answer if `error` results from one, on a client that sends each request once.
    #[must_use]
    pub fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        chain(error).find_map(|error| error.downcast_ref()).copied()
    }

    fn of(response: &HttpResponse) -> Option<Self> {
        let status = response.status().as_u16();
        let is_busy = status >= 500 || status == 408 || status == 429;
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        // HTTP also allows a date; stores send seconds.
        let seconds = after.and_then(|value| value.trim().parse::<u64>().ok());
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_S)));
        is_busy.then_some(Self { status, retry_after })
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)?;
        match self.retry_after {
            Some(after) => write!(f, " and asks for a retry after {} s", after.as_secs()),
            None => Ok(()),
        }
    }
}

impl Error for Busy {}

/// Creates the HTTP clients of stores.
#[derive(Clone)]
pub(super) struct Connector {
    /// Whether a busy server's answer becomes a [`Busy`] error.
    pub(super) asks_once: bool,
    /// The value of the `Authorization` header, if the server needs one.
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
        // The value always parses, because base 64 is printable.
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
