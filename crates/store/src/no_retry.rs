//! An HTTP client that sends each request once: it never retries, and it keeps the delay that a busy server asks for.
//! It is for callers with a retry policy of their own and avoids retrying twice.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};

use crate::{
    cause::chain,
    tls::{self, TrustedCertificates},
};

/// Upper limit of the delay that a server may ask for, in seconds; a server is not trusted more than any other peer.
const MAX_RETRY_AFTER_S: u64 = 60;
/// The status of an invalid request.
const BAD_REQUEST: u16 = 400;
/// Longest delay, in seconds, after which a request is sent again. If a server asks for a longer one, the request
/// fails. It is twice the time after which the Hugging Face Hub resets its limits.
const MAX_ASKED_S: u64 = 600;
/// How often a request is sent again because a busy server asks for that: the Hugging Face Hub resets its limits every
/// five minutes.
const MAX_WAITS: u32 = 8;

/// The answer of a server that cannot serve at the moment: status 408 or 429, or a failure of its own, 5xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The status code.
    pub status: u16,
    /// How long the server asks the client to wait, at most a minute.
    pub retry_after: Option<Duration>,
    /// The seconds that the server asks for.
    asked_s: Option<u64>,
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
        let seconds = seconds.or_else(|| seconds_to_reset(response.headers().get("ratelimit")?.to_str().ok()?));
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_S)));
        is_busy.then_some(Self { status, retry_after, asked_s: seconds })
    }
}

/// Returns the seconds until a limit of requests is reset, from a `RateLimit` header
/// (draft-ietf-httpapi-ratelimit-headers): `"api";r=0;t=55`.
fn seconds_to_reset(limit: &str) -> Option<u64> {
    limit.split(';').find_map(|parameter| parameter.trim().strip_prefix("t=")?.parse().ok())
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)?;
        match self.asked_s {
            Some(seconds) => write!(f, " and asks for a retry after {seconds} s"),
            None => Ok(()),
        }
    }
}

impl Error for Busy {}

/// Creates the HTTP clients of stores.
#[derive(Clone)]
pub(crate) struct Connector {
    /// Whether a busy server's answer becomes a [`Busy`] error.
    pub(crate) asks_once: bool,
    /// The value of the `Authorization` header, if the server needs one. A server that the request is redirected to does
    /// not get it.
    pub(crate) authorization: Option<Arc<str>>,
    /// The certificates by which servers are trusted, if not those of the system.
    pub(crate) trusted: Option<TrustedCertificates>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("asks_once", &self.asks_once).finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut client = tls::connect(self.trusted.as_ref(), options)?;
        if let Some(authorization) = &self.authorization {
            client = HttpClient::new(Authorized { client, authorization: Arc::clone(authorization) });
        }
        let client = HttpClient::new(NamedErrors(client));
        Ok(if self.asks_once { HttpClient::new(NoRetry(client)) } else { HttpClient::new(WaitWhenBusy(client)) })
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

/// Gives answers that name their error in a header, or only by their status, the form of other errors: those of the
/// Hugging Face Hub, and S3's redirection without an address, which means that the bucket is in another region.
#[derive(Debug)]
struct NamedErrors(HttpClient);

#[async_trait::async_trait]
impl HttpService for NamedErrors {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status();
        let (name, region) = if status.is_client_error() {
            (header("x-error-code"), None)
        } else if status.is_redirection() && status.as_u16() != 304 && header("location").is_none() {
            (Some("PermanentRedirect"), header("x-amz-bucket-region"))
        } else {
            (None, None)
        };
        let Some(name) = name else { return Ok(response) };
        let region = region.map_or_else(String::new, |region| format!("<Region>{region}</Region>"));
        let body = format!("<Error><Code>{name}</Code>{region}</Error>");
        let (mut parts, _) = response.into_parts();
        parts.headers.remove("content-length");
        if parts.status.is_redirection() {
            // The store's client would try to follow a redirection.
            parts.status = BAD_REQUEST.try_into().expect("a status");
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// Sends a request again when a busy server asks for that, for callers without a retry policy of their own.
#[derive(Debug)]
struct WaitWhenBusy(HttpClient);

#[async_trait::async_trait]
impl HttpService for WaitWhenBusy {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut waits = 0;
        loop {
            let response = self.0.execute(request.clone()).await?;
            match Busy::of(&response) {
                Some(busy) if busy.asked_s.is_some_and(|seconds| seconds > MAX_ASKED_S) => {
                    return Err(HttpError::new(HttpErrorKind::Unknown, busy));
                }
                Some(Busy { status, retry_after: Some(after), .. }) if waits < MAX_WAITS => {
                    waits += 1;
                    let (host, seconds) = (request.uri().host().unwrap_or_default(), after.as_secs());
                    tracing::warn!("`{host}` answered {status}; asking again in {seconds} s, as it wants");
                    tokio::time::sleep(after).await;
                }
                _ => return Ok(response),
            }
        }
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
