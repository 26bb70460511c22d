//! Google's store.

use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use spdl_job::scheme::{GOOGLE, UrlScheme};

use super::{OpenedFolder, SoughtCredentials, Store};
use crate::{
    StoreError,
    location::{Location, with_options},
};

pub(super) struct GoogleStore;

impl Store for GoogleStore {
    fn scheme(&self) -> &'static UrlScheme {
        &GOOGLE
    }

    fn variables(&self) -> &'static [&'static str] {
        &["GOOGLE_"]
    }

    fn checks(&self, variable: &str) -> bool {
        variable.to_ascii_lowercase().parse::<GoogleConfigKey>().is_ok()
    }

    fn sought(&self) -> Option<SoughtCredentials> {
        Some(SoughtCredentials {
            missing: "there is no GOOGLE_SERVICE_ACCOUNT, no GOOGLE_APPLICATION_CREDENTIALS, and no file of \
                      `gcloud auth application-default login`, and this machine has no role",
            hint: "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`; a public bucket needs \
                   GOOGLE_SKIP_SIGNATURE=true",
        })
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let (url, folder) = location.bucket()?;
        let policy = location.client(None, None)?;
        let builder = GoogleCloudStorageBuilder::new().with_retry(policy.retry).with_client_options(policy.client);
        let builder = builder.with_http_connector(policy.connector).with_url(url.as_str());
        let options = location.access.options.for_store("GOOGLE_");
        let builder = with_options(builder, options, GoogleCloudStorageBuilder::with_config);
        Ok(OpenedFolder::remote(builder.build().map_err(|error| location.bad(error))?, folder))
    }
}
