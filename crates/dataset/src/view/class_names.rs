//! Names of classes: those of values, and comparisons of a field that has numbers of classes with names.

use spdl_job::{CLASS_NUMBERS, nearest_name};
use spdl_order::view::{Expression, Value};
use spdl_shard::manifest::Manifest;

use super::field::FoundValue;
use crate::LABEL_FIELD;

/// The most characters of the name of a class.
const MAX_NAME: usize = 200;

/// What a name in a filter is compared with, if a class is among it.
pub(super) struct ClassNames {
    /// The first text that is no class.
    unknown: Option<String>,
    /// Whether numbers without a type are those of classes, too.
    takes_untyped: bool,
}

impl ClassNames {
    /// Returns those of each name in a filter.
    pub(super) fn of(filter: &Expression, manifest: &Manifest) -> Vec<Option<Self>> {
        let is_class = |text: &&str| manifest.class_number(text).is_some();
        let of_name = |(number, name): (usize, &str)| {
            let texts = filter.texts(number);
            let unknown = texts.iter().find(|text| !is_class(text)).map(|text| (*text).to_owned());
            texts.iter().any(is_class).then(|| Self { unknown, takes_untyped: name == LABEL_FIELD })
        };
        filter.names().enumerate().map(of_name).collect()
    }

    /// Returns the name of the class whose number a value is, or another value as it is.
    ///
    /// # Errors
    /// If the value is the number of a class, and the filter compares it with a text that is no class. The error is in words.
    pub(super) fn called<'v>(&self, manifest: &'v Manifest, value: Value<'v>) -> Result<Value<'v>, String> {
        let number = match value {
            Value::Untyped(text) if self.takes_untyped => text.trim().parse().ok(),
            Value::Int(number) => u32::try_from(number).ok(),
            _ => None,
        };
        let number = number.filter(|number| (*number as usize) < manifest.classes().len());
        match (number, &self.unknown) {
            (None, _) => Ok(value),
            (Some(number), None) => Ok(Value::Text(manifest.class(number))),
            (Some(_), Some(unknown)) => {
                let classes: Vec<&str> = manifest.classes().collect();
                let meant = nearest_name(unknown, &classes).map(|class| format!("; did you mean `{class}`?"));
                Err(format!("`{unknown}` is none of the dataset's classes{}", meant.unwrap_or_default()))
            }
        }
    }
}

/// Returns the name of the class that a value of the field `by` is: that of the dataset's class, if the field has numbers of these.
/// `None` if there is no value.
///
/// # Errors
/// What the value is, if it is no single one.
pub(super) fn class_of(by: &str, manifest: &Manifest, value: &FoundValue) -> Result<Option<String>, &'static str> {
    let text = match value.value() {
        Value::Null => return Ok(None),
        Value::Opaque(what) => return Err(what),
        Value::Text(text) | Value::Untyped(text) => text.trim().to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
    };
    if text.is_empty() {
        return Ok(None);
    }
    if text.chars().count() > MAX_NAME {
        return Err("a text of more than 200 characters, which is no name of a class");
    }
    let number = if CLASS_NUMBERS.contains(&by) { class_numbered(manifest, &text) } else { None };
    Ok(Some(number.map_or(text, |number| manifest.class(number).to_owned())))
}

/// Returns the number of a class of the dataset that a text is.
pub(super) fn class_numbered(manifest: &Manifest, text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (*number as usize) < manifest.classes().len())
}
