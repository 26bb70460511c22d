//! The settings of stores, which come from the environment: they are read in one place, trimmed, and checked before a
//! store is made from them. The library `object_store` panics on some of the values that are refused here.

use std::{collections::BTreeMap, sync::Arc};

use object_store::{aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey};
use url::Url;

use crate::{StoreError, hub, tls};
use spdl_job::redact;

/// The variable that names a netrc file.
const NETRC: &str = "NETRC";
/// The variables of the Hugging Face Hub, and those that name the place of its token. AWS's profiles lie in `HOME`,
/// too.
const HUB: [&str; 7] =
    ["HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HOME"];
/// Size of the largest file that is read for the Hub's token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;
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
        let ours = |name: &str| {
            name == NETRC
                || HUB.contains(&name)
                || tls::OF_ALL.contains(&name)
                || ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix))
        };
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        variables.filter(|(name, _)| ours(name)).collect()
    }

    /// Checks that stores can be made from the options. A process calls this when it starts, so that a mistake is
    /// reported before the first dataset is opened.
    ///
    /// # Errors
    /// [`StoreError::Setting`], which names the variable.
    pub fn check(&self) -> Result<(), StoreError> {
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

    /// Returns the address of the Hugging Face Hub.
    pub(crate) fn hub_endpoint(&self) -> &str {
        self.value("HF_ENDPOINT").unwrap_or(hub::ENDPOINT)
    }

    /// Returns the `Authorization` header for the Hugging Face Hub, if there is a token: in the environment, or in the
    /// file where its own programs keep it.
    pub(crate) fn hub_authorization(&self) -> Option<Arc<str>> {
        let home = || {
            let cache = || Some(format!("{}/.cache", self.value("HOME")?));
            let cache = || self.value("XDG_CACHE_HOME").map(str::to_owned).or_else(cache);
            self.value("HF_HOME").map(str::to_owned).or_else(|| Some(format!("{}/huggingface", cache()?)))
        };
        let in_file = || {
            let path = self.value("HF_TOKEN_PATH").map(str::to_owned).or_else(|| Some(format!("{}/token", home()?)))?;
            let is_small = std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MAX_TOKEN_BYTES);
            std::fs::read_to_string(path).ok().filter(|_| is_small)
        };
        let in_environment = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(|name| self.value(name));
        let token = in_environment.map(str::to_owned).or_else(in_file)?;
        let token = token.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| format!("Bearer {token}").into())
    }

    /// Returns the `Authorization` header for `host`, if the netrc file has an entry for it.
    pub(crate) fn authorization(&self, host: &str) -> Result<Option<Arc<str>>, StoreError> {
        let Some(path) = self.value(NETRC) else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|error| StoreError::Setting {
            name: NETRC.to_owned(),
            problem: format!("names `{path}`, which cannot be read: {error}"),
        })?;
        Ok(credentials(&text, host).map(|(user, password)| basic(&user, &password).into()))
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

/// Returns whether a store reads this variable; other variables with such names belong to other programs.
fn is_known(name: &str) -> bool {
    let key = name.to_ascii_lowercase();
    key.parse::<AmazonS3ConfigKey>().is_ok()
        || key.parse::<GoogleConfigKey>().is_ok()
        || key.parse::<AzureConfigKey>().is_ok()
        || name == "HF_TOKEN"
        || name == "HF_ENDPOINT"
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

/// Returns the user and password for `host` in the text of a netrc file.
fn credentials(text: &str, host: &str) -> Option<(String, String)> {
    let mut words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    let (mut is_ours, mut user, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if is_ours && let Some(password) = password.take() {
                    return Some((user.unwrap_or_default(), password));
                }
                is_ours = word == "default" || words.next() == Some(host);
                (user, password) = (None, None);
            }
            "login" => user = words.next().map(str::to_owned),
            "password" => password = words.next().map(str::to_owned),
            _ => {}
        }
    }
    password.filter(|_| is_ours).map(|password| (user.unwrap_or_default(), password))
}

/// Returns the value of the `Authorization` header for a user (RFC 7617).
fn basic(user: &str, password: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "Basic ".to_owned();
    for chunk in format!("{user}:{password}").as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
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
    fn a_netrc_file_gives_each_host_its_own_user_and_password() {
        let text = "# mine\nmachine a login me password one\nmachine b\n  login you\n  password two\ndefault login x password y";
        assert_eq!(credentials(text, "a"), Some(("me".to_owned(), "one".to_owned())));
        assert_eq!(credentials(text, "b"), Some(("you".to_owned(), "two".to_owned())));
        assert_eq!(credentials(text, "c"), Some(("x".to_owned(), "y".to_owned())));
        assert_eq!(credentials("machine a login me", "a"), None);
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("a", "b"), "Basic YTpi");
        assert_eq!(basic("a", "bc"), "Basic YTpiYw==");
    }
}
