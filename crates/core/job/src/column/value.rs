//! What a column of single values reads of its field: a place within a JSON document, some of the classes, and the value for
//! samples without one.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::{CategoryColumn, DeltasFile, Kind, deltas};
use crate::{KeyProblem, check::check_shape, described::described};
use spdl_types::{DType, SampleShape};

/// The greatest finite number of a float of 16 bits.
const MAX_F16: f64 = 65_504.0;

/// The keys of a `[[column]]` that columns of single values have: numbers, texts and classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ValueKeys {
    /// Keys from the root of a JSON document to the value, separated by dots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The value of samples without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultFile>,
    /// Some of the dataset's classes, in the order of their new numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassesFile>,
    /// The places of its values in the series of records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deltas: Option<DeltasFile>,
}

/// The `default` of a column in a job file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the types of TOML")]
pub enum DefaultFile {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// The `classes` of a column in a job file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ClassesFile {
    /// Their number.
    Count(u32),
    /// Their names.
    Names(Vec<String>),
}

/// What a column of single values reads of its field, if that is not all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnValue {
    /// Keys from the root of the JSON document that the field holds to the value; empty if the field is the value. Places in a list
    /// are written as numbers.
    pub path: Vec<String>,
    /// The value of samples whose field is missing or null.
    pub default: Option<DefaultValue>,
    /// Those of the dataset's classes that the column has, in the order of its numbers; `None` for all, with their own numbers.
    pub classes: Option<Vec<String>>,
    /// The places of its values in the series of records that the sample's record is of, counted from that; empty for one value, that
    /// of the record. A place before or behind the series has the value of its first or last record.
    pub deltas: Vec<i32>,
}

/// The value of a column for samples whose field is missing or null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultValue {
    /// True or false.
    Bool(bool),
    /// A number, in decimal, as a field would have it in text.
    Number(String),
    /// A text, or a name.
    Text(String),
}

impl ValueKeys {
    /// Converts the keys, without checking their values.
    pub(super) fn read(&self) -> Result<ColumnValue, KeyProblem> {
        let classes = match &self.classes {
            None => None,
            Some(ClassesFile::Names(names)) => Some(names.clone()),
            Some(ClassesFile::Count(count)) => {
                return Err(("classes", format!("is {count}; write the names of the classes that the column has")));
            }
        };
        let default = self.default.as_ref().map(DefaultFile::value);
        Ok(ColumnValue { path: path_of(self.path.as_deref()), default, classes, deltas: self.read_deltas()? })
    }

    /// Converts the `deltas`, without checking the places; none if there are none.
    pub(super) fn read_deltas(&self) -> Result<Vec<i32>, KeyProblem> {
        self.deltas.as_ref().map_or_else(|| Ok(Vec::new()), DeltasFile::read)
    }
}

/// Returns the names of those of the keys that columns of this kind have.
pub(super) const fn keys_of<K: Kind>() -> &'static [&'static str] {
    match (K::IS_PLAIN, K::TAKES_CLASSES, K::TAKES_DELTAS) {
        (true, true, true) => &["path", "default", "classes", "deltas"],
        (true, false, true) => &["path", "default", "deltas"],
        (false, true, true) => &["classes", "deltas"],
        (false, false, true) => &["deltas"],
        (true, true, false) => &["path", "default", "classes"],
        (true, false, false) => &["path", "default"],
        (false, true, false) => &["classes"],
        (false, false, false) => &[],
    }
}

/// Returns the keys of a `path`.
pub(super) fn path_of(path: Option<&str>) -> Vec<String> {
    let path = path.filter(|path| !path.is_empty());
    path.into_iter().flat_map(|path| path.split('.')).map(str::to_owned).collect()
}

impl ColumnValue {
    /// Returns the shape of values each of which has the shape `each`.
    pub(super) fn shape(&self, each: SampleShape) -> SampleShape {
        match each {
            SampleShape::Fixed(sides) if !self.deltas.is_empty() => {
                SampleShape::Fixed([&[self.deltas.len() as u32], &sides[..]].concat())
            }
            each => each,
        }
    }

    /// Checks the places of values of this kind with elements of type `dtype`.
    fn check_deltas<K: Kind>(&self, kind: &K, dtype: DType) -> Result<(), KeyProblem> {
        if self.deltas.is_empty() {
            return Ok(());
        }
        if !K::TAKES_DELTAS {
            return Err(("deltas", format!("is not for decode = \"{}\"", K::NAME)));
        }
        kind.check_deltas()?;
        deltas::check(&self.deltas)?;
        match self.shape(kind.shape()) {
            SampleShape::Fixed(sides) => {
                check_shape(&sides, dtype).map_err(|problem| ("deltas", format!("makes a value that {problem}")))
            }
            _ => Err(("deltas", "is for values of one shape; leave `max_rows` out".to_owned())),
        }
    }

    /// Checks the values of the keys for a column of this kind with elements of type `dtype`.
    pub(super) fn check<K: Kind>(&self, kind: &K, dtype: DType) -> Result<(), KeyProblem> {
        self.check_deltas(kind, dtype)?;
        let only = |key| Err((key, format!("is not for decode = \"{}\"", K::NAME)));
        if !self.path.is_empty() && !K::IS_PLAIN {
            return only("path");
        }
        if let Some(default) = &self.default {
            if !K::IS_PLAIN {
                return only("default");
            }
            let wrong = |expected| ("default", format!("is {default}, not {expected}"));
            match (&self.classes, default) {
                (Some(classes), DefaultValue::Text(name)) if classes.contains(name) => {}
                (Some(_), DefaultValue::Text(_)) => return Err(wrong("one of `classes`".to_owned())),
                _ => kind.check_default(default, dtype).map_err(wrong)?,
            }
        }
        let Some(classes) = &self.classes else { return Ok(()) };
        if !K::TAKES_CLASSES {
            return only("classes");
        }
        check_classes(classes)
    }
}

/// Checks a list of some of the dataset's classes.
pub(super) fn check_classes(classes: &[String]) -> Result<(), KeyProblem> {
    let checked = CategoryColumn { names: Some(classes.to_vec()) }.check(DType::I64);
    checked.map_err(|(_, problem)| ("classes", problem))
}

impl DefaultFile {
    pub(super) fn value(&self) -> DefaultValue {
        match self {
            Self::Boolean(flag) => DefaultValue::Bool(*flag),
            Self::Integer(number) => DefaultValue::Number(number.to_string()),
            // The digits that are needed, and no others.
            Self::Float(number) => DefaultValue::Number(format!("{number:?}")),
            Self::Text(text) => DefaultValue::Text(text.clone()),
        }
    }
}

impl DefaultValue {
    /// Checks that it is a number of type `dtype`.
    ///
    /// # Errors
    /// What is expected.
    pub(super) fn check_number(&self, dtype: DType) -> Result<(), String> {
        let text = match self {
            Self::Number(text) => Some(text),
            _ => None,
        };
        let (is_fine, expected) = match dtype {
            DType::I64 => (text.is_some_and(|text| text.parse::<i64>().is_ok()), "a whole number"),
            DType::I32 => (text.is_some_and(|text| text.parse::<i32>().is_ok()), "a whole number of 32 bits"),
            _ => {
                let most = match dtype {
                    DType::F16 => MAX_F16,
                    DType::F32 | DType::Bf16 => f64::from(f32::MAX),
                    _ => f64::MAX,
                };
                let fits = |number: f64| !number.is_finite() || number.abs() <= most;
                (text.and_then(|text| text.parse().ok()).is_some_and(fits), "a number of the column's type")
            }
        };
        if is_fine { Ok(()) } else { Err(expected.to_owned()) }
    }

    /// Checks that it is one of the names, or a number of type `dtype`. `None` are names that the dataset lists.
    ///
    /// # Errors
    /// What is expected.
    pub(super) fn check_name(&self, names: Option<&[String]>, dtype: DType) -> Result<(), String> {
        match (self, names) {
            (Self::Text(_), None) => Ok(()),
            (Self::Text(name), Some(names)) if names.contains(name) => Ok(()),
            (Self::Number(_), _) => self.check_number(dtype),
            _ => Err("one of the column's names, or a number".to_owned()),
        }
    }
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(flag) => flag.fmt(f),
            Self::Number(number) => f.write_str(&crate::reader::shown(number)),
            Self::Text(text) => write!(f, "the text \"{}\"", crate::reader::shown(text)),
        }
    }
}

impl<'de> Deserialize<'de> for DefaultFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DefaultVisitor)
    }
}

struct DefaultVisitor;

impl Visitor<'_> for DefaultVisitor {
    type Value = DefaultFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, true or false, or a text in quotes")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<DefaultFile, E> {
        Ok(DefaultFile::Boolean(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<DefaultFile, E> {
        Ok(DefaultFile::Integer(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<DefaultFile, E> {
        Ok(DefaultFile::Float(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DefaultFile, E> {
        Ok(DefaultFile::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ClassesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ClassesVisitor)
    }
}

struct ClassesVisitor;

impl<'de> Visitor<'de> for ClassesVisitor {
    type Value = ClassesFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names, or their number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ClassesFile, E> {
        let count = u32::try_from(number);
        count.map(ClassesFile::Count).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<ClassesFile, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(names)).map(ClassesFile::Names)
    }
}

described!(DefaultFile, "DefaultFile", |_| schemars::json_schema!({
    "description": "A number, a text, or true or false.",
    "anyOf": [{ "type": "number" }, { "type": "string" }, { "type": "boolean" }],
}));

described!(ClassesFile, "ClassesFile", |_| schemars::json_schema!({
    "description": "Names of classes in the order of their numbers, or how many classes there are.",
    "anyOf": [
        { "type": "array", "items": { "type": "string" } },
        { "type": "integer", "minimum": 1, "maximum": u32::MAX },
    ],
}));

/// The schema of [`ValueKeys`]; its descriptions come after `For KIND: `.
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct ValueKeysSchema {
    /// the place of the value in the JSON document that the field then holds: the keys from the root, separated by dots, such as
    /// `annotations.0.name`. An index in a list is a number. Default: none; the field itself is the value.
    path: Option<String>,
    /// the value of samples whose field is missing or null, or that have nothing or null at the `path`. Default: none; such a sample
    /// is a bad sample.
    default: Option<DefaultFile>,
    /// those of the dataset's classes that the column has, by name: they get the numbers 0, 1, 2 and so on, in this order. A sample of
    /// another class is a bad sample, unless a view leaves it out. Default: all, with the dataset's numbers.
    classes: Option<ClassesFile>,
    /// the places of the values that a sample has, counted from its record, for datasets whose records belong to series, such as the
    /// frames of an episode: `[-1, 0]`, or `{ from = 0, to = 50 }` for 0 to 49. The value has one more dimension, before all others. A
    /// place before or behind the series has the value of its first or last record; `is_pad` says which these are. Default: none; the
    /// value of the record.
    deltas: Option<DeltasFile>,
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobFile};
    use spdl_order::DatasetFacts;
    use spdl_types::Fingerprint;

    fn job(column: &str) -> Result<Job, String> {
        let text = format!(
            "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"x\"\nfrom = \"f\"\n{column}"
        );
        let file = JobFile::parse(&text, "job.toml").map_err(|error| error.to_string())?;
        // A job file travels as its text.
        let file = JobFile::parse(&toml::to_string(&file).unwrap(), "again.toml").unwrap();
        file.freeze(&DatasetFacts::new(Fingerprint(7), 100, 10)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_default_a_path_and_classes_are_part_of_the_job_and_of_its_fingerprint() {
        let mut seen = Vec::new();
        for column in [
            "decode = \"int\"",
            "decode = \"int\"\ndefault = -1",
            "decode = \"int\"\npath = \"a.0\"",
            "decode = \"int\"\nclasses = [\"cat\", \"dog\"]",
            "decode = \"int\"\nclasses = [\"dog\", \"cat\"]",
            "decode = \"int\"\nclasses = [\"dog\", \"cat\"]\ndefault = \"cat\"",
            "decode = \"float\"\ndefault = nan",
            "decode = \"float\"\ndefault = 0.1",
            "decode = \"float\"\ndefault = 3",
            "decode = \"bool\"\ndefault = false",
            "decode = \"json\"\npath = \"a\"\ndefault = 2.5",
            "decode = \"text\"\ndefault = \"\"",
            "decode = \"text\"\npath = \"a.b\"",
            "decode = \"category\"\ndefault = \"cat\"",
            "decode = \"category\"\nnames = [\"cat\"]\ndefault = -100",
            "decode = \"one_hot\"\nclasses = [\"cat\", \"dog\"]\ndefault = \"dog\"",
            "decode = \"one_hot\"\nclasses = 2\ndefault = 1",
            "decode = \"box_class\"\nclasses = [\"cat\"]",
        ] {
            let job = job(column).unwrap_or_else(|error| panic!("{column}: {error}"));
            let back: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
            assert_eq!((back.fingerprint(), &back), (job.fingerprint(), &job), "{column}");
            back.check().unwrap();
            assert!(!seen.contains(&job.fingerprint()), "{column}");
            seen.push(job.fingerprint());
        }
    }

    #[test]
    fn what_does_not_fit_the_column_is_named() {
        for (column, expected) in [
            ("decode = \"int\"\ndefault = 0.5", "`default` is 0.5, not a whole number"),
            ("decode = \"int\"\ndtype = \"i32\"\ndefault = 2147483648", "not a whole number of 32 bits"),
            ("decode = \"int\"\ndefault = \"7\"", "`default` is the text \"7\", not a whole number"),
            ("decode = \"float\"\ndtype = \"f16\"\ndefault = 70000", "is 70000, not a number of the column's type"),
            ("decode = \"float\"\ndefault = true", "`default` is true, not a number of the column's type"),
            ("decode = \"bool\"\ndefault = 1", "`default` is 1, not true or false"),
            ("decode = \"text\"\ndefault = 1", "`default` is 1, not a text"),
            ("decode = \"text\"\nmax_bytes = 3\ndefault = \"long\"", "not a text of at most 3 bytes"),
            ("decode = \"category\"\nnames = [\"a\"]\ndefault = \"b\"", "not one of the column's names, or a number"),
            ("decode = \"int\"\nclasses = [\"a\"]\ndefault = \"b\"", "is the text \"b\", not one of `classes`"),
            ("decode = \"int\"\nclasses = [\"a\", \"a\"]", "`classes` has `a` twice"),
            ("decode = \"int\"\nclasses = []", "`classes` has 0 names"),
            ("decode = \"int\"\nclasses = 3", "`classes` is 3; write the names of the classes that the column has"),
            ("decode = \"one_hot\"\nclasses = 2\ndefault = 2", "`default` is 2, not the number of a class"),
            (
                "decode = \"one_hot\"\nclasses = [\"a\"]\nnames = [\"a\"]",
                "`names` is not for a column with a list of `classes`",
            ),
            (
                "decode = \"int\"\ndefault = [1]",
                "default expects a number, true or false, or a text in quotes, not a list",
            ),
            ("decode = \"int\"\nclasses = \"cat\"", "classes expects a list of names, or their number, not the text"),
            ("decode = \"bytes\"\ndefault = \"x\"", "`default` is only for decode = \"int\" or \"json\" or \"float\""),
            ("decode = \"tensor\"\nshape = [2]\npath = \"a\"", "`path` is only for decode = \"int\" or \"json\""),
            (
                "decode = \"float\"\nclasses = [\"a\"]",
                "`classes` is only for decode = \"int\" or \"box_class\" or \"one_hot\"",
            ),
        ] {
            let error = job(column).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
