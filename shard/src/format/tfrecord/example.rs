//! Reads `tf.train.Example`, a message of Protocol Buffers, as their own parser does: unknown fields are passed over.
//!
//! ```text
//! Example   1: Features          Feature   1: BytesList   2: FloatList   3: Int64List, of which the last one counts
//! Features  1: map of Feature    *List     1: its values, of numbers packed or one by one
//! Entry     1: key  2: Feature
//! ```

use std::ops::Range;

use bytes::Bytes;

use spdl_core::job::DType;

use crate::format::{
    Array, FieldValue, MAX_LIST_FILES,
    protobuf::{Message, Value},
};

/// Finds the features of an example: their names, and where in `example` their messages lie, in the order of their places.
/// Of two with one name the later one counts.
///
/// # Errors
/// What is wrong with the example, as words that follow its name.
pub fn features(example: &[u8]) -> Result<Vec<(String, Range<usize>)>, String> {
    let mut found: Vec<(String, Range<usize>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    each_feature(example, |name, feature| match known.get(name) {
        Some(&nth) => found[nth] = (name.to_owned(), feature),
        None => {
            known.insert(name, found.len());
            found.push((name.to_owned(), feature));
        }
    })?;
    found.sort_by_key(|(_, feature)| feature.start);
    Ok(found)
}

/// Finds the feature of this name: where in `example` its message lies. Of two the later one counts.
///
/// # Errors
/// What is wrong with the example, as words that follow its name.
pub(in crate::format) fn feature_named(example: &[u8], wanted: &str) -> Result<Option<Range<usize>>, String> {
    let mut found = None;
    each_feature(example, |name, feature| {
        if name == wanted {
            found = Some(feature);
        }
    })?;
    Ok(found)
}

/// Returns whether a record is an example and can hardly be anything else: it has features, each with a name that a field can
/// have, and nothing in it is unknown.
pub(in crate::format) fn is_example(record: &[u8]) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_control);
    let is_feature = |feature: Range<usize>| {
        let mut lists = Message::new(record, feature.clone());
        while let Some(Some(list)) = lists.next() {
            if !matches!((list.number, list.value), (1..=3, Value::Delimited(_))) {
                return false;
            }
        }
        values(&record[feature]).is_some()
    };
    let (mut has_features, mut is_all_known) = (false, true);
    let read = each_feature(record, |name, feature| {
        has_features = true;
        is_all_known &= is_name(name) && is_feature(feature);
    });
    read.is_ok() && has_features && is_all_known && has_only_field_1(record)
}

/// Returns whether a message and the messages in it have no other fields than the first.
fn has_only_field_1(example: &[u8]) -> bool {
    let mut message = Message::new(example, 0..example.len());
    while let Some(Some(field)) = message.next() {
        let (1, Value::Delimited(features)) = (field.number, field.value) else { return false };
        let mut entries = Message::new(example, features);
        while let Some(Some(entry)) = entries.next() {
            let (1, Value::Delimited(_)) = (entry.number, entry.value) else { return false };
        }
    }
    true
}

/// Calls `each` with the name of each feature, and where its message lies.
fn each_feature<'e>(example: &'e [u8], mut each: impl FnMut(&'e str, Range<usize>)) -> Result<(), String> {
    let wrong = || "is no `tf.train.Example`: its message is damaged, or another one".to_owned();
    let mut message = Message::new(example, 0..example.len());
    while let Some(field) = message.next().ok_or_else(wrong)? {
        let (1, Value::Delimited(features)) = (field.number, field.value) else { continue };
        let mut entries = Message::new(example, features);
        while let Some(entry) = entries.next().ok_or_else(wrong)? {
            let (1, Value::Delimited(entry)) = (entry.number, entry.value) else { continue };
            let (name, feature) = entry_of(example, entry).ok_or_else(wrong)?;
            each(name, feature);
        }
    }
    Ok(())
}

/// Reads an entry of the map: its key, and where its feature lies.
fn entry_of(example: &[u8], entry: Range<usize>) -> Option<(&str, Range<usize>)> {
    let (mut name, mut feature) = ("", entry.end..entry.end);
    let mut fields = Message::new(example, entry);
    while let Some(field) = fields.next()? {
        match (field.number, field.value) {
            (1, Value::Delimited(key)) => name = std::str::from_utf8(&example[key]).ok()?,
            (2, Value::Delimited(value)) => feature = value,
            _ => {}
        }
    }
    Some((name, feature))
}

/// The values of a feature.
enum Values {
    None,
    Bytes(Vec<Range<usize>>),
    /// Little-endian, four bytes each.
    Floats(Vec<u8>),
    /// Little-endian, eight bytes each.
    Integers(Vec<u8>),
}

/// Returns the value of the field whose feature has this message: several byte strings, or none, are a list.
///
/// # Errors
/// What is wrong with the feature, as words that follow its name.
pub fn value(feature: &Bytes) -> Result<FieldValue, String> {
    let values = values(feature).ok_or("is no feature of `tf.train.Example`: its message is damaged")?;
    match values {
        Values::None => Ok(FieldValue::List(Vec::new())),
        Values::Bytes(strings) => match strings.len() {
            1 => Ok(feature.slice(strings[0].clone()).into()),
            0..=MAX_LIST_FILES => {
                Ok(FieldValue::List(strings.into_iter().map(|string| Some(feature.slice(string))).collect()))
            }
            more => Err(format!("is a list of {more} byte strings; at most {MAX_LIST_FILES} are read")),
        },
        Values::Floats(elements) => Ok(list(DType::F32, elements)),
        Values::Integers(elements) => Ok(list(DType::I64, elements)),
    }
}

fn list(dtype: DType, elements: Vec<u8>) -> FieldValue {
    let shape = vec![(elements.len() / dtype.bytes()) as u64];
    Array { dtype, shape, elements: elements.into() }.into()
}

fn values(feature: &[u8]) -> Option<Values> {
    let mut values = Values::None;
    let mut lists = Message::new(feature, 0..feature.len());
    while let Some(list) = lists.next()? {
        let Value::Delimited(range) = list.value else { continue };
        // Lists of one kind are joined; a list of another kind takes their place.
        values = match (list.number, values) {
            (1, Values::Bytes(strings)) => Values::Bytes(strings),
            (1, _) => Values::Bytes(Vec::new()),
            (2, Values::Floats(elements)) => Values::Floats(elements),
            (2, _) => Values::Floats(Vec::new()),
            (3, Values::Integers(elements)) => Values::Integers(elements),
            (3, _) => Values::Integers(Vec::new()),
            (_, values) => values,
        };
        if matches!(list.number, 1..=3) {
            add(feature, range, &mut values)?;
        }
    }
    Some(values)
}

/// Adds the values of a list.
fn add(feature: &[u8], list: Range<usize>, values: &mut Values) -> Option<()> {
    let mut fields = Message::new(feature, list);
    while let Some(field) = fields.next()? {
        match (field.number, &mut *values, field.value) {
            (1, Values::Bytes(strings), Value::Delimited(string)) => strings.push(string),
            (1, Values::Floats(elements), Value::Fixed(element)) => elements.extend_from_slice(&feature[element]),
            (1, Values::Floats(elements), Value::Delimited(packed)) => {
                let packed = &feature[packed];
                packed.len().is_multiple_of(4).then(|| elements.extend_from_slice(packed))?;
            }
            (1, Values::Integers(elements), Value::Number(number)) => elements.extend(number.to_le_bytes()),
            (1, Values::Integers(elements), Value::Delimited(packed)) => {
                let mut numbers = Message::new(feature, packed);
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
        value(&Bytes::copy_from_slice(feature))
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
        let sequence = [example.clone(), delimited(2, &delimited(1, &entry("c", b"")))].concat();
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
            sequence,
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
        assert_eq!(error, "is a list of 65537 byte strings; at most 65536 are read");
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
