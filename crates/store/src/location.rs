//! Resolves a URL or path to a store and a folder in it.

use std::{str::FromStr, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, http::HttpBuilder, local::LocalFileSystem,
    path::Path,
};
use url::Url;

use crate::{
    StoreError, StoreLayer, StoreOptions,
    folder::{FolderAccess, StoreFolder},
    hub::{HubFiles, HubLocation, HubStore},
    no_retry::Connector,
    page_cache::PageCacheStore,
    profile::AwsProfile,
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

pub(crate) fn open(url_or_path: &str, access: FolderAccess) -> Result<StoreFolder, StoreError> {
    let FolderAccess { options, mode } = &access;
    let bad = |problem: String| StoreError::BadLocation {
        url: redact(url_or_path).into_owned(),
        problem: redact(&problem).into_owned(),
    };
    if let Some(problem) = secret_in(url_or_path) {
        return Err(StoreError::Secret { problem });
    }
    if !url_or_path.contains("://") {
        return folder(std::path::Path::new(url_or_path), url_or_path, access);
    }
    let url = Url::parse(url_or_path).map_err(|error| bad(error.to_string()))?;
    if url.scheme() == "file" {
        let path = url.to_file_path().map_err(|()| bad("it names a file on another host".to_owned()))?;
        return folder(&path, url_or_path, access);
    }
    if url.scheme() == "hf" {
        return on_hub(&url, access);
    }
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|error| bad(error.to_string()))?;
    if *mode == StoreMode::Write && scheme == ObjectStoreScheme::Http {
        return Err(bad("a web server can be read, not written; write to a folder or a bucket".to_owned()));
    }
    options.check()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if let Some(name) = url.host_str().filter(|name| scheme != ObjectStoreScheme::Http && !name.chars().all(is_name)) {
        return Err(bad(format!("`{name}` cannot be the name of a bucket")));
    }
    let authorization = match scheme {
        ObjectStoreScheme::Http => options.authorization(url.host_str().unwrap_or_default())?,
        _ => None,
    };
    let profile = match scheme {
        ObjectStoreScheme::AmazonS3 => AwsProfile::of(options)?,
        _ => None,
    };
    let trusted = TrustedCertificates::of(options, scheme == ObjectStoreScheme::AmazonS3)?;
    let policy = ClientPolicy::of(*mode, authorization, trusted);
    let object = remote(&scheme, &url, options, profile, policy);
    let object = object.map_err(|error| bad(error.to_string()))?;
    let object = object.ok_or_else(|| bad(format!("there is no store for `{}`", url.scheme())))?;
    Ok(StoreFolder {
        object,
        folder: path,
        url: shown(url).into(),
        keeps_etags: true,
        local: None,
        access: Arc::new(access),
        hub: None,
    })
}

/// Opens a folder on the Hugging Face Hub.
fn on_hub(url: &Url, access: FolderAccess) -> Result<StoreFolder, StoreError> {
    let bad = |problem: String| StoreError::BadLocation { url: url.to_string(), problem };
    if access.mode == StoreMode::Write {
        return Err(bad("the Hub can be read, not written; write to a folder or a bucket".to_owned()));
    }
    let location = HubLocation::of(url).map_err(bad)?;
    access.options.check()?;
    let folder = location.folder.clone();
    let trusted = TrustedCertificates::of(&access.options, false)?;
    let policy = ClientPolicy::of(access.mode, access.options.hub_authorization(), trusted);
    let ClientPolicy { retry, client, connector } = policy;
    let hub = HubStore::new(location, access.options.hub_endpoint(), client, retry, connector);
    let hub = hub.map_err(|error| bad(error.to_string()))?;
    Ok(StoreFolder {
        object: Arc::new(HubFiles(Arc::clone(&hub))).layered(),
        folder,
        url: shown(url.clone()).into(),
        keeps_etags: true,
        local: None,
        access: Arc::new(access),
        hub: Some(hub),
    })
}

fn folder(path: &std::path::Path, given: &str, access: FolderAccess) -> Result<StoreFolder, StoreError> {
    let generic = |source: std::io::Error| object_store::Error::Generic { store: "file", source: source.into() };
    let path = std::path::absolute(path).map_err(|source| StoreError::of(given, generic(source)))?;
    let url = path.to_string_lossy().trim_end_matches('/').to_owned();
    let writes = access.mode == StoreMode::Write;
    if writes {
        std::fs::create_dir_all(&path).map_err(|source| StoreError::of(&url, generic(source)))?;
    }
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(StoreError::BadLocation { url, problem: "it is a file, not a dataset's folder".to_owned() });
        }
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            let source = object_store::Error::NotFound { path: url.clone(), source: source.into() };
            return Err(StoreError::of(&url, source));
        }
        Err(source) => return Err(StoreError::of(&url, generic(source))),
    }
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|source| StoreError::of(&url, source))?;
    let object = PageCacheStore::over(store.with_fsync(writes), &path);
    let local = Some(path.into());
    Ok(StoreFolder {
        object,
        folder: Path::default(),
        url: url.into(),
        keeps_etags: false,
        local,
        access: Arc::new(access),
        hub: None,
    })
}

/// The retry and HTTP settings of a remote store's client.
struct ClientPolicy {
    retry: RetryConfig,
    client: ClientOptions,
    connector: Connector,
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

/// Applies the settings to the builder of any store.
macro_rules! builder {
    ($builder:ty, $policy:expr) => {
        <$builder>::new()
            .with_retry($policy.retry)
            .with_client_options($policy.client)
            .with_http_connector($policy.connector)
    };
}

fn remote(
    scheme: &ObjectStoreScheme,
    url: &Url,
    options: &StoreOptions,
    profile: Option<AwsProfile>,
    policy: ClientPolicy,
) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    // `http` in a URL or endpoint means that the user accepts plain HTTP.
    let plain_http = |url: &str| url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    Ok(Some(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let options = &profile.as_ref().map_or_else(|| options.clone(), |profile| options.or(&profile.settings));
            let endpoint = ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"].into_iter();
            let allow_http = endpoint.filter_map(|name| options.value(name)).any(plain_http);
            let builder = builder!(AmazonS3Builder, policy).with_url(url.as_str()).with_allow_http(allow_http);
            let builder = with_options(builder, options.for_store("AWS_"), AmazonS3Builder::with_config);
            Arc::new(match profile.and_then(|profile| profile.credentials) {
                Some(credentials) => builder.with_credentials(credentials).build()?,
                None => builder.build()?,
            })
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = builder!(GoogleCloudStorageBuilder, policy).with_url(url.as_str());
            Arc::new(
                with_options(builder, options.for_store("GOOGLE_"), GoogleCloudStorageBuilder::with_config).build()?,
            )
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = builder!(MicrosoftAzureBuilder, policy).with_url(url.as_str());
            Arc::new(with_options(builder, options.for_store("AZURE_"), MicrosoftAzureBuilder::with_config).build()?)
        }
        ObjectStoreScheme::Http => {
            let allow_http = plain_http(url.as_str()).to_string();
            let builder = builder!(HttpBuilder, policy).with_url(&url[..url::Position::BeforePath]);
            Arc::new(builder.with_config(ClientConfigKey::AllowHttp, allow_http).build()?)
        }
        _ => return Ok(None),
    }))
}

/// Applies the options whose names the store knows.
fn with_options<B, K: FromStr>(
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
