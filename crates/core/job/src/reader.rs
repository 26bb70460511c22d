//! Reads the keys of a job file, and reports which key is wrong and where, in words of its own, because the texts of
//! the parser and of serde name Rust types.

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, Error, Expected, IntoDeserializer, Unexpected, Visitor,
        value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_path_to_error::Segment;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use super::{ImageOp, SoundOp};

/// Length of the longest text that an error repeats, in characters.
const MAX_SHOWN: usize = 60;
/// Number of letters in which a name may differ from the intended one.
const MAX_TYPOS: usize = 2;

/// A value that is invalid in a job file.
#[derive(Debug)]
pub(super) struct JobFault {
    /// Where the value is and what is wrong with it, in words.
    pub(super) problem: String,
    path: Vec<String>,
}

impl JobFault {
    /// Returns the value's line in the text that the table was read from, counted from 1.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let parsed = DeTable::parse(text).ok()?;
        let mut start = None;
        let mut value = &DeValue::Table(parsed.into_inner());
        for part in &self.path {
            let next = match value {
                DeValue::Table(table) => {
                    let Some((key, next)) = table.iter().find(|(key, _)| key.get_ref().as_ref() == part.as_str())
                    else {
                        break;
                    };
                    start = Some(key.span().start);
                    next
                }
                DeValue::Array(list) => {
                    let Some(next) = part.parse().ok().and_then(|index: usize| list.get(index)) else { break };
                    start = Some(next.span().start);
                    next
                }
                _ => break,
            };
            value = next.get_ref();
        }
        Some(1 + text.as_bytes()[..start?].iter().filter(|byte| **byte == b'\n').count())
    }
}

/// Reads a table as a `T`.
pub(super) fn read<T: DeserializeOwned>(table: &Table) -> Result<T, JobFault> {
    serde_path_to_error::deserialize(KnownJobKeys(table)).map_err(|error| {
        let mut path: Vec<Segment> = error.path().iter().cloned().collect();
        let wrong = error.into_inner();
        let key = if let Wrong::NoSuchKey { key, .. } = &wrong { Some(key) } else { None };
        // The text names the key itself, which may also be the end of the path.
        path.pop_if(|last| match last {
            Segment::Map { key: last } => Some(&*last) == key,
            Segment::Unknown => true,
            _ => false,
        });
        let problem = wrong.at(&path, table);
        path.extend(key.map(|key| Segment::Map { key: key.clone() }));
        let path = path.iter().map(|part| match part {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } | Segment::Enum { variant: key } => key.clone(),
            Segment::Unknown => String::new(),
        });
        JobFault { problem, path: path.collect() }
    })
}

/// What is wrong with a value, without its place.
#[derive(Debug)]
enum Wrong {
    Expects { expected: String, found: String, is_quoted_number: bool },
    Missing(&'static str),
    NoSuchKey { key: String, known: &'static [&'static str] },
    NoSuchName { name: String, known: &'static [&'static str] },
    Other(String),
}

impl Wrong {
    /// Returns the whole text: the place in the job, and the problem there.
    fn at(&self, path: &[Segment], job: &Table) -> String {
        let (places, text) = match path {
            [Segment::Map { key }, Segment::Seq { index }, rest @ ..] if key == "column" => {
                let name = job["column"].get(*index).and_then(|column| column.get("name")).and_then(Value::as_str);
                let column = format!("column {}", name.map_or_else(|| (index + 1).to_string(), shown));
                match rest {
                    [Segment::Map { key }, Segment::Seq { index }, rest @ ..] if key == "ops" => {
                        self.of_step(vec![column], &format!("ops[{index}]"), rest)
                    }
                    [] if !self.is_within() => (Vec::new(), self.text(&column)),
                    rest => {
                        let (place, text) = self.of_path(rest);
                        (std::iter::once(column).chain(place).collect(), text)
                    }
                }
            }
            [Segment::Map { key }, Segment::Seq { index }, rest @ ..] if key == "ops" => {
                self.of_step(Vec::new(), &format!("ops[{index}]"), rest)
            }
            path => {
                let (place, text) = self.of_path(path);
                (Vec::from_iter(place), text)
            }
        };
        if places.is_empty() { text } else { format!("{}: {text}", places.join(", ")) }
    }

    /// Returns whether the problem is in the contents of the table at a path, and not in the value there.
    const fn is_within(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::NoSuchKey { .. } | Self::Other(_))
    }

    /// Returns the place of a problem at `path`, and the problem.
    fn of_path(&self, path: &[Segment]) -> (Option<String>, String) {
        // The entry of a list is named together with its list.
        let own = path.iter().rposition(|part| !matches!(part, Segment::Seq { .. })).unwrap_or(0);
        let (parents, own) = if self.is_within() { (path, &[][..]) } else { path.split_at(own) };
        (Some(dotted(parents)).filter(|place| !place.is_empty()), self.text(&dotted(own)))
    }

    /// Returns the place and the problem for the step `place` within `places`, or for a value at `path` within the
    /// step.
    fn of_step(&self, mut places: Vec<String>, place: &str, path: &[Segment]) -> (Vec<String>, String) {
        let text = match (self, path) {
            (Self::NoSuchName { name, known }, [] | [_]) => {
                places.push(place.to_owned());
                format!("there is no step `{}`{}", shown(name), meant(name, known, "steps are"))
            }
            (_, []) => {
                if self.is_within() {
                    places.push(place.to_owned());
                }
                self.text(place)
            }
            (_, [Segment::Map { key: step }]) => {
                places.push(place.to_owned());
                let expects = ImageOp::expects(step).or_else(|| SoundOp::expects(step));
                let expects = expects.unwrap_or_else(|| format!("{step} expects a table"));
                match self {
                    Self::Expects { found, .. } => format!("{expects}, not {found}"),
                    Self::Missing(key) => format!("{expects}; `{key}` is missing"),
                    Self::NoSuchKey { key, known } => {
                        format!("{step} has no key `{}`{}", shown(key), meant(key, known, "its keys are"))
                    }
                    _ => self.text(step),
                }
            }
            (_, path) => {
                let (within, text) = self.of_path(path);
                places.push(within.map_or_else(|| place.to_owned(), |within| format!("{place}.{within}")));
                text
            }
        };
        (places, text)
    }

    /// Describes what is wrong with the value of `subject`.
    fn text(&self, subject: &str) -> String {
        match self {
            Self::Expects { found, .. }
                if ["column", "function", "source", "stage"].contains(&subject) && found == "a table" =>
            {
                format!("write [[{subject}]] with two brackets: a job has a list of {subject}s")
            }
            Self::Expects { expected, found, is_quoted_number } => {
                let quotes = if *is_quoted_number { "; leave out the quotes" } else { "" };
                format!("{subject} expects {expected}, not {found}{quotes}")
            }
            Self::Missing(key) => format!("`{key}` is missing"),
            Self::NoSuchKey { key, known } => {
                format!("there is no key `{}`{}", shown(key), meant(key, known, "keys are"))
            }
            Self::NoSuchName { name, known } => {
                format!("{subject} cannot be `{}`{}", shown(name), meant(name, known, "it can be"))
            }
            Self::Other(text) => text.clone(),
        }
    }
}

/// Writes a path as `a.b[0].c`.
fn dotted(path: &[Segment]) -> String {
    let mut text = String::new();
    for part in path {
        match part {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&shown(key));
            }
            Segment::Unknown => {}
        }
    }
    text
}

/// Suggests the known name closest to `name`, or lists all known names.
pub(super) fn meant(name: &str, known: &[&str], all: &str) -> String {
    match nearest_name(name, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; {all} {}", known.join(", ")),
    }
}

/// Returns the known name closest to `name`, if that is close.
#[must_use]
pub fn nearest_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let distance = |other: &&str| strsim::osa_distance(name, other);
    known.iter().copied().min_by_key(distance).filter(|nearest| distance(nearest) <= MAX_TYPOS)
}

/// Shortens a text of the user's or of a peer's to fit on a line.
pub(super) fn shown(text: &str) -> String {
    shortened(text, MAX_SHOWN)
}

/// Shortens a text to this many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// Describes the value that was found.
fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(flag) => flag.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => format!("{number:?}"),
        Unexpected::Str(text) => format!("the text \"{}\"", shown(text)),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// Describes the value that is expected; `is_range` means that the type is right and the value out of range.
fn wanted(expected: &dyn Expected, is_range: bool) -> String {
    let text = expected.to_string();
    let range = |most: u64| {
        if is_range { format!("a whole number from 0 to {most}") } else { "a whole number".to_owned() }
    };
    match text.as_str() {
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX.into()),
        // TOML has no larger integers.
        "u64" => range(i64::MAX.cast_unsigned()),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        "an array of length 3" => "a list of 3 numbers".to_owned(),
        "an array of length 2" => "a list of 2 numbers".to_owned(),
        text if text.starts_with("struct ") => "a table of keys".to_owned(),
        text => text.to_owned(),
    }
}

impl Wrong {
    fn expects(unexpected: Unexpected<'_>, expected: &dyn Expected, is_range: bool) -> Self {
        let is_number = |text: &str| text.trim().parse::<f64>().is_ok();
        let expected = wanted(expected, is_range);
        let is_quoted_number =
            matches!(unexpected, Unexpected::Str(text) if is_number(text)) && expected.contains("number");
        Self::Expects { expected, found: found(unexpected), is_quoted_number }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text("the value"))
    }
}

impl std::error::Error for Wrong {}

impl Error for Wrong {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Other(text.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expects(unexpected, expected, false)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expects(unexpected, expected, true)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let entries = if length == 1 { "entry" } else { "entries" };
        let found = format!("{length} {entries}");
        Self::Expects { expected: wanted(expected, false), found, is_quoted_number: false }
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::NoSuchName { name: name.to_owned(), known }
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::NoSuchKey { key: key.to_owned(), known }
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

/// A table, as a serde deserializer.
struct KnownJobKeys<'a>(&'a Table);

impl<'de> Deserializer<'de> for KnownJobKeys<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        // Which keys a column has depends on its `decode`.
        let is_first = |key: &String| key == "decode";
        let first = self.0.iter().filter(|(key, _)| is_first(key));
        let others = self.0.iter().filter(|(key, _)| !is_first(key));
        let mut keys = MapDeserializer::new(first.chain(others).map(|(key, value)| (key.as_str(), Node(value))));
        let value = visitor.visit_map(&mut keys)?;
        keys.end()?;
        Ok(value)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A value, as a serde deserializer.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Value);

impl<'a> IntoDeserializer<'a, Wrong> for Node<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Datetime(_) => Err(Wrong::invalid_type(Unexpected::Other("a date"), &visitor)),
            Value::Array(list) => {
                let mut entries = SeqDeserializer::new(list.iter().map(Node));
                let value = visitor.visit_seq(&mut entries)?;
                entries.end()?;
                Ok(value)
            }
            Value::Table(table) => KnownJobKeys(table).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(table) => {
                let keys = MapDeserializer::new(table.iter().map(|(key, value)| (key.as_str(), Node(value))));
                visitor.visit_enum(MapAccessDeserializer::new(keys))
            }
            _ => {
                let one_of = format!("one of {}", variants.join(", "));
                // The visitor knows only the name of a Rust type.
                Self::deserialize_any(self, NoName(&one_of)).map(|never: std::convert::Infallible| match never {})
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A visitor that refuses every value; its text is the expectation in the error.
struct NoName<'a>(&'a str);

impl<'de> Visitor<'de> for NoName<'_> {
    type Value = std::convert::Infallible;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
