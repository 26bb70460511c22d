//! Errors of a store, distinguished by what the user has to do about them.

use std::{error::Error, fmt, io::ErrorKind};

use crate::{
    TemporaryError,
    cause::{
        CERTIFICATE, EXPIRED, LISTS, NO_TLS, OTHER_REGION, UNKNOWN_CREDENTIALS, cause, certificate_problem, chain,
        chain_contains, has_status, io_kind, is_answer, is_connection_error, is_of_metadata_service, is_refusal,
        region,
    },
    stores::{self, SoughtCredentials, Store},
};

/// The name of a dataset's manifest, which tells a folder that is no dataset from one that lacks an object.
const MANIFEST: &str = "manifest.spdl";

/// Returns whether an object is the manifest of a dataset.
pub(crate) fn is_of_manifest(url: &str) -> bool {
    url.ends_with(MANIFEST)
}

/// Why a dataset's folder or something in it cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum StoreError {
    /// The URL or path is invalid, or its options contradict each other.
    #[error("`{url}` cannot be opened: {problem}")]
    BadLocation { url: String, problem: String },
    /// The URL contains something that may be secret.
    #[error("{problem}")]
    Secret { problem: String },
    /// A variable of the environment has a value from which no store can be made.
    #[error("environment variable `{name}` {problem}")]
    Setting { name: String, problem: String },
    /// A profile of AWS's own programs cannot be used.
    #[error("AWS profile `{profile}` cannot be used: {problem}")]
    Profile { profile: String, problem: String },
    /// There is no such object or folder.
    #[error("`{url}` does not exist")]
    Missing { url: String, source: object_store::Error },
    /// There is no such bucket.
    #[error("the bucket of `{url}` does not exist")]
    MissingBucket { url: String, source: object_store::Error },
    /// The bucket is in another region than was asked.
    #[error("the bucket of `{url}` is in {}", region(source).map_or("another region".to_owned(), |region| format!("region `{region}`")))]
    WrongRegion { url: String, source: object_store::Error },
    /// There are no credentials, so nothing was asked of the store.
    #[error("no credentials for `{url}` were found: {} ({})", sought(url).map_or("", |sought| sought.missing), cause(source))]
    NoCredentials { url: String, source: object_store::Error },
    /// The store refuses the credentials, or they do not allow the access.
    #[error("access to `{url}` is denied: {}", cause(source))]
    Denied { url: String, source: object_store::Error },
    /// The certificate of the store is not trusted.
    #[error("the certificate of the store of `{url}` is not accepted: {}", certificate_problem(source))]
    Untrusted { url: String, source: object_store::Error },
    /// Nothing answers at the store's address.
    #[error("the store of `{url}` cannot be reached: {}", cause(source))]
    Unreachable { url: String, source: object_store::Error },
    /// The store answered with an error of its own.
    #[error("the store failed at `{url}`: {}", cause(source))]
    Failed { url: String, source: object_store::Error },
    /// The object is another than was opened, or than the manifest refers to.
    #[error("`{url}` changed: {problem}")]
    Changed { url: String, problem: String },
    /// The object is longer than the limit.
    #[error("`{url}` has {bytes} bytes, more than {limit_bytes}")]
    TooLarge { url: String, bytes: u64, limit_bytes: u64 },
    /// The object was read, but its content is invalid.
    #[error("`{url}` {source}")]
    Format { url: String, source: ContentError },
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
            _ if is_of_metadata_service(&source) && sought(&url).is_some() => Self::NoCredentials { url, source },
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Self::Denied { url, source },
            E::Precondition { .. } => {
                Self::Changed { url, problem: "its etag is another one than when it was opened".to_owned() }
            }
            _ if stores::of(&url).is_some_and(Store::has_regions)
                && (region(&source).is_some() || is_answer(&source, &OTHER_REGION)) =>
            {
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
        let of_store = match self {
            Self::Missing { url, .. } | Self::Denied { url, .. } => stores::of(url).and_then(|store| store.hint(self)),
            _ => None,
        };
        Some(match self {
            Self::BadLocation { .. } => &stores::HINT,
            Self::Setting { .. } => "correct the variable, or unset it",
            Self::Missing { url, .. } if is_of_manifest(url) && of_store.is_none() => {
                "a dataset has a manifest in its hidden folder `.spdl`, which `cp set/*` does not copy; make one with `spdl-ctl pack` or \
                 `spdl-ctl index`"
            }
            Self::Missing { .. } => of_store.unwrap_or("check the path, and that the dataset was copied whole"),
            Self::Profile { .. } => {
                "correct it, name another one with AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; what needs AWS's own \
                 command runs `aws configure export-credentials`"
            }
            Self::MissingBucket { .. } => "check the bucket's name, and AWS_REGION and AWS_ENDPOINT",
            Self::WrongRegion { .. } => {
                "set AWS_REGION to the bucket's region; for a server other than AWS set AWS_ENDPOINT"
            }
            Self::NoCredentials { url, .. } => sought(url)?.hint,
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
            Self::Denied { source, .. } if of_store.is_none() && LISTS.iter().any(|list| chain_contains(source, list)) => {
                "the credentials do not allow to list the folder, which takes s3:ListBucket, storage.objects.list, or on Azure the role \
                 Storage Blob Data Reader"
            }
            Self::Denied { .. } => of_store.unwrap_or(
                "check the credentials and what they allow; where they may not list a bucket, S3 says the same of an object that is not there",
            ),
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

/// Returns where the store of `url` looks for credentials.
fn sought(url: &str) -> Option<SoughtCredentials> {
    stores::of(url)?.sought()
}
