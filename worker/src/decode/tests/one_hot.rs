//! Classes as probabilities.

use super::*;

fn one_hot(keys: &str, field: &[u8]) -> Result<Vec<f32>, String> {
    let column = format!("name = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\n{keys}");
    let decoded = decode(&job(&[&column]), key(0), &[("cls", field)]);
    let floats = |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    decoded.map(|mut columns| floats(columns.remove(0))).map_err(|cause| cause.to_string())
}

#[test]
fn a_class_is_given_by_its_number_or_its_name() {
    let third = [0.0, 0.0, 1.0];
    assert_eq!(one_hot("classes = 3", b" 2\n").unwrap(), third);
    assert_eq!(one_hot("classes = 3", b"cat").unwrap(), [0.0, 1.0, 0.0], "the dataset's classes are dog and cat");
    assert_eq!(one_hot("names = [\"2\", \"b\", \"c\"]", b"c").unwrap(), third);
    assert_eq!(one_hot("names = [\"2\", \"b\", \"c\"]", b"2").unwrap(), [1.0, 0.0, 0.0], "a name, and no number");
    let halves = decode(
        &job(&["name = \"target\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 3\ndtype = \"bf16\""]),
        key(0),
        &[("cls", b"1")],
    );
    assert_eq!(halves.unwrap(), [[0, 0, 0x80, 0x3f, 0, 0]]);
}

#[test]
fn a_class_that_is_not_there_is_a_bad_sample() {
    for (keys, field, expected) in [
        ("classes = 3", "3", "field `cls` is of class 3; the column has 3 classes, from 0"),
        ("classes = 3", "-1", "field `cls` is of class -1"),
        ("classes = 1", "cat", "field `cls` is of class 1; the column has 1 classes"),
        ("classes = 3", "bird", "field `cls` is \"bird\", not a whole number"),
        ("names = [\"a\"]", "0", "field `cls` is \"0\", which is none of the column's names"),
    ] {
        let error = one_hot(keys, field.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{keys}: {error}");
    }
}
