//! S3, and the servers that speak its protocol.

mod profile;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use spdl_job::scheme::{S3, UrlScheme};

use self::profile::AwsProfile;
use super::{OpenedFolder, SoughtCredentials, Store};
use crate::{
    StoreError,
    location::{Location, is_plain_http, with_options},
};

pub(super) struct S3Store;

impl Store for S3Store {
    fn scheme(&self) -> &'static UrlScheme {
        &S3
    }

    fn hosts(&self) -> &'static [&'static str] {
        &["amazonaws.com", "r2.cloudflarestorage.com"]
    }

    /// The files of profiles lie in `HOME`.
    fn variables(&self) -> &'static [&'static str] {
        &["AWS_", "HOME"]
    }

    fn checks(&self, variable: &str) -> bool {
        variable.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().is_ok()
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn sought(&self) -> Option<SoughtCredentials> {
        Some(SoughtCredentials {
            missing: "there is no AWS_ACCESS_KEY_ID, no AWS_WEB_IDENTITY_TOKEN_FILE, no profile with credentials in ~/.aws/config or \
                      ~/.aws/credentials, no container's role, and this machine has none",
            hint: "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a public bucket needs AWS_SKIP_SIGNATURE=true",
        })
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let (url, folder) = location.bucket()?;
        let profile = AwsProfile::of(&location.access.options)?;
        let policy = location.client(None, Some("AWS_CA_BUNDLE"))?;
        let (settings, credentials) =
            profile.map_or_else(Default::default, |profile| (profile.settings, profile.credentials));
        let options = location.access.options.or(&settings);
        let endpoints = ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"];
        let allow_http = endpoints.iter().filter_map(|name| options.value(name)).any(is_plain_http);
        let builder = AmazonS3Builder::new().with_retry(policy.retry).with_client_options(policy.client);
        let builder = builder.with_http_connector(policy.connector).with_url(url.as_str()).with_allow_http(allow_http);
        let mut builder = with_options(builder, options.for_store("AWS_"), AmazonS3Builder::with_config);
        if let Some(credentials) = credentials {
            builder = builder.with_credentials(credentials);
        }
        Ok(OpenedFolder::remote(builder.build().map_err(|error| location.bad(error))?, folder))
    }
}
