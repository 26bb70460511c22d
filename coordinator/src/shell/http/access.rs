//! Decides who may read the status over HTTP: on a loopback address, everyone on this machine; on any other, and
//! wherever a token is set, only clients that send the token.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use spdl_wire::rejections::{RejectionCause, Rejections};
use subtle::ConstantTimeEq;

/// The shortest token, in bytes: 96 bits as base64.
const MIN_TOKEN: usize = 16;
/// The longest token, in bytes.
const MAX_TOKEN: usize = 4096;

/// The reason why the settings do not determine who may read the status.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum AccessError {
    #[error("`{address}` can be reached from other machines, and HTTP there would show the status to everyone")]
    Open { address: SocketAddr },
    #[error("the token in `{}` cannot be read", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token in `{}` is {problem}", path.display())]
    Token { path: PathBuf, problem: &'static str },
}

impl AccessError {
    /// Returns advice on what the user can do about it.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } => {
                "make a token with `openssl rand -hex 32 > FILE` and give it with --http-token-file FILE; or listen on \
                 this machine alone: --http 127.0.0.1:7401"
            }
            Self::Unreadable { .. } | Self::Token { .. } => "`openssl rand -hex 32 > FILE` makes one",
        }
    }
}

/// Who may read the status.
#[derive(Clone)]
pub(crate) enum StatusAccess {
    /// Everyone on this machine: the address is a loopback address.
    Local,
    /// Everyone who sends this token.
    Token(Arc<str>),
}

impl StatusAccess {
    /// Decides who may read what is served at `address`.
    pub(crate) fn new(address: SocketAddr, token_file: Option<&Path>) -> Result<Self, AccessError> {
        match token_file {
            Some(path) => read_token(path).map(Self::Token),
            None if address.ip().to_canonical().is_loopback() => Ok(Self::Local),
            None => Err(AccessError::Open { address }),
        }
    }

    /// Returns why a request with these headers is not answered.
    fn refusal(&self, headers: &HeaderMap) -> Option<AccessRefusal> {
        match self {
            Self::Local => (!is_addressed_locally(headers)).then_some(AccessRefusal::Host),
            Self::Token(token) => match headers.get(AUTHORIZATION) {
                None => Some(AccessRefusal::NoToken),
                Some(sent) => (!is_token(sent.as_bytes(), token)).then_some(AccessRefusal::WrongToken),
            },
        }
    }
}

fn read_token(path: &Path) -> Result<Arc<str>, AccessError> {
    let unreadable = |source| AccessError::Unreadable { path: path.to_owned(), source };
    let wrong = |problem| Err(AccessError::Token { path: path.to_owned(), problem });
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let token = text.trim();
    match token.len() {
        0..MIN_TOKEN => wrong("shorter than 16 characters, so that it could be guessed"),
        MIN_TOKEN..=MAX_TOKEN if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(token.into()),
        MIN_TOKEN..=MAX_TOKEN => wrong("not one word of ASCII characters, which HTTP could carry"),
        _ => wrong("longer than 4096 characters"),
    }
}

/// Returns whether a header is `Bearer TOKEN`; compares the token in constant time.
fn is_token(sent: &[u8], token: &str) -> bool {
    let Some((scheme, sent)) = sent.split_at_checked("Bearer ".len()) else { return false };
    scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(sent.ct_eq(token.as_bytes()))
}

/// Returns whether the request names this server by an address or as `localhost`. A web page of another site that made
/// its own name point to this machine (DNS rebinding) sends that name.
fn is_addressed_locally(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessRefusal {
    Host,
    NoToken,
    WrongToken,
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Host => {
                let text = "this server has no token, so it answers only requests that name it by its address or as \
                            localhost; give it one with --http-token-file\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::NoToken | Self::WrongToken => {
                let text = "send the token of --http-token-file: `Authorization: Bearer TOKEN`\n";
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer realm=\"spdl-coord\"")], text).into_response()
            }
        }
    }
}

/// Answers a request only if its sender may read the status. A wrong token is counted and logged.
pub(crate) async fn check(
    State((access, rejections)): State<(StatusAccess, Arc<Rejections>)>,
    request: Request,
    next: Next,
) -> Response {
    match access.refusal(request.headers()) {
        None => next.run(request).await,
        Some(refusal) => {
            if refusal == AccessRefusal::WrongToken {
                rejections.note(RejectionCause::Token, || "a request over HTTP had a wrong token".to_owned());
            }
            refusal.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let access = StatusAccess::Token(TOKEN.into());
        let refusal = |sent: &str| access.refusal(&headers(AUTHORIZATION, sent));
        assert_eq!(refusal(&format!("Bearer {TOKEN}")), None);
        assert_eq!(refusal(&format!("bearer {TOKEN}")), None);
        for wrong in ["", "Bearer", "Bearer ", TOKEN, "Basic 0123456789abcdef", "Bearer 0123456789abcdeF"] {
            assert_eq!(refusal(wrong), Some(AccessRefusal::WrongToken), "`{wrong}`");
        }
        for wrong in [format!("Bearer {TOKEN}0"), format!("Bearer {}", &TOKEN[1..]), format!("Bearer  {TOKEN}")] {
            assert_eq!(refusal(&wrong), Some(AccessRefusal::WrongToken), "`{wrong}`");
        }
        assert_eq!(access.refusal(&HeaderMap::new()), Some(AccessRefusal::NoToken));
    }

    #[test]
    fn without_a_token_a_page_of_another_site_reads_nothing_under_its_own_name() {
        let refusal = |host: &str| StatusAccess::Local.refusal(&headers(HOST, host));
        for ours in ["localhost", "LOCALHOST:7401", "127.0.0.1:7401", "127.0.0.1", "[::1]:7401", "[::1]"] {
            assert_eq!(refusal(ours), None, "`{ours}`");
        }
        for theirs in ["evil.example", "evil.example:7401", "localhost.evil.example:7401", "", "127.0.0.1.evil.example"]
        {
            assert_eq!(refusal(theirs), Some(AccessRefusal::Host), "`{theirs}`");
        }
        assert_eq!(StatusAccess::Local.refusal(&HeaderMap::new()), None, "no browser leaves it out");
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(StatusAccess::new(local.parse().unwrap(), None).is_ok(), "{local}");
        }
        for open in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1"] {
            let error = StatusAccess::new(open.parse().unwrap(), None).err().unwrap();
            assert!(error.to_string().contains(open) && error.hint().contains("--http-token-file"), "{error}");
        }
    }

    #[test]
    fn a_token_is_one_long_word_and_an_error_does_not_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_token(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read(&format!("{TOKEN}\n")).as_deref(), Ok(TOKEN));
        for (text, problem) in [
            ("0123456789abcde\n", "shorter than 16"),
            ("", "shorter than 16"),
            ("0123456789 abcdef", "not one word"),
            ("0123456789abcdeä", "not one word"),
            (&"x".repeat(MAX_TOKEN + 1), "longer than 4096"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem) && !error.contains("0123456789"), "{error}");
        }
        assert!(read_token(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
