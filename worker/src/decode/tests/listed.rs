//! Columns that number some of the dataset's classes anew.

use super::*;

const ANIMALS: [&str; 4] = ["bird", "cat", "dog", "fish"];

fn number(keys: &str, field: (&str, &str)) -> Result<i64, String> {
    let job = job(&[&format!("name = \"x\"\nfrom = \"{}\"\nclasses = [\"fish\", \"cat\"]\n{keys}", field.0)]);
    let decoder = Decoder::new(&job, ANIMALS).map_err(|error| error.to_string())?;
    let mut out = [0xaa; 8];
    let value = |_: &str| Some(Bytes::copy_from_slice(field.1.as_bytes()).into());
    let decoded = decoder.decode_sample(key(0), &value, &mut [FieldTarget::Fixed(&mut out)]);
    decoded.map(|()| i64::from_le_bytes(out)).map_err(|cause| cause.to_string())
}

#[test]
fn the_listed_classes_get_the_numbers_of_their_places() {
    assert_eq!(number("decode = \"int\"", ("cls", "3\n")), Ok(0));
    assert_eq!(number("decode = \"int\"", ("cls", "1")), Ok(1));
    assert_eq!(number("decode = \"int\"\npath = \"label\"", ("json", "{\"label\": 3}")), Ok(0));
    let voc = "<annotation><size><width>9</width><height>9</height></size><object><name>cat</name><bndbox><xmin>1</xmin>\
               <ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>";
    assert_eq!(number("decode = \"box_class\"", ("xml", voc)), Ok(1));
    let halves = |field: &str| number("decode = \"one_hot\"", ("cls", field));
    assert_eq!(halves("3"), Ok(i64::from(1f32.to_bits())));
    assert_eq!(halves("cat"), Ok(i64::from(1f32.to_bits()) << 32));
}

#[test]
fn a_sample_of_another_class_is_a_bad_sample_that_names_it() {
    for (keys, field) in [("decode = \"int\"", "2"), ("decode = \"one_hot\"", "2"), ("decode = \"one_hot\"", "dog")] {
        let error = number(keys, ("cls", field)).unwrap_err();
        assert!(error.contains("field `cls` is of class `dog`, which is none of the column's `classes`"), "{error}");
    }
    let error = number("decode = \"int\"", ("cls", "77")).unwrap_err();
    assert!(error.contains("field `cls` is of class `77`"), "{error}");
}

#[test]
fn a_class_that_the_dataset_does_not_have_is_an_error_of_the_job() {
    let job = job(&["name = \"x\"\nfrom = \"cls\"\ndecode = \"int\"\nclasses = [\"cat\", \"whale\"]"]);
    let error = Decoder::new(&job, ANIMALS).err().unwrap().to_string();
    assert_eq!(error, "`classes` of column `x` of job `test` has `whale`, which is none of the dataset's classes");
}
