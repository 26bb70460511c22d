//! JSON documents as Python's `json` reads them: it writes `NaN`, `Infinity` and `-Infinity`, which the standard does not have, and
//! takes numbers that are too large for infinite ones.

use std::{borrow::Cow, ops::Range};

use serde::de::DeserializeOwned;

/// Begins the text that stands for a number that is not finite, in place of the number. No document that has one has it.
const MARK: &str = "\u{10fffe}";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a document. In its values, [`non_finite`] finds the numbers that are not finite.
///
/// # Errors
/// If it is not JSON.
pub fn read<T: DeserializeOwned>(document: &[u8]) -> serde_json::Result<T> {
    let document = document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(document);
    serde_json::from_slice(document).or_else(|error| match marked(document) {
        Some(marked) => serde_json::from_slice(&marked),
        None => Err(error),
    })
}

/// Returns the number that is not finite, if this text of a document stands for one.
#[must_use]
pub fn non_finite(text: &str) -> Option<f64> {
    text.strip_prefix(MARK)?.parse().ok()
}

/// Writes a value that was [read](read) as a document, or a text as it is, with the numbers as Python writes them.
pub(crate) fn text(value: serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => match non_finite(&text) {
            Some(number) => python_name(number).to_owned(),
            None => text,
        },
        value => unmarked(&value.to_string()),
    }
}

/// Puts the numbers that are not finite back into a document.
pub(crate) fn unmarked(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    let mark = format!("\"{MARK}");
    let mut parts = document.split(&mark);
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (number, rest) = part.split_once('"').unwrap_or((part, ""));
        text.push_str(python_name(number.parse().unwrap_or(f64::NAN)));
        text.push_str(rest);
    }
    text
}

const fn python_name(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// Replaces the numbers of a document that are not finite by texts that stand for them; `None` if there are none.
pub(crate) fn marked(document: &[u8]) -> Option<Vec<u8>> {
    if document.windows(MARK.len()).any(|bytes| bytes == MARK.as_bytes()) {
        return None;
    }
    let (mut found, mut done) = (Vec::new(), 0);
    for token in numbers(document) {
        let Some(number) = not_finite(&document[token.clone()]) else { continue };
        if document[token.end..].trim_ascii_start().first() == Some(&b':') {
            return None;
        }
        found.extend_from_slice(&document[done..token.start]);
        found.extend(format!("\"{MARK}{number}\"").bytes());
        done = token.end;
    }
    (done > 0).then(|| {
        found.extend_from_slice(&document[done..]);
        found
    })
}

/// Returns how a token is written that is not a finite number.
fn not_finite(token: &[u8]) -> Option<Cow<'static, str>> {
    match token {
        b"NaN" => Some("NaN".into()),
        b"Infinity" => Some("inf".into()),
        b"-Infinity" => Some("-inf".into()),
        number if number.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') => {
            let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
            number.is_infinite().then(|| number.to_string().into())
        }
        _ => None,
    }
}

/// Iterates over the words outside of texts: numbers, names and what looks like them.
fn numbers(document: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let byte = document.get(at)?;
            if *byte == b'"' {
                at = end_of_text(document, at + 1);
            } else if is_of_word(byte) {
                let end =
                    document[at..].iter().position(|byte| !is_of_word(byte)).map_or(document.len(), |more| at + more);
                return Some(std::mem::replace(&mut at, end)..end);
            } else {
                at += 1;
            }
        }
    })
}

/// Returns the place behind the text that begins at `at`.
fn end_of_text(document: &[u8], mut at: usize) -> usize {
    while let Some(byte) = document.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows a value as the Python below does: numbers by their bits.
    fn shown(value: &serde_json::Value) -> String {
        use serde_json::Value;
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(truth) => truth.to_string(),
            Value::Number(number) => match number.as_i64() {
                Some(number) => number.to_string(),
                None => format!("f{:016x}", number.as_f64().unwrap().to_bits()),
            },
            Value::String(text) => match non_finite(text) {
                Some(number) if number.is_nan() => "nan".to_owned(),
                Some(number) => format!("f{:016x}", number.to_bits()),
                None => format!("'{text}'"),
            },
            Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
            Value::Object(members) => {
                let members = members.iter().map(|(key, value)| format!("{key}:{}", shown(value)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(" "))
            }
        }
    }

    const DOCUMENTS: &[&str] = &[
        "NaN",
        " -Infinity ",
        "[NaN,Infinity,-Infinity, 1e999, -1e999, 1, -0.5, 1e-999]",
        r#"{"a": NaN, "b": {"c": [Infinity, "NaN", "a \\\" NaN", "\\\\"], "d": null}, "e": true}"#,
        "\u{feff}{\"a\": NaN}",
        "[NAN]",
        "[nan]",
        "[+Infinity]",
        "[--Infinity]",
        "[NaN NaN]",
        "[Infinit]",
        "[NaN",
        "[NaN, \"open",
        "[1e999x]",
        "[01]",
        "{NaN: 1}",
        "",
    ];

    #[test]
    fn documents_are_read_as_python_reads_them() {
        let code = r#"
import json, struct, sys
def shown(value):
    if value is None: return "null"
    if isinstance(value, bool): return str(value).lower()
    if isinstance(value, int): return str(value)
    if isinstance(value, float): return "nan" if value != value else "f" + struct.pack(">d", value).hex()
    if isinstance(value, str): return f"'{value}'"
    if isinstance(value, list): return "[" + " ".join(map(shown, value)) + "]"
    return "{" + " ".join(f"{key}:{shown(value[key])}" for key in sorted(value)) + "}"
for document in json.load(sys.stdin):
    try: print(shown(json.loads(document.encode())))
    except ValueError: print("error")
"#;
        let mut python = std::process::Command::new("python3");
        let python = python.args(["-c", code]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = python.spawn().unwrap();
        serde_json::to_writer(child.stdin.take().unwrap(), DOCUMENTS).unwrap();
        let output = child.wait_with_output().unwrap();
        let expected: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        assert_eq!(expected.len(), DOCUMENTS.len());
        for (document, expected) in DOCUMENTS.iter().zip(expected) {
            let found = read::<serde_json::Value>(document.as_bytes());
            let found = found.map_or_else(|_| "error".to_owned(), |value| shown(&value));
            assert_eq!(found, expected, "{document}");
        }
    }

    #[test]
    fn a_document_that_was_read_is_written_as_python_writes_it() {
        let document = r#"{"a":[NaN,Infinity,-Infinity,"x \" NaN"],"b":1}"#;
        assert_eq!(text(read(document.as_bytes()).unwrap()), document);
        assert_eq!(text(read(b"NaN").unwrap()), "NaN");
        assert_eq!(text(read(b"\"NaN\"").unwrap()), "NaN");
    }

    #[test]
    fn what_stands_for_a_number_cannot_be_written() {
        let document = format!("[\"{MARK}NaN\", NaN]");
        assert!(read::<serde_json::Value>(document.as_bytes()).is_err());
    }
}
