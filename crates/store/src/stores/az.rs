//! Azure's store.

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use spdl_job::scheme::{AZURE, UrlScheme};

use super::{OpenedFolder, SoughtCredentials, Store};
use crate::{
    StoreError,
    cause::is_answer,
    location::{Location, with_options},
};

pub(super) struct AzureStore;

impl Store for AzureStore {
    fn scheme(&self) -> &'static UrlScheme {
        &AZURE
    }

    fn hosts(&self) -> &'static [&'static str] {
        &["dfs.core.windows.net", "blob.core.windows.net", "dfs.fabric.microsoft.com", "blob.fabric.microsoft.com"]
    }

    fn variables(&self) -> &'static [&'static str] {
        &["AZURE_"]
    }

    fn checks(&self, variable: &str) -> bool {
        variable.to_ascii_lowercase().parse::<AzureConfigKey>().is_ok()
    }

    fn sought(&self) -> Option<SoughtCredentials> {
        Some(SoughtCredentials {
            missing: "there is no AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, \
                      and this machine has no identity",
            hint: "set AZURE_STORAGE_ACCOUNT_KEY or another of these; a public container needs AZURE_SKIP_SIGNATURE=true",
        })
    }

    fn hint(&self, error: &StoreError) -> Option<&'static str> {
        let StoreError::Denied { source, .. } = error else { return None };
        is_answer(source, &["AuthenticationFailed"])
            .then_some("the account's key or the SAS token is wrong, is of another account, or has expired")
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let (url, folder) = location.bucket()?;
        let policy = location.client(None, None)?;
        let builder = MicrosoftAzureBuilder::new().with_retry(policy.retry).with_client_options(policy.client);
        let builder = builder.with_http_connector(policy.connector).with_url(url.as_str());
        let options = location.access.options.for_store("AZURE_");
        let builder = with_options(builder, options, MicrosoftAzureBuilder::with_config);
        Ok(OpenedFolder::remote(builder.build().map_err(|error| location.bad(error))?, folder))
    }
}
