//! Requests to the HTTP port of a server under test.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub code: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends `GET path` and returns the status code and the body. `timeout` limits each read.
///
/// # Errors
/// The connection's error, or [`io::ErrorKind::InvalidData`] when the answer is not one of HTTP.
pub fn get(address: impl ToSocketAddrs, path: &str, timeout: Duration) -> io::Result<(u16, String)> {
    let answer = get_with(address, path, &["Host: localhost"], timeout)?;
    Ok((answer.code, answer.body))
}

/// Sends `GET path` with these headers, and returns the answer. `timeout` limits each read.
///
/// # Errors
/// As [`get`].
pub fn get_with(
    address: impl ToSocketAddrs,
    path: &str,
    headers: &[&str],
    timeout: Duration,
) -> io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(timeout))?;
    // To this version of HTTP, no server answers in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\n{}\r\n\r\n", headers.join("\r\n"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let split = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some(HttpAnswer { code, head: head.to_owned(), body: body.to_owned() })
    });
    split.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of HTTP: {answer:?}")))
}
