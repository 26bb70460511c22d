//! Web servers, which serve files and list none.

use std::sync::Arc;

use object_store::{ClientConfigKey, ObjectStoreScheme, http::HttpBuilder};
use spdl_job::scheme::{UrlScheme, WEB};

use super::{OpenedFolder, Store};
use crate::{
    StoreError, StoreOptions,
    location::{Location, is_plain_http},
};

/// The variable that names a netrc file.
const NETRC: &str = "NETRC";

pub(super) struct WebStore;

impl Store for WebStore {
    fn scheme(&self) -> &'static UrlScheme {
        &WEB
    }

    fn variables(&self) -> &'static [&'static str] {
        &[NETRC]
    }

    fn read_only(&self) -> Option<&'static str> {
        Some("a web server")
    }

    fn can_list(&self) -> bool {
        false
    }

    fn hint(&self, error: &StoreError) -> Option<&'static str> {
        let hint = "check the URL; a server that wants a user and a password needs a netrc file, which NETRC names";
        matches!(error, StoreError::Denied { .. }).then_some(hint)
    }

    fn open(&self, location: &Location<'_>) -> Result<OpenedFolder, StoreError> {
        let url = location.url()?;
        let (_, folder) = ObjectStoreScheme::parse(url).map_err(|error| location.bad(error))?;
        let authorization = authorization(&location.access.options, url.host_str().unwrap_or_default())?;
        let policy = location.client(authorization, None)?;
        let builder = HttpBuilder::new().with_retry(policy.retry).with_client_options(policy.client);
        let builder = builder.with_http_connector(policy.connector).with_url(&url[..url::Position::BeforePath]);
        let builder = builder.with_config(ClientConfigKey::AllowHttp, is_plain_http(url.as_str()).to_string());
        Ok(OpenedFolder::remote(builder.build().map_err(|error| location.bad(error))?, folder))
    }
}

/// Returns the `Authorization` header for `host`, if the netrc file has an entry for it.
fn authorization(options: &StoreOptions, host: &str) -> Result<Option<Arc<str>>, StoreError> {
    let Some(path) = options.value(NETRC) else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| StoreError::Setting {
        name: NETRC.to_owned(),
        problem: format!("names `{path}`, which cannot be read: {error}"),
    })?;
    Ok(credentials(&text, host).map(|(user, password)| basic(&user, &password).into()))
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

    #[test]
    fn a_netrc_file_is_read_only_where_its_variable_names_it() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".netrc");
        std::fs::write(&file, "machine a login me password one").unwrap();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let of = |name: &str, value| authorization(&StoreOptions::from_iter([(name.to_owned(), value)]), "a").unwrap();
        assert_eq!(of("HOME", text(home.path())), None);
        assert_eq!(of(NETRC, text(&file)).as_deref(), Some(&*basic("me", "one")));
    }
}
