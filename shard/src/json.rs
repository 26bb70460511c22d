//! Reads and writes JSON as Python's `json` does, which goes beyond the standard: it writes `NaN`, `Infinity` and
//! `-Infinity`, reads numbers that are too large as infinite ones, accepts half of a surrogate pair as a character, and
//! reads lists nested a thousand deep.

use std::{borrow::Cow, ops::Range};

use serde::de::{DeserializeOwned, IgnoredAny};

/// Begins the text that replaces a number that is not finite. Documents that contain this character are not rewritten.
const MARK: &str = "\u{10fffe}";
/// Stands for half of a surrogate pair, whose four digits follow it.
const HALF_MARK: &str = "\u{10fffd}";
/// Begins the text that replaces a list or an object that is nested too deep.
const DEEP_MARK: &str = "\u{10fffc}";
/// Depth up to which lists and objects are read as such, which is below the parser's own limit of 128.
const MAX_DEPTH: usize = 120;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a document. Numbers that are not finite become texts, which [`non_finite`] recognises; lists and objects that
/// are nested too deep become texts, too.
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

/// Returns what is at `path` in a document: keys from the root, and places in lists as numbers.
#[must_use]
pub fn at<'v>(document: &'v serde_json::Value, path: &[String]) -> Option<&'v serde_json::Value> {
    path.iter().try_fold(document, |place, key| match place {
        serde_json::Value::Object(members) => members.get(key),
        serde_json::Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the number that a text of a document stands for, if that is a number that is not finite.
#[must_use]
pub fn non_finite(text: &str) -> Option<f64> {
    text.strip_prefix(MARK)?.parse().ok()
}

/// Writes a value that [`read`] returned as a document, or a text as it is. Numbers are written as Python does it.
///
/// # Errors
/// If a text has half of a surrogate pair, which no text file can have. The error is in words that follow the text's
/// name.
pub fn text(value: serde_json::Value) -> Result<String, &'static str> {
    match value {
        serde_json::Value::String(text) => match non_finite(&text) {
            Some(number) => Ok(python_name(number).to_owned()),
            None if text.contains(HALF_MARK) => Err("has half of a surrogate pair, which is no text"),
            None if text.starts_with(DEEP_MARK) => Ok(unmarked(&text[DEEP_MARK.len()..])),
            None => Ok(text),
        },
        value => Ok(unmarked(&value.to_string())),
    }
}

/// Restores what `marked` replaced in a document.
#[must_use]
pub fn unmarked(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    let mut rest = document;
    while let Some(at) = rest.find([MARK, HALF_MARK, DEEP_MARK].map(char_of)) {
        let (before, found) = rest.split_at(at);
        if let Some(digits) = found.strip_prefix(HALF_MARK) {
            text.push_str(before);
            text.push_str("\\u");
            rest = digits;
            continue;
        }
        // The mark begins a text: the quote in front of it goes, too.
        text.push_str(before.strip_suffix('"').unwrap_or(before));
        let end = end_of_text(found.as_bytes(), MARK.len()).min(found.len());
        let (inner, after) = found.split_at(end);
        if let Some(deep) = inner.strip_prefix(DEEP_MARK) {
            let inner: String = serde_json::from_str(&format!("\"{deep}")).unwrap_or_default();
            text.push_str(&unmarked(&inner));
        } else {
            text.push_str(python_name(inner[MARK.len()..].trim_end_matches('"').parse().unwrap_or(f64::NAN)));
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

fn char_of(mark: &str) -> char {
    mark.chars().next().expect("a mark is a character")
}

const fn python_name(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// Replaces what only Python reads by texts that stand for it: numbers that are not finite, halves of surrogate pairs,
/// and lists and objects that are nested too deep. Returns `None` if there are none, or if the document cannot be
/// rewritten because it contains a mark itself.
#[must_use]
pub fn marked(document: &[u8]) -> Option<Vec<u8>> {
    let has_mark = |mark: &str| document.windows(mark.len()).any(|bytes| bytes == mark.as_bytes());
    if [MARK, HALF_MARK, DEEP_MARK].into_iter().any(has_mark) {
        return None;
    }
    let (mut found, mut done) = (Vec::new(), 0);
    for token in tokens(document) {
        let (range, stands_for_it) = match token {
            JsonToken::Half(range) => {
                let digits = std::str::from_utf8(&document[range.start + 2..range.end]).ok()?;
                (range, format!("{HALF_MARK}{digits}"))
            }
            JsonToken::Word(range) => {
                let Some(number) = not_finite(&document[range.clone()]) else { continue };
                if document[range.end..].trim_ascii_start().first() == Some(&b':') {
                    return None;
                }
                (range, format!("\"{MARK}{number}\""))
            }
            JsonToken::Open(_) | JsonToken::Close(_) => continue,
        };
        found.extend_from_slice(&document[done..range.start]);
        found.extend(stands_for_it.bytes());
        done = range.end;
    }
    found.extend_from_slice(&document[done..]);
    match folded(&found) {
        Some(folded) => Some(folded),
        None => (done > 0).then_some(found),
    }
}

/// Replaces lists and objects that are nested too deep by texts of them; `None` if there are none, or they are invalid.
fn folded(document: &[u8]) -> Option<Vec<u8>> {
    let (mut found, mut done, mut depth, mut start) = (Vec::new(), 0, 0_usize, 0);
    for token in tokens(document) {
        match token {
            JsonToken::Open(at) => {
                depth += 1;
                if depth == MAX_DEPTH + 1 {
                    start = at;
                }
            }
            JsonToken::Close(at) => {
                if depth == MAX_DEPTH + 1 {
                    let inner = std::str::from_utf8(&document[start..=at]).ok()?;
                    // This reads it without recursion.
                    serde_json::from_str::<IgnoredAny>(inner).ok()?;
                    found.extend_from_slice(&document[done..start]);
                    found.extend(serde_json::to_vec(&format!("{DEEP_MARK}{inner}")).ok()?);
                    done = at + 1;
                }
                depth = depth.checked_sub(1)?;
            }
            JsonToken::Word(_) | JsonToken::Half(_) => {}
        }
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

/// A part of a document.
enum JsonToken {
    /// Outside of texts: a number, a name or what looks like them.
    Word(Range<usize>),
    /// In a text: half of a surrogate pair, as `\ud83d`.
    Half(Range<usize>),
    /// The place where a list or an object begins.
    Open(usize),
    /// The place where it ends.
    Close(usize),
}

/// Iterates over the parts of a document.
fn tokens(document: &[u8]) -> impl Iterator<Item = JsonToken> + '_ {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let (mut at, mut is_in_text) = (0, false);
    std::iter::from_fn(move || {
        loop {
            let byte = document.get(at)?;
            let start = at;
            at += 1;
            match byte {
                b'"' => is_in_text = !is_in_text,
                b'\\' if is_in_text => {
                    let unit = |at: usize| escaped_unit(document.get(at..at + 6)?);
                    match (unit(start), unit(start + 6)) {
                        (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => at = start + 12,
                        (Some(0xd800..0xe000), _) => {
                            at = start + 6;
                            return Some(JsonToken::Half(start..at));
                        }
                        _ => at = start + 2,
                    }
                }
                _ if is_in_text => {}
                b'[' | b'{' => return Some(JsonToken::Open(start)),
                b']' | b'}' => return Some(JsonToken::Close(start)),
                byte if is_of_word(byte) => {
                    let more = document[at..].iter().position(|byte| !is_of_word(byte));
                    at = more.map_or(document.len(), |more| at + more);
                    return Some(JsonToken::Word(start..at));
                }
                _ => {}
            }
        }
    })
}

/// Returns the number of a character that is written as `\u0041`.
fn escaped_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
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
                None => format!("'{}'", text.replace(HALF_MARK, "\\u")),
            },
            Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
            Value::Object(members) => {
                let members =
                    members.iter().map(|(key, value)| format!("{}:{}", shown(&key.as_str().into()), shown(value)));
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
        r#"{"a": "\ud800", "b": "x\uDFFFy\ud83d\ude00\ud83d\ud83d\ude00", "\ud801": 1, "c": "\\\\ud800 \\u", "d": NaN}"#,
        r#"["\ud8"]"#,
        r#"["\ud800]"#,
        r#"["\ud800\u"]"#,
        r#"["\ud800\u00g1"]"#,
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
    if isinstance(value, str): return "'" + "".join(f"\\u{ord(c):x}" if 0xd800 <= ord(c) < 0xe000 else c for c in value).replace("\\udfff", "\\uDFFF") + "'"
    if isinstance(value, list): return "[" + " ".join(map(shown, value)) + "]"
    return "{" + " ".join(f"{shown(key)}:{shown(value[key])}" for key in sorted(value)) + "}"
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
    fn documents_of_any_depth_are_read_as_far_as_they_are_looked_into() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let document = |depth: usize| format!("{}NaN{}", open.repeat(depth), close.repeat(depth));
            for depth in [119, 120, 121, 128, 500, 100_000] {
                let document = document(depth);
                let value: serde_json::Value = read(document.as_bytes()).unwrap();
                let inner = value.pointer(&"/0".repeat(50)).or_else(|| value.pointer(&"/a".repeat(50))).unwrap();
                assert!(inner.is_array() || inner.is_object());
                assert_eq!(text(value).unwrap(), document);
            }
        }
        let deep = "[".repeat(500);
        let right = format!("{deep}1,\"]\",\"\\ud800\"{}", "]".repeat(500));
        assert_eq!(text(read(right.as_bytes()).unwrap()).unwrap(), right);
        for wrong in [format!("{deep}1"), format!("{deep}1 2{}", "]".repeat(500)), format!("{deep}{}", "}".repeat(500))]
        {
            assert!(read::<serde_json::Value>(wrong.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_document_that_was_read_is_written_as_python_writes_it() {
        let document = r#"{"a":[NaN,Infinity,-Infinity,"x \" NaN"],"b":1}"#;
        assert_eq!(text(read(document.as_bytes()).unwrap()).unwrap(), document);
        assert_eq!(text(read(b"NaN").unwrap()).unwrap(), "NaN");
        assert_eq!(text(read(b"\"NaN\"").unwrap()).unwrap(), "NaN");
        let halves = r#"["\ud800","a\udc00b"]"#;
        assert_eq!(text(read(halves.as_bytes()).unwrap()).unwrap(), halves);
        assert!(text(read(br#""a\udc00""#).unwrap()).unwrap_err().contains("half of a surrogate pair"));
    }

    #[test]
    fn what_stands_for_a_number_cannot_be_written() {
        let document = format!("[\"{MARK}NaN\", NaN]");
        assert!(read::<serde_json::Value>(document.as_bytes()).is_err());
    }
}
