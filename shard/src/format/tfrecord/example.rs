//! Reads `tf.train.Example` and `tf.train.SequenceExample`, messages of Protocol Buffers, as their own parser does: unknown fields
//! are passed over. An example is a sequence example without lists of features.
//!
//! ```text
//! SequenceExample   1: Features   2: FeatureLists      Feature   1: BytesList   2: FloatList   3: Int64List, of which the last one counts
//! Features          1: map of Feature                  *List     1: its values, of numbers packed or one by one
//! FeatureLists      1: map of FeatureList              Entry     1: key  2: Feature or FeatureList
//! FeatureList       1: its Features
//! ```

use std::{fmt, ops::Range};

use bytes::Bytes;

use spdl_types::DType;

use crate::format::{
    Array, FieldValue, MAX_LIST_FILES,
    protobuf::{ProtobufMessage, ProtobufValue},
};

/// Prefix of the names of fields that are lists of features, which no other field has. A list may have the name of a
/// feature.
const OF_LISTS: &str = "feature_lists.";

/// The name of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum FieldName<'e> {
    Feature(&'e str),
    List(&'e str),
}

impl FieldName<'_> {
    fn is(self, name: &str) -> bool {
        match self {
            Self::Feature(own) => own == name,
            Self::List(own) => name.strip_prefix(OF_LISTS) == Some(own),
        }
    }

    const fn own(&self) -> &str {
        match self {
            Self::Feature(own) | Self::List(own) => own,
        }
    }
}

impl fmt::Display for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(own) => f.write_str(own),
            Self::List(own) => write!(f, "{OF_LISTS}{own}"),
        }
    }
}

/// Returns the features of an example and its lists of features: the names of their fields, and the ranges of their
/// messages in `example`, in the order of these ranges. Of two with the same name, the later one counts.
///
/// # Errors
/// What is wrong with the example, as words that follow its name.
pub fn features(example: &[u8]) -> Result<Vec<(String, Range<usize>)>, String> {
    let mut found: Vec<(String, Range<usize>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    each_field(example, |name, message| match known.get(&name) {
        Some(&nth) => found[nth] = (name.to_string(), message),
        None => {
            known.insert(name, found.len());
            found.push((name.to_string(), message));
        }
    })?;
    found.sort_by_key(|(_, message)| message.start);
    Ok(found)
}

/// Returns the range of the message in `example` that is the field called `wanted`, a feature or a list of features. Of
/// two, the later one counts.
///
/// # Errors
/// What is wrong with the example, as words that follow its name.
pub(in crate::format) fn feature_named(example: &[u8], wanted: &str) -> Result<Option<Range<usize>>, String> {
    let mut found = None;
    each_field(example, |name, message| {
        if name.is(wanted) {
            found = Some(message);
        }
    })?;
    Ok(found)
}

/// Returns whether a record is an example and can hardly be anything else: it has features or lists of them, each with a name that
/// a field can have, and nothing in it is unknown.
pub(in crate::format) fn is_example(record: &[u8]) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
    let is_feature =
        |feature: Range<usize>| has_only(record, feature.clone(), 1..=3, |_| true) && values(record, feature).is_some();
    let (mut has_fields, mut is_all_known) = (false, true);
    let read = each_field(record, |name, message| {
        has_fields = true;
        is_all_known &= is_name(name.own())
            && match name {
                FieldName::Feature(_) => is_feature(message),
                FieldName::List(_) => has_only(record, message, 1..=1, is_feature),
            };
    });
    let has_only_maps = || has_only(record, 0..record.len(), 1..=2, |map| has_only(record, map, 1..=1, |_| true));
    read.is_ok() && has_fields && is_all_known && has_only_maps()
}

/// Returns whether a message has only fields with these numbers, each of them a message that `is_right` accepts.
fn has_only(
    bytes: &[u8],
    range: Range<usize>,
    numbers: std::ops::RangeInclusive<u64>,
    is_right: impl Fn(Range<usize>) -> bool,
) -> bool {
    let mut message = ProtobufMessage::new(bytes, range);
    while let Some(field) = message.next() {
        match field {
            None => return true,
            Some(field) => match field.value {
                ProtobufValue::Delimited(inner) if numbers.contains(&field.number) && is_right(inner.clone()) => {}
                _ => return false,
            },
        }
    }
    false
}

/// Calls `each` with the name of each field, and where its message lies.
fn each_field<'e>(example: &'e [u8], mut each: impl FnMut(FieldName<'e>, Range<usize>)) -> Result<(), String> {
    let wrong = || "is no `tf.train.Example`: its message is damaged, or another one".to_owned();
    let mut message = ProtobufMessage::new(example, 0..example.len());
    while let Some(field) = message.next().ok_or_else(wrong)? {
        let (of, map) = match (field.number, field.value) {
            (1, ProtobufValue::Delimited(features)) => (FieldName::Feature as fn(&'e str) -> FieldName<'e>, features),
            (2, ProtobufValue::Delimited(lists)) => (FieldName::List as fn(&'e str) -> FieldName<'e>, lists),
            _ => continue,
        };
        let mut entries = ProtobufMessage::new(example, map);
        while let Some(entry) = entries.next().ok_or_else(wrong)? {
            let (1, ProtobufValue::Delimited(entry)) = (entry.number, entry.value) else { continue };
            let (name, value) = entry_of(example, entry).ok_or_else(wrong)?;
            let name = of(name);
            if matches!(name, FieldName::Feature(own) if own.starts_with(OF_LISTS)) {
                return Err(format!("has a feature `{name}`, and only lists of features are fields of such a name"));
            }
            each(name, value);
        }
    }
    Ok(())
}

/// Reads an entry of a map: its key, and where the message that is its value lies.
fn entry_of(example: &[u8], entry: Range<usize>) -> Option<(&str, Range<usize>)> {
    let (mut name, mut feature) = ("", entry.end..entry.end);
    let mut fields = ProtobufMessage::new(example, entry);
    while let Some(field) = fields.next()? {
        match (field.number, field.value) {
            (1, ProtobufValue::Delimited(key)) => name = std::str::from_utf8(&example[key]).ok()?,
            (2, ProtobufValue::Delimited(value)) => feature = value,
            _ => {}
        }
    }
    Some((name, feature))
}

/// The values of a feature.
enum FeatureValues {
    None,
    Bytes(Vec<Range<usize>>),
    /// Little-endian, four bytes each.
    Floats(Vec<u8>),
    /// Little-endian, eight bytes each.
    Integers(Vec<u8>),
}

impl FeatureValues {
    fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(strings) => strings.len(),
            Self::Floats(elements) => elements.len() / DType::F32.bytes(),
            Self::Integers(elements) => elements.len() / DType::I64.bytes(),
        }
    }
}

/// Returns the value of the field called `name` from the message of its feature or list of features.
///
/// # Errors
/// What is wrong with the message, as words that follow the field's name.
pub fn value(name: &str, message: &Bytes) -> Result<FieldValue, String> {
    if name.starts_with(OF_LISTS) { value_of_list(message) } else { value_of_feature(message) }
}

/// Returns the value of a list of features: the byte strings of all steps, or an array with a row for each.
fn value_of_list(list: &Bytes) -> Result<FieldValue, String> {
    let damaged = || "is no list of features of `tf.train.SequenceExample`: its message is damaged".to_owned();
    let (mut steps, mut width, mut all) = (0, 0, FeatureValues::None);
    let mut features = ProtobufMessage::new(list, 0..list.len());
    while let Some(field) = features.next().ok_or_else(damaged)? {
        let (1, ProtobufValue::Delimited(feature)) = (field.number, field.value) else { continue };
        let step = values(list, feature).ok_or_else(damaged)?;
        let count = step.count();
        if steps == 0 {
            (width, all) = (count, step);
        } else {
            if count != width {
                return Err(format!(
                    "has {width} values in its first step and {count} in step {steps} from 0; steps of one length are read"
                ));
            }
            match (&mut all, step) {
                (FeatureValues::Bytes(all), FeatureValues::Bytes(strings)) => all.extend(strings),
                (FeatureValues::Floats(all), FeatureValues::Floats(more))
                | (FeatureValues::Integers(all), FeatureValues::Integers(more)) => {
                    all.extend(more);
                }
                (FeatureValues::None, FeatureValues::None) => {}
                _ => return Err(format!("has values of another kind in step {steps} from 0 than in those before")),
            }
        }
        steps += 1;
    }
    let rows = |dtype, elements: Vec<u8>| {
        // If each step has one number, the value is a list of numbers.
        let shape = if width == 1 { vec![steps] } else { vec![steps, width as u64] };
        Ok(Array { dtype, shape, elements: elements.into() }.into())
    };
    match all {
        FeatureValues::None if steps > 0 => Err(format!("has {steps} steps without values")),
        FeatureValues::None => Ok(FieldValue::List(Vec::new())),
        FeatureValues::Bytes(_) if width != 1 => Err(format!("has {width} byte strings in each step; one is read")),
        FeatureValues::Bytes(strings) => files(list, strings),
        FeatureValues::Floats(elements) => rows(DType::F32, elements),
        FeatureValues::Integers(elements) => rows(DType::I64, elements),
    }
}

/// Returns byte strings that lie in a message as a list.
fn files(message: &Bytes, strings: Vec<Range<usize>>) -> Result<FieldValue, String> {
    match strings.len() {
        0..=MAX_LIST_FILES => {
            Ok(FieldValue::List(strings.into_iter().map(|string| Some(message.slice(string))).collect()))
        }
        more => Err(format!("is a list of {more} byte strings; at most {MAX_LIST_FILES} are read: divide the record")),
    }
}

/// Returns the value of a feature: several byte strings, or none, are a list.
fn value_of_feature(feature: &Bytes) -> Result<FieldValue, String> {
    let values =
        values(feature, 0..feature.len()).ok_or("is no feature of `tf.train.Example`: its message is damaged")?;
    match values {
        FeatureValues::None => Ok(FieldValue::List(Vec::new())),
        FeatureValues::Bytes(strings) => match &strings[..] {
            [string] => Ok(feature.slice(string.clone()).into()),
            _ => files(feature, strings),
        },
        FeatureValues::Floats(elements) => Ok(list(DType::F32, elements)),
        FeatureValues::Integers(elements) => Ok(list(DType::I64, elements)),
    }
}

fn list(dtype: DType, elements: Vec<u8>) -> FieldValue {
    let shape = vec![(elements.len() / dtype.bytes()) as u64];
    Array { dtype, shape, elements: elements.into() }.into()
}

/// Reads the values of the feature whose message lies in `range` of `bytes`.
fn values(bytes: &[u8], range: Range<usize>) -> Option<FeatureValues> {
    let mut values = FeatureValues::None;
    let mut lists = ProtobufMessage::new(bytes, range);
    while let Some(list) = lists.next()? {
        let ProtobufValue::Delimited(range) = list.value else { continue };
        // Lists of one kind are joined; a list of another kind takes their place.
        values = match (list.number, values) {
            (1, FeatureValues::Bytes(strings)) => FeatureValues::Bytes(strings),
            (1, _) => FeatureValues::Bytes(Vec::new()),
            (2, FeatureValues::Floats(elements)) => FeatureValues::Floats(elements),
            (2, _) => FeatureValues::Floats(Vec::new()),
            (3, FeatureValues::Integers(elements)) => FeatureValues::Integers(elements),
            (3, _) => FeatureValues::Integers(Vec::new()),
            (_, values) => values,
        };
        if matches!(list.number, 1..=3) {
            add(bytes, range, &mut values)?;
        }
    }
    Some(values)
}

/// Adds the values of a list.
fn add(bytes: &[u8], list: Range<usize>, values: &mut FeatureValues) -> Option<()> {
    let mut fields = ProtobufMessage::new(bytes, list);
    while let Some(field) = fields.next()? {
        match (field.number, &mut *values, field.value) {
            (1, FeatureValues::Bytes(strings), ProtobufValue::Delimited(string)) => strings.push(string),
            (1, FeatureValues::Floats(elements), ProtobufValue::Fixed(element)) => {
                elements.extend_from_slice(&bytes[element])
            }
            (1, FeatureValues::Floats(elements), ProtobufValue::Delimited(packed)) => {
                let packed = &bytes[packed];
                packed.len().is_multiple_of(4).then(|| elements.extend_from_slice(packed))?;
            }
            (1, FeatureValues::Integers(elements), ProtobufValue::Number(number)) => {
                elements.extend(number.to_le_bytes())
            }
            (1, FeatureValues::Integers(elements), ProtobufValue::Delimited(packed)) => {
                let mut numbers = ProtobufMessage::new(bytes, packed);
                while !numbers.is_at_end() {
                    elements.extend(numbers.varint()?.to_le_bytes());
                }
            }
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delimited(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 128);
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn entry(name: &str, feature: &[u8]) -> Vec<u8> {
        delimited(1, &[delimited(1, name.as_bytes()), delimited(2, feature)].concat())
    }

    fn value_of(feature: &[u8]) -> Result<FieldValue, String> {
        value("a", &Bytes::copy_from_slice(feature))
    }

    fn value_of_list(features: &[Vec<u8>]) -> Result<FieldValue, String> {
        let list: Vec<u8> = features.iter().flat_map(|feature| delimited(1, feature)).collect();
        value("feature_lists.a", &list.into())
    }

    #[test]
    fn features_are_found_by_name_and_the_last_of_a_name_counts() {
        let first = delimited(1, &[entry("a", b"12"), entry("b", b"3"), vec![2 << 3, 5]].concat());
        let example = [first, delimited(9, b"unknown"), delimited(1, &entry("a", b"4567"))].concat();
        let found = features(&example).unwrap();
        let found: Vec<_> = found.into_iter().map(|(name, range)| (name, &example[range])).collect();
        assert_eq!(found, [("b".to_owned(), &b"3"[..]), ("a".to_owned(), &b"4567"[..])]);
        assert_eq!(features(&[]).unwrap(), []);
    }

    #[test]
    fn lists_of_each_kind_are_read_packed_or_not() {
        assert_eq!(value_of(&delimited(1, &delimited(1, b"abc"))).unwrap(), Bytes::from_static(b"abc").into());
        assert_eq!(value_of(&delimited(1, &[])).unwrap(), FieldValue::List(vec![]));
        assert_eq!(value_of(&[]).unwrap(), FieldValue::List(vec![]));
        let floats = [1.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()];
        let expected = list(DType::F32, floats.as_flattened().to_vec());
        assert_eq!(value_of(&delimited(2, &delimited(1, floats.as_flattened()))).unwrap(), expected);
        let single: Vec<u8> = floats.iter().flat_map(|float| [&[1 << 3 | 5], &float[..]].concat()).collect();
        assert_eq!(value_of(&delimited(2, &single)).unwrap(), expected);
        let minus_one = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let packed = [&[0xac, 2][..], &minus_one].concat();
        let expected = list(DType::I64, [300_i64.to_le_bytes(), (-1_i64).to_le_bytes()].concat());
        assert_eq!(value_of(&delimited(3, &delimited(1, &packed))).unwrap(), expected);
        let single = [&[1 << 3, 0xac, 2, 1 << 3][..], &minus_one].concat();
        assert_eq!(value_of(&delimited(3, &single)).unwrap(), expected);
        let joined = [delimited(3, &delimited(1, &[0xac, 2])), delimited(3, &delimited(1, &minus_one))].concat();
        assert_eq!(value_of(&joined).unwrap(), expected);
        let replaced = [delimited(1, &delimited(1, b"abc")), joined].concat();
        assert_eq!(value_of(&replaced).unwrap(), expected);
    }

    #[test]
    fn an_example_is_told_from_other_bytes_and_each_of_its_features_is_found_by_name() {
        let numbers = delimited(3, &delimited(1, &[5]));
        let example = delimited(1, &[entry("a", &numbers), entry("b", &[]), entry("a", &delimited(1, b""))].concat());
        assert!(is_example(&example));
        let found = |name| feature_named(&example, name).unwrap().map(|range| &example[range]);
        assert_eq!([found("a"), found("b"), found("c")], [Some(&delimited(1, b"")[..]), Some(&[][..]), None]);
        let list = delimited(1, &numbers);
        let sequence = [&example[..], &delimited(2, &entry("c", &list))].concat();
        assert!(is_example(&sequence) && is_example(&delimited(2, &entry("c", &list))));
        let found = |name| feature_named(&sequence, name).unwrap().map(|range| &sequence[range]);
        assert_eq!([found("c"), found("feature_lists.c"), found("feature_lists.b")], [None, Some(&list[..]), None]);
        let others = [
            vec![],
            b"a text".to_vec(),
            b"{\"a\": 1}".to_vec(),
            b"\x81\xa1a\x01".to_vec(),
            delimited(1, &[]),
            delimited(1, b"text"),
            delimited(1, &entry("", &numbers)),
            delimited(1, &entry("line\n", &numbers)),
            delimited(1, &entry("a", &delimited(4, b""))),
            delimited(1, &[entry("a", &numbers), delimited(2, b"")].concat()),
            delimited(1, &entry("feature_lists.a", &numbers)),
            delimited(2, &entry("c", &delimited(2, b""))),
            [example, delimited(3, b"")].concat(),
        ];
        for other in others {
            assert!(!is_example(&other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn several_byte_strings_are_a_list_in_their_order() {
        let strings = |count: usize| (0..count).flat_map(|number| delimited(1, &[number as u8])).collect::<Vec<u8>>();
        let files = [0, 1, 2].map(|number: u8| Some(Bytes::copy_from_slice(&[number])));
        // The list can come in parts.
        let feature = [delimited(1, &strings(2)), delimited(1, &delimited(1, &[2]))].concat();
        assert_eq!(value_of(&feature).unwrap(), FieldValue::List(files.to_vec()));
        let of_many =
            |count: usize| strings(count).chunks(120).flat_map(|part| delimited(1, part)).collect::<Vec<u8>>();
        let FieldValue::List(files) = value_of(&of_many(MAX_LIST_FILES)).unwrap() else { panic!("no list") };
        assert_eq!(files.len(), MAX_LIST_FILES);
        let error = value_of(&of_many(MAX_LIST_FILES + 1)).unwrap_err();
        assert_eq!(error, "is a list of 65537 byte strings; at most 65536 are read: divide the record");
    }

    #[test]
    fn lists_of_features_have_a_row_or_a_file_for_each_step() {
        let ints = |values: &[u8]| delimited(3, &delimited(1, values));
        let elements: Vec<u8> = [1_i64, 2, 3, 4].map(i64::to_le_bytes).concat();
        let array = |shape: &[u64]| {
            let (shape, elements) = (shape.to_vec(), Bytes::copy_from_slice(&elements));
            FieldValue::from(Array { dtype: DType::I64, shape, elements })
        };
        assert_eq!(value_of_list(&[ints(&[1, 2]), ints(&[3, 4])]), Ok(array(&[2, 2])));
        assert_eq!(value_of_list(&[1, 2, 3, 4].map(|value| ints(&[value]))), Ok(array(&[4])));
        let file = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
        let strings = [b"ab", b"".as_slice(), b"c"].map(|string| delimited(1, &delimited(1, string)));
        assert_eq!(value_of_list(&strings), Ok(FieldValue::List(vec![file(b"ab"), file(b""), file(b"c")])));
        assert_eq!(value_of_list(&[]), Ok(FieldValue::List(vec![])));
        for (features, expected) in [
            (vec![ints(&[1]), ints(&[1, 2])], "has 1 values in its first step and 2 in step 1 from 0"),
            (vec![ints(&[1]), strings[0].clone()], "has values of another kind in step 1 from 0"),
            (vec![vec![], vec![]], "has 2 steps without values"),
            (vec![[&strings[0][..], &strings[2]].concat()], "has 2 byte strings in each step; one is read"),
            (vec![vec![0x0a, 5, 1]], "is no list of features of `tf.train.SequenceExample`: its message is damaged"),
        ] {
            let error = value_of_list(&features).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = features(&delimited(1, &entry("feature_lists.a", b""))).unwrap_err();
        assert!(error.contains("has a feature `feature_lists.a`, and only lists"), "{error}");
    }

    #[test]
    fn damaged_messages_are_described() {
        for feature in [&[0x0a][..], &[0x0a, 5, 1], &[0x12, 3, 0x0a, 1, 0], &[0x0f], &[0], &[0x0b], &[255; 11]] {
            assert!(value_of(feature).unwrap_err().contains("its message is damaged"), "{feature:?}");
        }
        let deep: Vec<u8> = std::iter::repeat_n(0x0b, 1 << 20).collect();
        assert!(value_of(&deep).is_err());
        assert!(features(&delimited(1, &delimited(1, &delimited(1, &[0xff])))).is_err(), "a name that is not UTF-8");
    }
}
