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

#[cfg(test)]
mod tests {
    use crate::{StoreFolder, StoreOptions};

    #[test]
    fn files_of_users_are_read_and_those_of_workload_identity_federation_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |text: &str| {
            let file = folder.path().join("credentials.json");
            std::fs::write(&file, text).unwrap();
            let options = [("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap())];
            StoreFolder::open_with("gs://bucket/set", &StoreOptions::from_iter(options))
        };
        let user = r#"{"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}"#;
        open(user).unwrap();
        let error = open(r#"{"type": "external_account", "audience": "a"}"#).unwrap_err().to_string();
        assert!(error.contains("gs://bucket/set") && error.contains("external_account"), "{error}");
    }
}
