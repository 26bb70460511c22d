//! What the records of a dataset have in common: adds up the fields of those that were looked at.

use std::collections::BTreeMap;

use serde_json::Value;
use spdl_dataset::{LABEL_FIELD, SeenField, SeenRecord};
use spdl_shard::{
    format::{Array, Content, FieldValue, Format as _, files::LooseFiles},
    manifest::Manifest,
};

use spdl_types::DType;

use crate::kind::{FoundKind, ValueKind};

/// The most keys that are kept.
const KEYS: usize = 3;
/// Names of members of JSON documents that are tried for a number, from the root.
const DEPTH: usize = 3;

/// The facts about the records that were looked at.
#[derive(Debug, Default)]
pub(crate) struct RecordFacts {
    pub(crate) records: u64,
    /// Whether the dataset lists classes.
    pub(crate) has_classes: bool,
    pub(crate) first_keys: Vec<String>,
    pub(crate) fields: BTreeMap<String, FieldFacts>,
    /// The records of each class, by the class's number.
    pub(crate) classes: BTreeMap<u32, u64>,
}

/// The facts about one field.
#[derive(Debug)]
pub(crate) struct FieldFacts {
    /// Records that have it.
    pub(crate) records: u64,
    pub(crate) kinds: BTreeMap<ValueKind, u64>,
    /// How many values have each size in bytes.
    sizes: BTreeMap<u64, u64>,
    /// For each number of sides the shortest and the longest of each.
    sides: BTreeMap<usize, [Vec<u64>; 2]>,
    /// Whether all values are names of classes.
    pub(crate) are_classes: bool,
    /// Whether all values are PNGs of one value for each pixel, grey or of a palette, as masks are.
    pub(crate) have_one_channel: bool,
    /// Where the first JSON document has a number.
    pub(crate) number_path: Option<String>,
    /// The largest number of arrays of whole numbers.
    pub(crate) largest: Option<i64>,
    /// Whether files are read as they lie: a list of pictures is the frames of a folder.
    are_loose: bool,
    /// What is wrong with the first value that cannot be read.
    pub(crate) problem: Option<String>,
}

impl RecordFacts {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: SeenRecord, manifest: &Manifest) {
        self.records += 1;
        self.has_classes = manifest.classes().len() > 0;
        for field in &record.fields {
            if field.name == LABEL_FIELD
                && let Some(class) = text(&field.value).and_then(|text| class_number(text, manifest))
            {
                *self.classes.entry(class).or_default() += 1;
            }
            if let Some(facts) = self.fields.get_mut(&field.name) {
                facts.add(field, manifest);
            } else {
                self.fields.entry(field.name.clone()).or_insert_with(FieldFacts::new).add(field, manifest);
            }
        }
        if self.first_keys.len() < KEYS {
            self.first_keys.push(record.key);
        }
    }
}

/// Returns the class that a label stands for: a number, or a name.
fn class_number(text: &str, manifest: &Manifest) -> Option<u32> {
    let is_class = |number: &u32| (*number as usize) < manifest.classes().len();
    text.parse().ok().filter(is_class).or_else(|| manifest.class_number(text))
}

/// Returns a value that is text.
fn text(value: &Result<FieldValue, String>) -> Option<&str> {
    match value {
        Ok(FieldValue::One(Content::File(bytes))) => std::str::from_utf8(bytes).ok().map(str::trim),
        _ => None,
    }
}

impl FieldFacts {
    const fn new() -> Self {
        Self {
            records: 0,
            kinds: BTreeMap::new(),
            sizes: BTreeMap::new(),
            sides: BTreeMap::new(),
            are_classes: true,
            have_one_channel: true,
            number_path: None,
            largest: None,
            are_loose: false,
            problem: None,
        }
    }

    fn add(&mut self, SeenField { value, is_frame, .. }: &SeenField, manifest: &Manifest) {
        let FoundKind { kind, sides } = match is_frame {
            true => FoundKind { kind: ValueKind::Frame, sides: Vec::new() },
            false => FoundKind::of(value),
        };
        let text = text(value);
        if kind == ValueKind::Json && self.number_path.is_none() {
            self.number_path = text.and_then(number_path);
        }
        self.are_classes &= kind == ValueKind::Text && text.is_some_and(|text| manifest.class_number(text).is_some());
        self.have_one_channel &= kind == ValueKind::Picture("PNG") && has_one_channel(value);
        if let Ok(FieldValue::One(Content::Array(array))) = value {
            self.largest = self.largest.max(largest(array));
        }
        self.are_loose = manifest.format().name() == LooseFiles.name();
        self.records += 1;
        *self.kinds.entry(kind).or_default() += 1;
        match value {
            Ok(value) => *self.sizes.entry(value.size() as u64).or_default() += 1,
            Err(problem) => drop(self.problem.get_or_insert_with(|| problem.clone())),
        }
        let [shortest, longest] = self.sides.entry(sides.len()).or_insert_with(|| [sides.clone(), sides.clone()]);
        shortest.iter_mut().zip(&sides).for_each(|(shortest, side)| *shortest = (*shortest).min(*side));
        longest.iter_mut().zip(&sides).for_each(|(longest, side)| *longest = (*longest).max(*side));
    }

    /// Returns the least, the median and the largest size of a value, in bytes.
    pub(crate) fn sizes(&self) -> Option<[u64; 3]> {
        let (least, largest) = (*self.sizes.first_key_value()?.0, *self.sizes.last_key_value()?.0);
        let mut below = self.sizes.values().sum::<u64>().div_ceil(2);
        let median = self.sizes.iter().find(|(_, count)| {
            let is_median = below <= **count;
            below = below.saturating_sub(**count);
            is_median
        });
        Some([least, *median.expect("half of the values are below it").0, largest])
    }

    /// Returns the most bytes that a value takes in a batch, in a column of any length: of a sound its decoded samples.
    pub(crate) fn most_bytes(&self) -> u64 {
        match self.sides() {
            Some([_, longest]) if self.is_sound() => 4 * longest.last().copied().unwrap_or(0),
            _ => self.sizes().map_or(0, |[.., most]| most),
        }
    }

    /// Returns the mean size of a value, in bytes.
    pub(crate) fn mean_bytes(&self) -> f64 {
        let sum: u128 = self.sizes.iter().map(|(bytes, count)| u128::from(*bytes) * u128::from(*count)).sum();
        sum as f64 / self.records.max(1) as f64
    }

    /// Returns whether all values are pictures.
    pub(crate) fn is_picture(&self) -> bool {
        self.kinds.keys().all(|kind| matches!(kind, ValueKind::Picture(_)))
    }

    /// Returns whether all values are sounds.
    pub(crate) fn is_sound(&self) -> bool {
        self.kinds.keys().all(|kind| matches!(kind, ValueKind::Sound(_)))
    }

    /// Returns whether all values are videos.
    pub(crate) fn is_video(&self) -> bool {
        self.kinds.keys().all(|kind| matches!(kind, ValueKind::Video(_)))
    }

    /// Returns whether all values are the frames of videos: lists of pictures, or single ones among such.
    pub(crate) fn is_frames(&self) -> bool {
        let is_list =
            |kind: &ValueKind| matches!(kind, ValueKind::List(each) if matches!(**each, ValueKind::Picture(_)));
        let is_one = |kind: &ValueKind| is_list(kind) || matches!(kind, ValueKind::Picture(_));
        self.are_loose && self.kinds.keys().any(is_list) && self.kinds.keys().all(is_one)
    }

    /// Returns the only kind of all values, if there is one.
    pub(crate) fn kind(&self) -> Option<&ValueKind> {
        self.kinds.keys().next().filter(|_| self.kinds.len() == 1)
    }

    /// Returns the shortest and the longest sides of all values, if they have the same number of sides, and some.
    pub(crate) fn sides(&self) -> Option<&[Vec<u64>; 2]> {
        self.sides.values().next().filter(|[shortest, _]| self.sides.len() == 1 && !shortest.is_empty())
    }
}

/// Returns the largest element of an array of whole numbers.
fn largest(Array { dtype, elements, .. }: &Array) -> Option<i64> {
    fn of<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> i64) -> Option<i64> {
        bytes.as_chunks::<N>().0.iter().map(|element| number(*element)).max()
    }
    match dtype {
        DType::U8 => of(elements, |[byte]| byte.into()),
        DType::U16 => of(elements, |element| u16::from_le_bytes(element).into()),
        DType::U32 => of(elements, |element| u32::from_le_bytes(element).into()),
        DType::I8 => of(elements, |element| i8::from_le_bytes(element).into()),
        DType::I16 => of(elements, |element| i16::from_le_bytes(element).into()),
        DType::I32 => of(elements, |element| i32::from_le_bytes(element).into()),
        DType::I64 => of(elements, i64::from_le_bytes),
        _ => None,
    }
}

/// Returns whether a PNG has one value for each pixel, by the type of its colours in its header.
fn has_one_channel(value: &Result<FieldValue, String>) -> bool {
    const COLOR_TYPE: usize = 25;
    matches!(value, Ok(FieldValue::One(Content::File(bytes))) if matches!(bytes.get(COLOR_TYPE), Some(0 | 3)))
}

/// Returns where a JSON document has a number, as a column names it.
fn number_path(text: &str) -> Option<String> {
    fn find(value: &Value, depth: usize) -> Option<String> {
        match value {
            Value::Number(_) => Some(String::new()),
            Value::Object(members) if depth > 0 => members.iter().find_map(|(name, value)| {
                let rest = find(value, depth - 1).filter(|_| !name.contains('.') && !name.is_empty())?;
                Some(if rest.is_empty() { name.clone() } else { format!("{name}.{rest}") })
            }),
            _ => None,
        }
    }
    find(&serde_json::from_str(text).ok()?, DEPTH).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_size_of_the_value_in_the_middle() {
        let mut facts = FieldFacts::new();
        assert_eq!(facts.sizes(), None);
        for size in [9, 1, 5, 5] {
            *facts.sizes.entry(size).or_default() += 1;
            facts.records += 1;
        }
        assert_eq!(facts.sizes(), Some([1, 5, 9]));
        *facts.sizes.entry(1).or_default() += 10;
        assert_eq!(facts.sizes(), Some([1, 1, 9]));
    }

    #[test]
    fn a_number_in_a_document_is_found_by_its_path() {
        assert_eq!(number_path(r#"{"a": "x", "b": {"c": 1}}"#).as_deref(), Some("b.c"));
        assert_eq!(number_path(r#"{"a.b": 1}"#), None);
        assert_eq!(number_path("3"), None);
    }
}
