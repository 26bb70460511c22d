//! Finds the text in a JSON record: the first of some fields that it has.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

use super::fast::fast_text;

/// Number of a record's fields that an error names.
const NAMED_FIELDS: usize = 20;

/// Returns the text of the record in a line, in the first of these fields that is there and not null. It may be in `memory`, which is
/// used again for the next one.
///
/// # Errors
/// In words, if the line is no record or has no such field.
pub(super) fn text_of<'l>(line: &'l [u8], fields: &[String], memory: &'l mut String) -> Result<Cow<'l, str>, String> {
    let line = utf8(line)?;
    fast_text(line, fields, memory).map_or_else(|| any_text(line, fields), |text| Ok(Cow::Borrowed(text)))
}

/// Returns the text of any record, as [`text_of`] does.
fn any_text<'l>(line: &'l str, fields: &[String]) -> Result<Cow<'l, str>, String> {
    let mut reader = serde_json::Deserializer::from_str(line);
    let found = WantedFields(fields).deserialize(&mut reader).and_then(|found| reader.end().map(|()| found));
    let found = found.map_err(|error| no_record(line, &error))?;
    match found.into_iter().zip(fields).find(|(value, _)| !matches!(value, FieldText::Missing)) {
        Some((FieldText::Text(text), _)) => Ok(text),
        Some((FieldText::Other(kind), field)) => Err(format!("has {kind} in field `{field}`, and no text")),
        _ => Err(no_field(line, fields)),
    }
}

/// Returns the record in a line, as JSON.
///
/// # Errors
/// In words, if the line is no record.
pub(super) fn record_of(line: &[u8]) -> Result<&str, String> {
    let line = utf8(line)?;
    let mut reader = serde_json::Deserializer::from_str(line);
    let found = WantedFields(&[]).deserialize(&mut reader).and_then(|_| reader.end());
    found.map_err(|error| no_record(line, &error)).map(|()| line)
}

fn utf8(line: &[u8]) -> Result<&str, String> {
    str::from_utf8(line).map_err(|error| {
        format!("is not UTF-8 at its byte {}: write the file as UTF-8, as `iconv -t UTF-8` does", error.valid_up_to())
    })
}

fn no_record(line: &str, error: &serde_json::Error) -> String {
    if line.trim_start().starts_with('[') {
        return "is a list: write one record a line, as `jq -c '.[]'` does".to_owned();
    }
    if error.is_eof() && line.trim_start().starts_with('{') {
        return "has only a part of a record: write one record a line, as `jq -c .` does; or the file is cut off"
            .to_owned();
    }
    // The line within the text of the error is always the first.
    let (problem, column) = (error.to_string(), error.column());
    let problem = problem.split(" at line ").next().unwrap_or_default();
    format!("is no JSON record: {problem} at character {column}")
}

fn no_field(line: &str, fields: &[String]) -> String {
    let names = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).unwrap_or_default();
    let mut has: Vec<String> = names.keys().take(NAMED_FIELDS).map(|name| format!("`{name}`")).collect();
    if names.len() > has.len() {
        has.push("...".to_owned());
    }
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    format!("has no text in field `{}`; its fields are {has}: choose with --from", fields.join("` or `"))
}

/// The value of a wanted field.
#[derive(Clone)]
enum FieldText<'l> {
    Missing,
    Text(Cow<'l, str>),
    /// What it is instead, in words.
    Other(&'static str),
}

/// Reads the wanted fields of a record and passes over all others.
struct WantedFields<'f>(&'f [String]);

impl<'l> DeserializeSeed<'l> for WantedFields<'_> {
    type Value = Vec<FieldText<'l>>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'l> Visitor<'l> for WantedFields<'_> {
    type Value = Vec<FieldText<'l>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record in braces")
    }

    fn visit_map<M: MapAccess<'l>>(self, mut record: M) -> Result<Self::Value, M::Error> {
        let mut found = vec![FieldText::Missing; self.0.len()];
        while let Some(JsonText(name)) = record.next_key()? {
            match self.0.iter().position(|field| *field == name) {
                // Of a name that is there twice, the last counts, as in Python.
                Some(place) => found[place] = record.next_value()?,
                None => drop(record.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// A text of a record, borrowed where it has no escapes.
struct JsonText<'l>(Cow<'l, str>);

impl<'l> Deserialize<'l> for JsonText<'l> {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfText;
        impl<'l> Visitor<'l> for OfText {
            type Value = JsonText<'l>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'l str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(OfText)
    }
}

impl<'l> Deserialize<'l> for FieldText<'l> {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfField)
    }
}

struct OfField;

impl<'l> Visitor<'l> for OfField {
    type Value = FieldText<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'l str) -> Result<Self::Value, E> {
        Ok(FieldText::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(FieldText::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(FieldText::Missing)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(FieldText::Other("true or false"))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(FieldText::Other("a number"))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(FieldText::Other("a number"))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(FieldText::Other("a number"))
    }

    fn visit_seq<S: de::SeqAccess<'l>>(self, mut values: S) -> Result<Self::Value, S::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldText::Other("a list"))
    }

    fn visit_map<M: MapAccess<'l>>(self, mut record: M) -> Result<Self::Value, M::Error> {
        while record.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldText::Other("a record"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields() -> [String; 2] {
        ["text", "content"].map(str::to_owned)
    }

    fn text(line: &str) -> Result<String, String> {
        text_of(line.as_bytes(), &fields(), &mut String::new()).map(Cow::into_owned)
    }

    fn fast(line: &str) -> Option<String> {
        fast_text(line, &fields(), &mut "before".to_owned()).map(str::to_owned)
    }

    #[test]
    fn the_first_field_that_a_record_has_is_its_text() {
        assert_eq!(text(r#"{"content": "b", "x": [1, {"text": "no"}], "text": "a\n\u00fc"}"#).unwrap(), "a\nü");
        assert_eq!(text(r#" {"text": null, "content": ""} "#).unwrap(), "");
        assert_eq!(text(r#"{"text": "a", "text": "b"}"#).unwrap(), "b");
    }

    #[test]
    fn ordinary_records_are_read_in_one_pass() {
        for (line, expected) in [
            (r#"{"text":"plain"}"#, "plain"),
            (r#" { "id" : 17 , "text" : "" , "x" : [ { "text" : "no" } , "\"" ] } "#, ""),
            (r#"{"text":"a\\b\"\/\b\f\n\r\tc"}"#, "a\\b\"/\u{8}\u{c}\n\r\tc"),
            (
                r#"{"content": "c\n", "note": "\u0031\n", "text": "\u0041\u00fc\u6F22\ud83D\uDE00\u0000z", "n": null}"#,
                "Aü漢😀\0z",
            ),
            (
                r#"{"text": null, "content": "ü\n12345678\"12345678", "score": -1.5e3, "is": true}"#,
                "ü\n12345678\"12345678",
            ),
            (r#"{"text": "a\n", "content": "c\n", "other": "\n"}"#, "a\n"),
        ] {
            assert_eq!(fast(line).as_deref(), Some(expected), "{line}");
            assert_eq!(any_text(line, &fields()).unwrap(), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_one_pass_reads_is_what_serde_json_reads(
            pieces in proptest::collection::vec((0..4_usize, 0..FIELDS.len(), 0..VALUES.len(), 0..SPACES.len()), 1..6),
            wrong in proptest::option::of((0..80_usize, 0..WRONG.len())),
        ) {
            let pairs: Vec<_> = pieces
                .iter()
                .map(|(space, field, value, other)| {
                    let (space, other) = (SPACES[*space], SPACES[*other]);
                    format!("{space}\"{}\"{other}:{space}{}{other}", FIELDS[*field], VALUES[*value])
                })
                .collect();
            let mut line = format!("{{{}}}", pairs.join(","));
            if let Some((at, wrong)) = wrong {
                let at = line.char_indices().map(|(at, _)| at).nth(at).unwrap_or(line.len());
                line.insert_str(at, WRONG[wrong]);
            }
            if let Some(found) = fast(&line) {
                prop_assert_eq!(any_text(&line, &fields()).map(Cow::into_owned), Ok(found), "{}", line);
            }
        }
    }

    const FIELDS: [&str; 6] = ["text", "content", "id", "", "t\\u0065xt", "ü"];
    const SPACES: [&str; 4] = ["", " ", "\t", "  \r"];
    const VALUES: [&str; 16] = [
        "null",
        "true",
        "-1.5e3",
        "[]",
        r#"[1, {"text": "no"}]"#,
        r#"{"text": "no"}"#,
        r#""""#,
        r#""plain""#,
        r#""ü and more than a word""#,
        r#""\n""#,
        r#""a\\\"b\/c\b\f\r\t""#,
        r#""\u00fc\u6f22""#,
        r#""\ud83d\ude00 \u0000""#,
        r#""\ud83d""#,
        r#""\ude00\ud83d""#,
        "\"a\tb\"",
    ];
    const WRONG: [&str; 12] = ["\"", "\\", "{", "}", "[", ",", ":", "x", "\n", "1", "\\u", "ü"];

    #[test]
    fn what_is_wrong_with_a_record_is_told() {
        for (line, problem) in [
            (
                r#"{"body": "a", "id": 1}"#,
                "has no text in field `text` or `content`; its fields are `body`, `id`: choose with --from",
            ),
            (
                r#"{"text": null}"#,
                "has no text in field `text` or `content`; its fields are `text`: choose with --from",
            ),
            (r#"{"text": [1]}"#, "has a list in field `text`, and no text"),
            (r#"{"text": 1.5}"#, "has a number in field `text`, and no text"),
            ("[{", "is a list: write one record a line, as `jq -c '.[]'` does"),
            ("{", "has only a part of a record: write one record a line, as `jq -c .` does; or the file is cut off"),
            (r#"{"text": "a"} x"#, "is no JSON record: trailing characters at character 15"),
            (r#""a""#, "is no JSON record: invalid type: string \"a\", expected a record in braces at character 3"),
        ] {
            assert_eq!(text(line).unwrap_err(), problem, "{line}");
        }
        let problem = text_of(b"{\"text\": \"\xff\"}", &[], &mut String::new()).unwrap_err();
        assert_eq!(problem, "is not UTF-8 at its byte 10: write the file as UTF-8, as `iconv -t UTF-8` does");
    }
}
