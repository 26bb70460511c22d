//! Values within JSON documents, and values of samples that have none.

use super::*;

const DOCUMENT: &str = r#"{"caption": "a cat", "id": 397133, "whole": 2.0, "score": 0.5, "day": true, "none": null,
    "annotations": [{"name": "cat"}, {"name": "dog"}], "odd": NaN}"#;

/// Decodes a column of this kind from a document, or from no field, and returns the value's bytes.
fn value(keys: &str, document: Option<&str>) -> Result<Vec<u8>, String> {
    let job = job(&[&format!("name = \"x\"\nfrom = \"json\"\n{keys}")]);
    let decoder = Decoder::new(&job, CLASSES).map_err(|error| error.to_string())?;
    let field = |_: &str| document.map(|document| Bytes::copy_from_slice(document.as_bytes()).into());
    let (mut ragged, mut fixed) = (Bytes::new(), Vec::new());
    let target = match job.columns[0].sample_shape() {
        Some(shape) => {
            let elements = shape.iter().map(|side| *side as usize).product::<usize>();
            fixed = vec![0xaa; elements * job.columns[0].dtype.bytes()];
            FieldTarget::Fixed(&mut fixed)
        }
        None => FieldTarget::Ragged(&mut ragged),
    };
    decoder.decode_sample(key(0), &field, &mut [target]).map_err(|cause| cause.to_string())?;
    Ok(if ragged.is_empty() { fixed } else { ragged.to_vec() })
}

fn at(keys: &str) -> Result<Vec<u8>, String> {
    value(keys, Some(DOCUMENT))
}

#[test]
fn texts_names_and_numbers_come_out_of_a_document() {
    assert_eq!(at("decode = \"text\"\npath = \"caption\"").unwrap(), b"a cat");
    assert_eq!(at("decode = \"text\"\npath = \"id\"").unwrap(), b"397133");
    assert_eq!(at("decode = \"text\"\npath = \"annotations.1.name\"").unwrap(), b"dog");
    assert_eq!(at("decode = \"category\"\npath = \"annotations.0.name\"").unwrap(), 1i64.to_le_bytes());
    assert_eq!(at("decode = \"category\"\nnames = [\"cat\"]\npath = \"annotations.0.name\"").unwrap(), [0; 8]);
    assert_eq!(at("decode = \"int\"\npath = \"id\"").unwrap(), 397_133i64.to_le_bytes());
    assert_eq!(at("decode = \"int\"\npath = \"whole\"").unwrap(), 2i64.to_le_bytes());
    assert_eq!(at("decode = \"float\"\npath = \"score\"").unwrap(), 0.5f32.to_le_bytes());
    assert!(f32::from_le_bytes(at("decode = \"float\"\npath = \"odd\"").unwrap().try_into().unwrap()).is_nan());
    assert_eq!(at("decode = \"bool\"\npath = \"day\"").unwrap(), [1]);
    assert_eq!(
        at("decode = \"one_hot\"\nclasses = 2\npath = \"annotations.1.name\"").unwrap()[..4],
        1f32.to_le_bytes()
    );
}

#[test]
fn what_a_document_does_not_have_is_named() {
    for (keys, expected) in [
        ("decode = \"text\"\npath = \"captoin\"", "field `json` has no value at `captoin`, but nothing"),
        ("decode = \"text\"\npath = \"none\"", "field `json` has no value at `none`, but null"),
        ("decode = \"text\"\npath = \"annotations\"", "but a list"),
        ("decode = \"json\"\npath = \"caption\"", "field `json` has no number at `caption`, but a string"),
        ("decode = \"int\"\npath = \"score\"", "field `json` is \"0.5\", not a whole number"),
        ("decode = \"int\"\npath = \"caption\"", "field `json` is \"a cat\", not a whole number"),
        ("decode = \"category\"\npath = \"caption\"", "field `json` is \"a cat\", which is none of the column's names"),
        ("decode = \"bool\"\npath = \"id\"", "neither `true` or `1` nor"),
        ("decode = \"text\"\nmax_bytes = 3\npath = \"caption\"", "is 5 bytes; `max_bytes` is 3"),
    ] {
        let error = at(keys).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
    assert!(value("decode = \"text\"\npath = \"a\"", Some("{")).unwrap_err().contains("is not JSON: EOF"));
    let deep = "[".repeat(100_000);
    assert!(value("decode = \"text\"\npath = \"a\"", Some(&deep)).unwrap_err().contains("not JSON: recursion limit"));
}

#[test]
fn a_default_is_the_value_of_samples_without_one_and_of_no_others() {
    for (keys, expected) in [
        ("decode = \"int\"\ndefault = -1", (-1i64).to_le_bytes().to_vec()),
        ("decode = \"int\"\ndtype = \"i32\"\ndefault = 7", 7i32.to_le_bytes().to_vec()),
        ("decode = \"float\"\ndefault = 0.25", 0.25f32.to_le_bytes().to_vec()),
        ("decode = \"float\"\ndtype = \"f16\"\ndefault = 1", vec![0, 0x3c]),
        ("decode = \"bool\"\ndefault = true", vec![1]),
        ("decode = \"text\"\ndefault = \"nothing\"", b"nothing".to_vec()),
        ("decode = \"text\"\ndefault = \"\"", Vec::new()),
        ("decode = \"category\"\ndefault = \"cat\"", 1i64.to_le_bytes().to_vec()),
        ("decode = \"category\"\ndefault = -100", (-100i64).to_le_bytes().to_vec()),
        ("decode = \"one_hot\"\nclasses = 2\ndefault = 0", [1f32, 0.0].map(f32::to_le_bytes).concat()),
        ("decode = \"one_hot\"\nclasses = 2\ndefault = \"cat\"", [0f32, 1.0].map(f32::to_le_bytes).concat()),
        ("decode = \"json\"\npath = \"x\"\ndefault = 1.5", 1.5f64.to_le_bytes().to_vec()),
        ("decode = \"json\"\ndtype = \"i64\"\npath = \"x\"\ndefault = 3", 3i64.to_le_bytes().to_vec()),
    ] {
        assert_eq!(value(keys, None).unwrap(), expected, "{keys}");
        for place in ["none", "caption.deeper", "annotations.9.name"] {
            let keys = format!("{}\npath = \"{place}\"", keys.replace("\npath = \"x\"", ""));
            assert_eq!(at(&keys).unwrap(), expected, "{keys}");
        }
    }
    assert_eq!(value("decode = \"int\"\ndefault = -1", Some("5")).unwrap(), 5i64.to_le_bytes());
    let wrong = value("decode = \"int\"\ndefault = -1", Some("")).unwrap_err();
    assert!(wrong.contains("not a whole number"), "an empty field is a wrong one: {wrong}");
    assert!(value("decode = \"int\"", None).unwrap_err().contains("record has no field `json`"));
    let unknown = value("decode = \"category\"\ndefault = \"bird\"", None).unwrap_err();
    assert!(
        unknown.starts_with("`default` of column `x` of job `test` is the text \"bird\", which does not fit"),
        "{unknown}"
    );
}
