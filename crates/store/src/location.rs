//! Resolves a URL or path to a store and a folder in it.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use object_store::{BackoffConfig, ClientOptions, ObjectStoreScheme, RetryConfig, path::Path};
use url::Url;

use crate::{
    StoreError,
    folder::{FolderAccess, StoreFolder},
    no_retry::Connector,
    stores::{self, OpenedFolder},
    tls::TrustedCertificates,
};
use spdl_job::{redact, secret_in};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreMode {
    /// A few quick retries inside each request.
    Read,
    /// No retries, and no time-out but the one for connecting: the caller decides about both.
    ReadOnce,
    Write,
}

impl StoreMode {
    /// Returns the mode for reading, beside something that was opened in this mode.
    pub(crate) const fn reading(self) -> Self {
        match self {
            Self::ReadOnce => Self::ReadOnce,
            Self::Read | Self::Write => Self::Read,
        }
    }
}

/// A folder that is being opened.
pub(crate) struct Location<'a> {
    /// The URL or path as it was given.
    pub(crate) given: &'a str,
    /// The URL; `None` for a path.
    pub(crate) url: Option<Url>,
    pub(crate) access: &'a FolderAccess,
}

pub(crate) fn open(given: &str, access: FolderAccess) -> Result<StoreFolder, StoreError> {
    if let Some(problem) = secret_in(given) {
        return Err(StoreError::Secret { problem });
    }
    let mut location = Location { given, url: None, access: &access };
    if given.contains("://") {
        location.url = Some(Url::parse(given).map_err(|error| location.bad(error))?);
    }
    let store = stores::of(given).ok_or_else(|| location.bad("there is no store for such URLs"))?;
    if let Some(name) = store.read_only().filter(|_| access.mode == StoreMode::Write) {
        return Err(location.bad(format!("{name} can be read, not written; write to a folder or a bucket")));
    }
    let OpenedFolder { object, folder, local, versions } = store.open(&location)?;
    let url = match (&local, location.url) {
        (Some(path), _) => path.to_string_lossy().trim_end_matches('/').into(),
        (None, Some(url)) => shown(url).into(),
        (None, None) => given.into(),
    };
    Ok(StoreFolder { object, folder, url, store, local, access: Arc::new(access), versions })
}

impl Location<'_> {
    /// Returns the error for a location that cannot be opened.
    pub(crate) fn bad(&self, problem: impl fmt::Display) -> StoreError {
        let problem = redact(&problem.to_string()).into_owned();
        StoreError::BadLocation { url: redact(self.given).into_owned(), problem }
    }

    /// Returns the URL of a folder that is not on this machine.
    pub(crate) fn url(&self) -> Result<&Url, StoreError> {
        self.url.as_ref().ok_or_else(|| self.bad("it is a path"))
    }

    /// Returns the URL of a folder in a bucket, and the path of the folder in the bucket.
    pub(crate) fn bucket(&self) -> Result<(&Url, Path), StoreError> {
        let url = self.url()?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let (_, path) = ObjectStoreScheme::parse(url).map_err(|error| self.bad(error))?;
        match url.host_str().filter(|name| !name.chars().all(is_name)) {
            Some(name) => Err(self.bad(format!("`{name}` cannot be the name of a bucket"))),
            None => Ok((url, path)),
        }
    }

    /// Returns the settings of the client of a store that is not on this machine, which sends `authorization` and
    /// trusts the certificates that the variable `certificates` names.
    pub(crate) fn client(
        &self,
        authorization: Option<Arc<str>>,
        certificates: Option<&'static str>,
    ) -> Result<ClientPolicy, StoreError> {
        let FolderAccess { options, mode } = self.access;
        options.check()?;
        Ok(ClientPolicy::of(*mode, authorization, TrustedCertificates::of(options, certificates)?))
    }
}

/// The retry and HTTP settings of a remote store's client.
pub(crate) struct ClientPolicy {
    pub(crate) retry: RetryConfig,
    pub(crate) client: ClientOptions,
    pub(crate) connector: Connector,
}

impl ClientPolicy {
    fn of(access: StoreMode, authorization: Option<Arc<str>>, trusted: Option<TrustedCertificates>) -> Self {
        let backoff =
            BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2.0 };
        let quick = RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(30) };
        match access {
            StoreMode::Read | StoreMode::Write => {
                let connector = Connector { asks_once: false, authorization, trusted };
                Self { retry: quick, client: ClientOptions::new(), connector }
            }
            StoreMode::ReadOnce => Self {
                retry: RetryConfig { max_retries: 0, ..quick },
                client: ClientOptions::new().with_timeout_disabled(),
                connector: Connector { asks_once: true, authorization, trusted },
            },
        }
    }
}

/// Returns whether a URL or endpoint is one of plain HTTP, which the user accepts by writing it.
pub(crate) fn is_plain_http(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"))
}

/// Applies the options whose names the store knows.
pub(crate) fn with_options<B, K: FromStr>(
    builder: B,
    options: impl Iterator<Item = (String, String)>,
    set: impl Fn(B, K, String) -> B,
) -> B {
    options.fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => set(builder, key, value),
        Err(_) => builder,
    })
}

fn shown(mut url: Url) -> String {
    url.set_fragment(None);
    redact(url.as_str().trim_end_matches('/')).into_owned()
}
