//! Errors of a store, distinguished by what the user has to do about them.

use std::{error::Error, fmt, io::ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};
use spdl_job::redact;

use crate::TemporaryError;

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
    /// A profile of AWS's own programs cannot be used.
    #[error("AWS profile `{profile}` cannot be used: {problem}")]
    Profile {
        /// The profile's name.
        profile: String,
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
    /// The bucket is in another region than the one that was asked.
    #[error("the bucket of `{url}` is in {}", region(source).map_or("another region".to_owned(), |region| format!("region `{region}`")))]
    WrongRegion {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// There are no credentials, so nothing was asked of the store.
    #[error("no credentials for `{url}` were found: {} ({})", looked_for(url), cause(source))]
    NoCredentials {
        /// The object.
        url: String,
        /// The error of the last place where credentials could have been.
        source: object_store::Error,
    },
    /// The store refuses the credentials, or they do not allow the access.
    #[error("access to `{url}` is denied: {}", cause(source))]
    Denied {
        /// The object.
        url: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// The certificate of the store is not trusted.
    #[error("the certificate of the store of `{url}` is not accepted: {}", certificate_problem(source))]
    Untrusted {
        /// The object.
        url: String,
        /// The error of the attempt.
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
        source: ContentError,
    },
}

/// What is wrong with the content of an object that was read. The store knows no format: the reader of one makes the error.
#[derive(Debug)]
pub struct ContentError {
    /// What is wrong.
    pub error: Box<dyn Error + Send + Sync>,
    /// Whether the object may be whole when it is read again.
    pub is_retryable: bool,
    /// What the user can do about it.
    pub hint: &'static str,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for ContentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// An object that cannot be kept where it could be read in place.
#[derive(Debug, thiserror::Error)]
#[error("cannot be written: {0}")]
struct NotKept(#[from] TemporaryError);

impl ContentError {
    /// The hint about an object that is damaged or is not what it should be.
    pub const MAKE_AGAIN: &str = "copy the dataset again, or create it again";
}

impl From<TemporaryError> for ContentError {
    fn from(error: TemporaryError) -> Self {
        Self { error: Box::new(NotKept(error)), is_retryable: false, hint: Self::MAKE_AGAIN }
    }
}

impl StoreError {
    /// Converts an error of `object_store` about the object at `url`.
    #[must_use]
    pub fn of(url: &str, source: object_store::Error) -> Self {
        use object_store::Error as E;
        let url = url.to_owned();
        if let Some(Self::Profile { profile, problem }) = chain(&source).find_map(|error| error.downcast_ref()) {
            return Self::Profile { profile: profile.clone(), problem: problem.clone() };
        }
        match &source {
            E::NotFound { .. } if chain_contains(&source, "NoSuchBucket") => Self::MissingBucket { url, source },
            E::NotFound { .. } => Self::Missing { url, source },
            // A web server needs none.
            _ if is_of_metadata_service(&source) && !url.starts_with("http") => Self::NoCredentials { url, source },
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Self::Denied { url, source },
            E::Precondition { .. } => {
                Self::Changed { url, problem: "its etag is another one than when it was opened".to_owned() }
            }
            _ if url.starts_with("s3") && (region(&source).is_some() || is_answer(&source, &OTHER_REGION)) => {
                Self::WrongRegion { url, source }
            }
            // For a request for a list, the library returns no more specific error than this.
            _ if has_status(&source, |status| matches!(status, "401" | "403")) => Self::Denied { url, source },
            _ if is_answer(&source, &EXPIRED) || is_answer(&source, &UNKNOWN_CREDENTIALS) => {
                Self::Denied { url, source }
            }
            _ => match io_kind(&source) {
                Some(ErrorKind::PermissionDenied) => Self::Denied { url, source },
                Some(ErrorKind::NotADirectory) => Self::Missing { url, source },
                _ if chain_contains(&source, CERTIFICATE) => Self::Untrusted { url, source },
                _ if is_connection_error(&source) => Self::Unreachable { url, source },
                _ => Self::Failed { url, source },
            },
        }
    }

    /// Returns whether the same request can succeed later although nothing was changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Untrusted { .. } => true,
            Self::Failed { source, .. } => !is_refusal(source),
            Self::Format { source, .. } => source.is_retryable,
            _ => false,
        }
    }

    /// Returns whether the error may come from the connection to the store, in which case no object is at fault.
    #[must_use]
    pub const fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Untrusted { .. }
                | Self::Failed { .. }
                | Self::Denied { .. }
                | Self::NoCredentials { .. }
                | Self::WrongRegion { .. }
        )
    }

    /// Returns what the user can do about it, for the `hint:` line.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadLocation { .. } => "give a path, or a URL with file, s3, gs, az, hf, http or https",
            Self::Setting { .. } => "correct the variable, or unset it",
            Self::Missing { source, .. } if chain_contains(source, "RevisionNotFound") => {
                "the repository has no such branch, tag or commit; a slash in the name of a branch is %2F in a URL"
            }
            Self::Missing { url, .. } if url.ends_with(MANIFEST) => {
                "a dataset has a manifest in its hidden folder `.spdl`, which `cp set/*` does not copy; make one with `spdl-ctl pack` or \
                 `spdl-ctl index`"
            }
            Self::Missing { url, .. } if url.starts_with(HUB) => {
                "check repository, revision and path; a private dataset needs HF_TOKEN"
            }
            Self::Missing { .. } => "check the path, and that the dataset was copied whole",
            Self::Profile { .. } => {
                "correct it, name another one with AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; what needs AWS's own \
                 command runs `aws configure export-credentials`"
            }
            Self::MissingBucket { .. } => "check the bucket's name, and AWS_REGION and AWS_ENDPOINT",
            Self::WrongRegion { .. } => {
                "set AWS_REGION to the bucket's region; for a server other than AWS set AWS_ENDPOINT"
            }
            Self::NoCredentials { url, .. } if url.starts_with(GOOGLE) => {
                "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`; a public bucket needs \
                 GOOGLE_SKIP_SIGNATURE=true"
            }
            Self::NoCredentials { url, .. } if url.starts_with(AZURE) => {
                "set AZURE_STORAGE_ACCOUNT_KEY or another of these; a public container needs AZURE_SKIP_SIGNATURE=true"
            }
            Self::NoCredentials { .. } => {
                "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a public bucket needs AWS_SKIP_SIGNATURE=true"
            }
            Self::Denied { source, .. } if is_answer(source, &EXPIRED) => {
                "the credentials have expired: renew them, as with `aws sso login`, or give some that renew themselves, such as a profile \
                 with credential_process or the machine's role"
            }
            Self::Denied { source, .. } if is_answer(source, &UNKNOWN_CREDENTIALS) => {
                "the store does not know these credentials: check that key and secret belong together and are of this store, \
                 which AWS_ENDPOINT names if it is not AWS"
            }
            Self::Denied { source, .. } if is_answer(source, &["RequestTimeTooSkewed"]) => {
                "set this machine's clock: the store compares the time of a request with its own"
            }
            Self::Denied { url, source } if url.starts_with(AZURE) && is_answer(source, &["AuthenticationFailed"]) => {
                "the account's key or the SAS token is wrong, is of another account, or has expired"
            }
            Self::Denied { url, source } if url.starts_with(HUB) && chain_contains(source, "Gated") => {
                "accept the terms on the dataset's page, and set HF_TOKEN to a token of the account that has"
            }
            Self::Denied { url, .. } if url.starts_with(HUB) => {
                "check the name, which the Hub refuses like a private one if there is no such dataset; for a private one set HF_TOKEN"
            }
            Self::Denied { source, .. } if LISTS.iter().any(|list| chain_contains(source, list)) => {
                "the credentials do not allow to list the folder, which takes s3:ListBucket, storage.objects.list, or on Azure the role \
                 Storage Blob Data Reader"
            }
            Self::Denied { url, .. } if !url.contains("://") => "check the permissions of the file and of its folders",
            Self::Denied { url, .. } if url.starts_with("http") => {
                "check the URL; a server that wants a user and a password needs a netrc file, which NETRC names"
            }
            Self::Denied { .. } => {
                "check the credentials and what they allow; where they may not list a bucket, S3 says the same of an object that is not there"
            }
            Self::Untrusted { source, .. } if chain_contains(source, "not valid for name") => {
                "use the name that the certificate has (subjectAltName) in the URL or in AWS_ENDPOINT, or make a certificate with this name"
            }
            Self::Untrusted { source, .. }
                if chain_contains(source, "xpired") || chain_contains(source, "not valid yet") =>
            {
                "the server's certificate has to be renewed, unless this machine's clock is wrong"
            }
            Self::Untrusted { .. } => {
                "name the certificate of the authority that signed it, as a file of PEM, with AWS_CA_BUNDLE for S3, or with \
                 REQUESTS_CA_BUNDLE or SSL_CERT_FILE for all stores"
            }
            Self::Unreachable { source, .. } if chain_contains(source, NO_TLS) => {
                "the server answers without TLS: write http:// in the URL or in AWS_ENDPOINT if that is meant"
            }
            Self::Unreachable { .. } => "check the host and port of the URL or of AWS_ENDPOINT, and the network",
            Self::Changed { .. } => {
                "a dataset does not change: copy the object again from where the dataset was made, or make the other one a \
                 dataset in another folder"
            }
            Self::Format { source, .. } => source.hint,
            _ => return None,
        })
    }
}

/// The name of a dataset's manifest, which tells a folder that is no dataset from one that lacks an object.
const MANIFEST: &str = "manifest.spdl";
/// Beginning of the URLs of the Hugging Face Hub.
const HUB: &str = "hf://";
/// Beginning of the URLs of Google's store.
const GOOGLE: &str = "gs://";
/// Beginning of the URLs of Azure's store.
const AZURE: &str = "az://";
/// Error codes of stores for a bucket that is in another region.
const OTHER_REGION: [&str; 2] = ["PermanentRedirect", "IllegalLocationConstraintException"];
/// Error codes of stores for credentials that are no longer valid.
const EXPIRED: [&str; 4] = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"];
/// Error codes of stores for credentials that they do not know.
const UNKNOWN_CREDENTIALS: [&str; 4] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"];
/// Part of TLS's error texts about a certificate.
const CERTIFICATE: &str = "invalid peer certificate";
/// Part of TLS's error text for an answer that is not TLS.
const NO_TLS: &str = "InvalidContentType";
/// Parts of the addresses of requests for a list.
const LISTS: [&str; 2] = ["list-type=2", "comp=list"];
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
fn has_status(error: &object_store::Error, is_one: impl Fn(&str) -> bool) -> bool {
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
fn is_of_metadata_service(error: &object_store::Error) -> bool {
    METADATA_SERVICE.iter().any(|address| chain_contains(error, address))
}

/// Returns the places where credentials for `url` were looked for.
fn looked_for(url: &str) -> &'static str {
    if url.starts_with(GOOGLE) {
        "there is no GOOGLE_SERVICE_ACCOUNT, no GOOGLE_APPLICATION_CREDENTIALS, and no file of `gcloud auth application-default login`, and \
         this machine has no role"
    } else if url.starts_with(AZURE) {
        "there is no AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, and this machine \
         has no identity"
    } else {
        "there is no AWS_ACCESS_KEY_ID, no AWS_WEB_IDENTITY_TOKEN_FILE, no profile with credentials in ~/.aws/config or \
         ~/.aws/credentials, no container's role, and this machine has none"
    }
}

/// Returns why the certificate of a server is not accepted.
fn certificate_problem(error: &object_store::Error) -> String {
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
fn is_answer(error: &object_store::Error, codes: &[&str]) -> bool {
    answer(error).is_some_and(|body| error_code(&body).is_some_and(|code| codes.contains(&code)))
}

/// Returns the region that an answer names. An answer names one if the bucket is in another region than the one that
/// was asked.
fn region(error: &object_store::Error) -> Option<String> {
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
