//! Errors of a store, distinguished by what the user has to do about them.

use std::{error::Error, io::ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};

use crate::{FormatError, manifest::MANIFEST_NAME};
use spdl_core::redact;

/// Why a dataset's folder or something in it cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL or path is invalid, or its options contradict each other.
    #[error("`{url}` cannot be opened: {problem}")]
    BadLocation {
        /// The URL or path as it was given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The URL contains something that may be secret.
    #[error("{problem}")]
    Secret {
        /// The problem, with the URL as it can be shown.
        problem: String,
    },
    /// A variable of the environment has a value from which no store can be made.
    #[error("environment variable `{name}` {problem}")]
    Setting {
        /// The variable.
        name: String,
        /// What is wrong with its value.
        problem: String,
    },
    /// The folder that a manifest has its shards in cannot be used.
    #[error("`{manifest}` has its shards in `{base}`: {problem}")]
    Base {
        /// The manifest.
        manifest: String,
        /// Its base, as it is in the manifest.
        base: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such object or folder.
    #[error("`{url}` does not exist")]
    Missing {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// There is no such bucket.
    #[error("the bucket of `{url}` does not exist")]
    MissingBucket {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// The credentials are missing or do not allow the access.
    #[error("access to `{url}` is denied: {}", cause(source))]
    Denied {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// Nothing answers at the store's address.
    #[error("the store of `{url}` cannot be reached: {}", cause(source))]
    Unreachable {
        /// The object.
        url: String,
        /// The error of the attempt.
        source: object_store::Error,
    },
    /// The store answered with an error of its own.
    #[error("the store failed at `{url}`: {}", cause(source))]
    Failed {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// The object is not the one that was opened, or not the one that the manifest refers to.
    #[error("`{url}` changed: {problem}")]
    Changed {
        /// The object.
        url: String,
        /// What differs.
        problem: String,
    },
    /// The object is longer than the limit.
    #[error("`{url}` has {bytes} bytes, more than {limit_bytes}")]
    TooLarge {
        /// The object.
        url: String,
        /// Its size.
        bytes: u64,
        /// The largest size that is read.
        limit_bytes: u64,
    },
    /// The object was read, but its content is invalid.
    #[error("`{url}` {source}")]
    Format {
        /// The object.
        url: String,
        /// What is wrong with it.
        source: FormatError,
    },
}

impl StoreError {
    /// Converts an error of `object_store` about the object at `url`.
    #[must_use]
    pub fn of(url: &str, source: object_store::Error) -> Self {
        use object_store::Error as E;
        let url = url.to_owned();
        match &source {
            E::NotFound { .. } if chain_contains(&source, "NoSuchBucket") => Self::MissingBucket { url, source },
            E::NotFound { .. } => Self::Missing { url, source },
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Self::Denied { url, source },
            E::Precondition { .. } => {
                Self::Changed { url, problem: "its etag is another one than when it was opened".to_owned() }
            }
            _ if chain_contains(&source, METADATA_SERVICE) => Self::Denied { url, source },
            _ => match io_kind(&source) {
                Some(ErrorKind::PermissionDenied) => Self::Denied { url, source },
                Some(ErrorKind::NotADirectory) => Self::Missing { url, source },
                _ if is_connection_error(&source) => Self::Unreachable { url, source },
                _ => Self::Failed { url, source },
            },
        }
    }

    /// Returns whether the same request can succeed later although nothing was changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Failed { source, .. } => !is_refusal(source),
            Self::Format { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    /// Returns whether the error may come from the connection to the store, in which case no object is at fault.
    #[must_use]
    pub const fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Failed { .. } | Self::Denied { .. })
    }

    /// Returns what the user can do about it, for the `hint:` line.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadLocation { .. } => "give a path, or a URL with file, s3, gs, az, hf, http or https",
            Self::Base { .. } => {
                "a path holds only where each machine sees the shards there, as on a shared file system; otherwise index them \
                 by the URL of a store, or copy the manifest's folder and theirs together"
            }
            Self::Setting { .. } => "correct the variable, or unset it",
            Self::Missing { source, .. } if chain_contains(source, "RevisionNotFound") => {
                "the repository has no such branch, tag or commit; a slash in the name of a branch is %2F in a URL"
            }
            Self::Missing { url, .. } if url.ends_with(MANIFEST_NAME) => {
                "a dataset has a manifest in its hidden folder `.spdl`, which `cp set/*` does not copy; make one with `spdl-ctl pack` or \
                 `spdl-ctl index`"
            }
            Self::Missing { url, .. } if url.starts_with(HUB) => {
                "check repository, revision and path; a private dataset needs HF_TOKEN"
            }
            Self::Missing { .. } => "check the path, and that the dataset was copied whole",
            Self::MissingBucket { .. } => "check the bucket's name, and AWS_REGION and AWS_ENDPOINT",
            Self::Denied { source, .. } if chain_contains(source, METADATA_SERVICE) => {
                "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true"
            }
            Self::Denied { url, source } if url.starts_with(HUB) && chain_contains(source, "Gated") => {
                "accept the terms on the dataset's page, and set HF_TOKEN to a token of the account that has"
            }
            Self::Denied { url, .. } if url.starts_with(HUB) => {
                "check the name, which the Hub refuses like a private one if there is no such dataset; for a private one set HF_TOKEN"
            }
            Self::Denied { .. } => "check the credentials and what they allow",
            Self::Unreachable { .. } => "check the host and port of the URL or of AWS_ENDPOINT, and the network",
            Self::Changed { .. } => {
                "a dataset does not change: copy the object again from where the dataset was made, or make the other one a \
                 dataset in another folder"
            }
            Self::Format { source: FormatError::Newer { .. }, .. } => "update spdl-cluster",
            Self::Format { .. } => "copy the dataset again, or create it again",
            _ => return None,
        })
    }
}

/// How the URLs of the Hugging Face Hub begin.
const HUB: &str = "hf://";
/// How object_store's text about an answer with an error status begins.
const STATUS: &str = "Server returned non-2xx status code: ";
/// How its text begins for an answer that is an error although its status is not.
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
                || chain_contains(error, METADATA_SERVICE)
                || matches!(io_kind(error), Some(ErrorKind::PermissionDenied | ErrorKind::NotADirectory))
        }
        _ => true,
    }
}

/// Returns whether the store answered that the request is wrong: a status of 4xx other than 408 and 429, which depend
/// on time.
fn is_wrong_request(error: &object_store::Error) -> bool {
    chain(error).any(|error| {
        let text = error.to_string();
        let status = text.find(STATUS).and_then(|at| text.get(at + STATUS.len()..at + STATUS.len() + 3));
        status.is_some_and(|status| status.starts_with('4') && !matches!(status, "408" | "429"))
    })
}

/// The last place where object_store looks for credentials: an address that answers on cloud machines only.
const METADATA_SERVICE: &str = "169.254.169.254";

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
    redact(&shown).into_owned()
}

/// Returns the code in an XML document that describes an error: `<Error><Code>AccessDenied</Code>...`.
fn error_code(body: &str) -> Option<&str> {
    let (code, _) = body.split_once("<Code>")?.1.split_once("</Code>")?;
    let is_code = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_code.then_some(code)
}

pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        <dyn Error>::source(*error)
    })
}

fn chain_contains(error: &object_store::Error, text: &str) -> bool {
    chain(error).any(|error| error.to_string().contains(text))
}

fn io_kind(error: &object_store::Error) -> Option<ErrorKind> {
    chain(error).find_map(|error| error.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

fn is_connection_error(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    chain(error)
        .filter_map(|error| error.downcast_ref::<HttpError>())
        .any(|error| matches!(error.kind(), Connect | Request | Timeout | Interrupted))
}
