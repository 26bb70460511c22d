//! What an error of `object_store` means: what the store answered, and what became of the connection.

use std::{error::Error, io::ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};
use spdl_job::redact;

/// Error codes of stores for a bucket that is in another region.
pub(crate) const OTHER_REGION: [&str; 2] = ["PermanentRedirect", "IllegalLocationConstraintException"];
/// Error codes of stores for credentials that are no longer valid.
pub(crate) const EXPIRED: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"];
/// Error codes of stores for credentials that they do not know.
pub(crate) const UNKNOWN_CREDENTIALS: [&str; 4] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"];
/// Part of TLS's error texts about a certificate.
pub(crate) const CERTIFICATE: &str = "invalid peer certificate";
/// Part of TLS's error text for an answer that is not TLS.
pub(crate) const NO_TLS: &str = "InvalidContentType";
/// Parts of the addresses of requests for a list.
pub(crate) const LISTS: [&str; 2] = ["list-type=2", "comp=list"];
/// Part of object_store's text about a range that begins behind the end of a local file; a server answers 416.
const BEYOND_END: &str = "but object was only";
/// Beginning of object_store's text about an answer with an error status.
const STATUS: &str = "Server returned non-2xx status code: ";
/// Beginning of object_store's text about an answer that is an error, although its status is not.
const RESPONSE: &str = "Server returned error response: ";

/// Returns whether the store, or its client, reports that the same request will fail again: nothing is there, access is
/// denied, or the request is invalid. All other errors may be temporary.
#[must_use]
pub fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::JoinError { .. } => false,
        E::Generic { .. } => {
            is_wrong_request(error)
                || chain_contains(error, BEYOND_END)
                || is_of_metadata_service(error)
                || matches!(io_kind(error), Some(ErrorKind::PermissionDenied | ErrorKind::NotADirectory))
        }
        _ => true,
    }
}

/// Returns whether the store answered that the request is wrong: a status of 4xx other than 408 and 429, which depend
/// on time.
fn is_wrong_request(error: &object_store::Error) -> bool {
    has_status(error, |status| status.starts_with('4') && !matches!(status, "408" | "429"))
}

/// Returns whether an error results from an answer with a status that is one of these.
pub(crate) fn has_status(error: &object_store::Error, is_one: impl Fn(&str) -> bool) -> bool {
    chain(error).any(|error| {
        let text = error.to_string();
        let status = text.find(STATUS).and_then(|at| text.get(at + STATUS.len()..at + STATUS.len() + 3));
        status.is_some_and(&is_one)
    })
}

/// Parts of the addresses of the cloud's metadata service, the last place where object_store looks for credentials. It
/// answers on cloud machines only.
const METADATA_SERVICE: [&str; 5] = [
    "://169.254.169.254",
    "/latest/api/token",
    "/latest/meta-data/iam/security-credentials",
    "/metadata/identity/oauth2/token",
    "/computeMetadata/v1/instance/service-accounts",
];

/// Returns whether the error is of a request for credentials to the cloud's metadata service. A program that answers in
/// its place, such as a proxy, is not the store.
pub(crate) fn is_of_metadata_service(error: &object_store::Error) -> bool {
    METADATA_SERVICE.iter().any(|address| chain_contains(error, address))
}

/// Returns why the certificate of a server is not accepted.
pub(crate) fn certificate_problem(error: &object_store::Error) -> String {
    if chain_contains(error, "CaUsedAsEndEntity") {
        "it signed itself, and is none of those that are trusted".to_owned()
    } else if chain_contains(error, "UnknownIssuer") {
        "it is signed by no authority that is trusted".to_owned()
    } else {
        cause(error)
    }
}

/// Returns the text of the innermost error, because the errors around it repeat it. Of a server's answer it shows only
/// the status and the error code that S3 and similar stores send: otherwise a person who may name a dataset could read
/// what any web server within reach of this process answers. It shows no secret part of a URL either.
#[must_use]
pub fn cause(error: &object_store::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let shown = match text.split_once(STATUS).or_else(|| text.split_once(RESPONSE)) {
        Some((before, answer)) => {
            let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
            let status = if text.contains(RESPONSE) { "an error" } else { status };
            let body = if text.contains(RESPONSE) { answer } else { body };
            match error_code(body) {
                Some(code) => format!("{before}the server answered {status}: {code}"),
                None => format!("{before}the server answered {status}"),
            }
        }
        None => text,
    };
    let shown = redact(&shown);
    if is_of_metadata_service(error) { format!("this machine's metadata service: {shown}") } else { shown.into_owned() }
}

/// Returns the body of the answer that an error results from.
fn answer(error: &object_store::Error) -> Option<String> {
    chain(error).map(ToString::to_string).find_map(|text| {
        let (_, answer) = text.split_once(STATUS).or_else(|| text.split_once(RESPONSE))?;
        Some(answer.to_owned())
    })
}

/// Returns whether an error results from an answer with one of these error codes.
pub(crate) fn is_answer(error: &object_store::Error, codes: &[&str]) -> bool {
    answer(error).is_some_and(|body| error_code(&body).is_some_and(|code| codes.contains(&code)))
}

/// Returns the region that an answer names. An answer names one if the bucket is in another region than was asked.
pub(crate) fn region(error: &object_store::Error) -> Option<String> {
    answer(error).and_then(|body| element(&body, "Region").map(str::to_owned))
}

/// Returns the code in an XML document that describes an error: `<Error><Code>AccessDenied</Code>...`.
fn error_code(body: &str) -> Option<&str> {
    element(body, "Code")
}

/// Returns the text of the first element with this name, if it is one word.
fn element<'b>(body: &'b str, name: &str) -> Option<&'b str> {
    let (word, _) = body.split_once(&format!("<{name}>"))?.1.split_once(&format!("</{name}>"))?;
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    ((1..=64).contains(&word.len()) && is_word(word)).then_some(word)
}

pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        <dyn Error>::source(*error)
    })
}

pub(crate) fn chain_contains(error: &object_store::Error, text: &str) -> bool {
    chain(error).any(|error| error.to_string().contains(text))
}

pub(crate) fn io_kind(error: &object_store::Error) -> Option<ErrorKind> {
    chain(error).find_map(|error| error.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

pub(crate) fn is_connection_error(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    chain(error)
        .filter_map(|error| error.downcast_ref::<HttpError>())
        .any(|error| matches!(error.kind(), Connect | Request | Timeout | Interrupted))
}
