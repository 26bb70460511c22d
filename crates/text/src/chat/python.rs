//! What templates expect of Python: methods of texts, whitespace, `tojson` and `strftime_now` as transformers has them.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ValueKind, from_args},
};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{
    bounded::{BoundedText, text_of},
    date::strftime,
};

/// The deepest value that is written as JSON.
const MAX_DEPTH: usize = 128;

/// Calls a method of Python's `str`, `list` or `dict`.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return unknown_method_callback(state, value, method, args) };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            Ok(Value::from(strip(text, characters, method != "rstrip", method != "lstrip")))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let parts = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(parts.into_iter().map(Value::from).collect())
        }
        "rsplit" => {
            let (separator, most): (&str, Option<usize>) = from_args(args)?;
            if separator.is_empty() {
                return Err(invalid("rsplit() needs a separator"));
            }
            let mut parts: Vec<_> =
                text.rsplitn(most.map_or(usize::MAX, |most| most.saturating_add(1)), separator).collect();
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// The filter `trim`.
pub(super) fn trim(state: &State<'_, '_>, value: &Value, characters: Option<&str>) -> Result<String, Error> {
    Ok(strip(&text_of(state, value)?, characters, true, true).to_owned())
}

fn strip<'t>(text: &'t str, characters: Option<&str>, start: bool, end: bool) -> &'t str {
    // Python takes four more characters for whitespace than Unicode does.
    let goes = |letter: char| match characters {
        Some(characters) => characters.contains(letter),
        None => letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter),
    };
    let text = if start { text.trim_start_matches(goes) } else { text };
    if end { text.trim_end_matches(goes) } else { text }
}

/// The function `raise_exception`.
pub(super) fn raise_exception(state: &State<'_, '_>, message: &Value) -> Result<Value, Error> {
    let message = text_of(state, message)?;
    Err(invalid(format!(
        "it refuses the conversation: {message}; change the record, or give another template with --template"
    )))
}

/// Returns the function `strftime_now`, whose now is this moment.
pub(super) fn strftime_now(unix_seconds: i64) -> impl Fn(&str) -> Result<String, Error> {
    move |format| strftime(unix_seconds, format).map_err(invalid)
}

/// The filter `tojson`: Python's `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => {
                " ".repeat(indent.as_usize().filter(|spaces| *spaces <= 64).ok_or_else(|| invalid("an odd indent"))?)
            }
        }),
    };
    let (item, key) = match options.get::<Option<Value>>("separators")?.filter(|separators| !separators.is_none()) {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(two) => (text_of(state, &two.get_item_by_index(0)?)?, text_of(state, &two.get_item_by_index(1)?)?),
    };
    let flag = |name: &str| options.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    let (is_ascii, is_sorted) = (flag("ensure_ascii")?, flag("sort_keys")?);
    options.assert_all_used()?;
    let mut writer = PythonJson { out: BoundedText::new(state), indent, item, key, is_ascii, is_sorted };
    writer.value(value, 0)?;
    Ok(writer.out.into_text())
}

/// Writes JSON as Python does.
struct PythonJson {
    out: BoundedText,
    indent: Option<String>,
    /// What stands between items, and between a key and its value.
    item: String,
    key: String,
    is_ascii: bool,
    is_sorted: bool,
}

impl PythonJson {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("a value that is nested more than {MAX_DEPTH} deep is not written as JSON")));
        }
        match value.kind() {
            ValueKind::None => self.out.push("null"),
            ValueKind::Bool => self.out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push(&value.to_string()),
            ValueKind::Number => self.out.push(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<_> = value.try_iter()?.collect();
                self.items(["[", "]"], items, depth, |writer, item| writer.value(&item, depth + 1))
            }
            ValueKind::Map => {
                let mut keys: Vec<_> = value.try_iter()?.collect();
                if self.is_sorted {
                    keys.sort();
                }
                self.items(["{", "}"], keys, depth, |writer, name| {
                    writer.name(&name)?;
                    writer.value(&value.get_item(&name)?, depth + 1)
                })
            }
            kind => Err(invalid(format!("tojson got {kind}, which JSON has not"))),
        }
    }

    fn items(
        &mut self,
        [open, close]: [&str; 2],
        items: Vec<Value>,
        depth: usize,
        mut write: impl FnMut(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open)?;
        let is_empty = items.is_empty();
        for (n, item) in items.into_iter().enumerate() {
            if n > 0 {
                self.out.push(&self.item)?;
            }
            self.line(depth + 1)?;
            write(self, item)?;
        }
        if !is_empty {
            self.line(depth)?;
        }
        self.out.push(close)
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        let Some(indent) = &self.indent else { return Ok(()) };
        self.out.push("\n")?;
        (0..depth).try_for_each(|_| self.out.push(indent))
    }

    fn name(&mut self, name: &Value) -> Result<(), Error> {
        match name.kind() {
            ValueKind::String => self.text(name.as_str().unwrap_or_default()),
            ValueKind::None => self.text("null"),
            ValueKind::Bool => self.text(if name.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text(&name.to_string()),
            kind => Err(invalid(format!("tojson got {kind} for a key"))),
        }?;
        self.out.push(&self.key)
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        self.out.push("\"")?;
        for letter in text.chars() {
            match letter {
                '"' => self.out.push("\\\""),
                '\\' => self.out.push("\\\\"),
                '\n' => self.out.push("\\n"),
                '\r' => self.out.push("\\r"),
                '\t' => self.out.push("\\t"),
                '\u{8}' => self.out.push("\\b"),
                '\u{c}' => self.out.push("\\f"),
                letter if letter < ' ' || (self.is_ascii && letter > '~') => {
                    let escaped: Vec<_> =
                        letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
                    self.out.push(&escaped.concat())
                }
                letter => self.out.push(letter.encode_utf8(&mut [0; 4])),
            }?;
        }
        self.out.push("\"")
    }
}

/// Returns a number as Python's `repr` writes it: the shortest digits that are the same number.
fn float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    let written = format!("{number:e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        if plain.contains('.') { plain } else { plain + ".0" }
    } else {
        format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}
