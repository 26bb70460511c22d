//! The settings of stores, which come from the environment: they are read in one place, trimmed, and checked before a
//! store is made from them. The library `object_store` panics on some of the values that are refused here.

use std::collections::BTreeMap;

use url::Url;

use crate::{StoreError, stores, tls};
use spdl_job::redact;

/// Suffixes of the variables that hold the address of a server.
const ADDRESSES: [&str; 8] = [
    "ENDPOINT",
    "ENDPOINT_URL",
    "ENDPOINT_URL_S3",
    "ENDPOINT_URL_STS",
    "AUTHORITY_HOST",
    "FULL_URI",
    "BASE_URL",
    "_SERVICE_URL",
];
/// Suffixes of the variables whose value becomes part of a host name.
const NAMES: [&str; 5] = ["REGION", "BUCKET", "BUCKET_NAME", "ACCOUNT_NAME", "CONTAINER_NAME"];

/// Options of the stores, keyed by the names of their environment variables.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions(BTreeMap<String, String>);

impl StoreOptions {
    /// Reads the options from the environment: every variable that starts with `AWS_`, `GOOGLE_` or `AZURE_`, such as
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`,
    /// `AWS_SKIP_SIGNATURE`, `AWS_PROFILE`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`; and `NETRC`, a file with
    /// the users and passwords of web servers; and those of the Hugging Face Hub: `HF_TOKEN`, `HF_ENDPOINT`, `HF_HOME`; and
    /// `REQUESTS_CA_BUNDLE` and `SSL_CERT_FILE`, which name certificates.
    #[must_use]
    pub fn from_env() -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        variables.filter(|(name, _)| is_read(name)).collect()
    }

    /// Checks that stores can be made from the options. A process calls this when it starts, so that a mistake is
    /// reported before the first dataset is opened.
    ///
    /// # Errors
    /// [`StoreError::Setting`], which names the variable.
    pub fn check(&self) -> Result<(), StoreError> {
        let is_known = |name: &str| stores::all().any(|store| store.checks(name));
        self.0.iter().filter(|(name, _)| is_known(name)).try_for_each(|(name, value)| {
            let wrong = |problem: String| Err(StoreError::Setting { name: name.clone(), problem });
            if value.chars().any(|c| c.is_control() || !c.is_ascii()) {
                return wrong("has a character in it that no setting can have, such as the end of a line".to_owned());
            }
            if ADDRESSES.iter().any(|end| name.ends_with(end)) {
                return address(value).or_else(wrong);
            }
            let is_name_character = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if NAMES.iter().any(|end| name.ends_with(end)) && !value.chars().all(is_name_character) {
                return wrong(format!("is `{value}`, which is not of A-Z a-z 0-9 . _ - alone"));
            }
            Ok(())
        })
    }

    /// Returns the options whose names start with `prefix`, with their names in lower case.
    pub(crate) fn for_store(&self, prefix: &str) -> impl Iterator<Item = (String, String)> + use<'_> {
        let prefix = prefix.to_owned();
        let of_store = self.0.iter().filter(move |(name, _)| name.starts_with(&prefix));
        of_store.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
    }

    /// Returns these options, and those of `others` that are not among them.
    pub(crate) fn or(&self, others: &Self) -> Self {
        let others = others.0.iter().filter(|(name, _)| !self.0.contains_key(*name));
        Self(self.0.iter().chain(others).map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Returns the value of a variable.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for StoreOptions {
    /// Trims the values, because files and Kubernetes Secrets often end with a line break. A variable that is empty
    /// after that counts as not set.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(options: I) -> Self {
        let trimmed = options.into_iter().map(|(name, value)| (name.into(), value.into().trim().to_owned()));
        Self(trimmed.filter(|(_, value)| !value.is_empty()).collect())
    }
}

/// Returns whether a variable of the environment is one of a store's.
fn is_read(name: &str) -> bool {
    let is_one = |own: &&str| name == *own || own.ends_with('_') && name.starts_with(own);
    tls::OF_ALL.contains(&name) || stores::all().any(|store| store.variables().iter().any(is_one))
}

fn address(value: &str) -> Result<(), String> {
    let shown = redact(value);
    match Url::parse(value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => match url.query().or(url.fragment()) {
            Some(_) => Err(format!("is `{shown}`: an address has no query")),
            None => Ok(()),
        },
        // `host:9000` is a URL whose scheme is `host`.
        _ if !value.contains("://") => {
            Err(format!("is `{shown}`, without a scheme: write `https://{shown}` or `http://{shown}`"))
        }
        Ok(_) => Err(format!("is `{shown}`: the scheme is https or http")),
        Err(error) => Err(format!("is `{shown}`, which is not a URL: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_would_panic_over_is_refused_by_the_name_of_its_variable() {
        for (name, value, expected) in [
            ("AWS_ENDPOINT", "minio:9000", "without a scheme: write `https://minio:9000`"),
            ("AWS_ENDPOINT", "ftp://minio", "https or http"),
            ("AWS_ENDPOINT_URL", "http://host:99999", "not a URL"),
            ("AWS_ENDPOINT_URL_S3", "http://a:b@", "not a URL"),
            ("AZURE_STORAGE_ENDPOINT", "foo:1", "without a scheme"),
            ("AWS_REGION", "us east", "`us east`"),
            ("AWS_SECRET_ACCESS_KEY", "sec\nret", "end of a line"),
            ("AWS_SESSION_TOKEN", "täken", "character"),
        ] {
            let error = StoreOptions::from_iter([(name, value)]).check().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(expected), "{error}");
            assert!(!error.contains("ret") || !name.contains("SECRET"), "no secret is shown: {error}");
        }
    }

    #[test]
    fn space_around_a_value_is_no_part_of_it_and_other_programs_variables_are_theirs() {
        let options = StoreOptions::from_iter([
            ("AWS_ENDPOINT", " http://minio:9000\n"),
            ("AWS_SECRET_ACCESS_KEY", "secret\r\n"),
            ("AWS_REGION", "\n"),
            ("AWS_PROFILE", "größe"),
        ]);
        options.check().unwrap();
        assert_eq!(options.value("AWS_ENDPOINT"), Some("http://minio:9000"));
        assert_eq!(options.value("AWS_SECRET_ACCESS_KEY"), Some("secret"));
        assert_eq!(options.value("AWS_REGION"), None);
    }

    #[test]
    fn credentials_that_other_programs_keep_elsewhere_are_not_read() {
        let sets = |name: &str| is_read(name) && stores::all().any(|store| store.checks(name));
        for name in
            ["AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "GOOGLE_BEARER_TOKEN", "AZURE_USE_AZURE_CLI", "HF_TOKEN"]
        {
            assert!(sets(name), "{name}");
        }
        for name in ["AWS_PROFILE", "AWS_CA_BUNDLE", "HUGGING_FACE_HUB_TOKEN", "NETRC", "SSL_CERT_FILE"] {
            assert!(is_read(name), "{name}");
        }
        for name in [
            "S3_ENDPOINT_URL",
            "CURL_CA_BUNDLE",
            "CLOUDSDK_AUTH_ACCESS_TOKEN",
            "GOOGLE_OAUTH_ACCESS_TOKEN",
            "AZURE_STORAGE_CONNECTION_STRING",
            "AZURE_STORAGE_KEY",
            "HF_API_TOKEN",
        ] {
            assert!(!sets(name), "{name}");
        }
    }
}
