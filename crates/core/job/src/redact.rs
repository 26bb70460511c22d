//! Hides the parts of a URL that must not be shown: users, passwords and queries, which may be signatures. Everyone who
//! can see the cluster's status can see job files and what is derived from them.

use std::borrow::Cow;

use crate::scheme::{URL_SCHEMES, UrlScheme};

/// The placeholder for hidden text.
const HIDDEN: &str = "***";
/// Characters that end a URL in running text, in any part of the URL.
const ENDS: [char; 7] = [' ', '\t', '\n', '\r', '"', '\'', '`'];

/// Replaces what may be secret in the URLs of a text: `https://me:word@host/set?sig=1` becomes
/// `https://***@host/set?***`. The text can be a single URL or running text that contains URLs.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        shown.push_str(before);
        let (url, after) = url.split_at(url.find(ENDS).unwrap_or(url.len()));
        shown.push_str(&redact_one(url, has_containers(before)));
        rest = after;
    }
    shown.push_str(rest);
    if shown == text { Cow::Borrowed(text) } else { Cow::Owned(shown) }
}

/// Redacts the part of a URL that follows `://`.
fn redact_one(url: &str, has_containers: bool) -> String {
    let mut rest = url;
    let mut shown = String::new();
    if let Some(end) = user_end(url) {
        // In `abfss://container@account` the part before the `@` names a container, not a user.
        if !has_containers || url[..end].contains(':') {
            shown.push_str(HIDDEN);
            rest = &url[end..];
        }
    }
    match rest.split_once('?') {
        Some((path, _)) => shown.push_str(&format!("{path}?{HIDDEN}")),
        None => shown.push_str(rest),
    }
    shown
}

/// Returns the index of the `@` that ends the user and password. An `@` in the path counts too if the part before the
/// path is not a host and port, because a password may contain a slash.
fn user_end(url: &str) -> Option<usize> {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let is_host = authority.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    if is_host || authority.starts_with('[') { authority.rfind('@') } else { url.rfind('@') }
}

/// Returns whether the scheme at the end of `text` has a container's name where other schemes have a user.
fn has_containers(text: &str) -> bool {
    let text = text.strip_suffix("://").unwrap_or_default();
    URL_SCHEMES.iter().flat_map(|scheme| scheme.with_container).any(|name| text.ends_with(name))
}

/// Explains why a dataset's URL must not appear in a job or a command: it contains something that may be secret. The
/// text names the right place for that. Returns `None` if nothing in the URL may be secret.
#[must_use]
pub fn secret_in(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let instead = UrlScheme::of(url).credentials;
    let shown = redact(url);
    let has_user = shown.contains(&format!("://{HIDDEN}"));
    if has_user {
        return Some(format!(
            "`{shown}` has a user or password in it, which everyone would see; give it to the coordinator, the workers and \
             commands by the environment: {instead}"
        ));
    }
    if rest.contains('?') {
        return Some(format!(
            "`{shown}` has a query, which names no folder and may be a signature that everyone would see; give what \
             grants access by the environment: {instead}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_queries_are_hidden_and_nothing_else() {
        for (text, expected) in [
            ("https://me:word@host:1/a/b", "https://***@host:1/a/b"),
            ("https://token@host/a", "https://***@host/a"),
            ("https://me:w@rd@host/a", "https://***@host/a"),
            ("https://me:w/rd@host/a", "https://***@host/a"),
            ("s3://bucket/a?X-Amz-Signature=1&b=https://x", "s3://bucket/a?***"),
            (
                "line 2: dataset = \"https://a:b@c/d\" of `https://e:f@g?h`",
                "line 2: dataset = \"https://***@c/d\" of `https://***@g?***`",
            ),
            ("s3://bucket/a@v1/b", "s3://bucket/a@v1/b"),
            ("http://[::1]:9/a@b", "http://[::1]:9/a@b"),
            ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
            ("abfss://a:b@c/d", "abfss://***@c/d"),
            ("/data/a@b?c", "/data/a@b?c"),
            ("file:///data/a", "file:///data/a"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn a_url_with_a_secret_is_refused_with_the_place_to_put_it_and_without_it() {
        for url in ["s3://me:word@host/a", "https://word@host/a", "hf://host/a?word", "az://container/a?sig=word"] {
            let problem = secret_in(url).expect(url);
            assert!(problem.contains(UrlScheme::of(url).credentials) && !problem.contains("word@"), "{problem}");
            assert!(!problem.contains("?word") && !problem.contains("=word"), "{problem}");
        }
        for url in [
            "s3://bucket/a@b",
            "/data?x",
            "abfss://c@a.dfs.core.windows.net/x",
            "hf://datasets/org/name@v1/a",
            "http://host:9000/x",
        ] {
            assert_eq!(secret_in(url), None);
        }
    }
}
