//! The form in which a job travels and is stored: golden files of a job with every kind of column and every operation
//! that had a number when the form was fixed.
//!
//! To add a file for a new release, run with `SPDL_WRITE_GOLDEN=1`; never replace one.

use std::{fs, path::PathBuf};

use spdl_job::{Arguments, ColumnKind, Job, JobFile, SourceDigest, TensorColumn, TensorEncoding};
use spdl_order::DatasetFacts;
use spdl_types::{DType, Fingerprint, ImageColor};
use spdl_wire::codec;

/// A job with all that a message of protocol version 4 could hold when it was released.
const EVERYTHING: &str = r#"
name = "everything"
dataset = "s3://bucket/everything"
seed = 17
global_batch = 24
epochs = 3
epoch_end = "continuous"
bad_samples = "mask"
max_bad_fraction = 0.25
order = { lanes = 3, window = 77 }
[[column]]
name = "image"
from = "jpg|png"
decode = "image"
ops = [{ crop_box = { field = "voc", margin = 0.1 } }, { random_resized_crop = { size = 224, scale = [0.1, 0.9] } }, { random_flip = 0.25 }]
[[column]]
name = "small"
from = "jpg"
decode = "image"
dtype = "bf16"
layout = "nchw"
normalise = { mean = [0.5, 0.25, 0.125], std = [0.2, 0.3, 0.4] }
ops = [{ resize = 40 }, { resize = [40, 50] }, { center_crop = [9, 31] }]
[[column]]
name = "label"
from = "cls"
decode = "int"
dtype = "i32"
[[column]]
name = "exposure"
from = "json"
decode = "json"
path = "camera.exposure"
[[column]]
name = "text"
from = "txt"
decode = "bytes"
max_bytes = 300
[[column]]
name = "class"
from = "voc"
decode = "box_class"
[[column]]
name = "tokens"
from = "txt"
decode = "bytes"
max_bytes = 4096
transform = "captions:tokens"
returns = { dtype = "f16", shape = [77, 2] }
[[column]]
name = "shorter"
from = "txt"
decode = "bytes"
transform = "captions:shorter"
[[column]]
name = "jitter"
from = "jpg"
decode = "image"
dtype = "f32"
ops = [{ center_crop = 8 }]
transform = "pictures.colour:jitter"
"#;

fn everything() -> Job {
    let facts = DatasetFacts::new(Fingerprint(0x1234_5678), 1000, 40);
    JobFile::parse(EVERYTHING, "everything.toml").unwrap().freeze(&facts).unwrap()
}

/// Returns the content of a golden file, which is written first if `SPDL_WRITE_GOLDEN` is set and it does not exist.
fn golden(name: &str, content: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !path.exists() {
        fs::write(&path, content).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_job_has_the_bytes_in_a_message_that_it_always_had() {
    let job = everything();
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let golden = golden("job-4.bin", &bytes);
    assert_eq!(codec::decode::<Job>(&golden).unwrap(), job);
    assert!(bytes == golden, "the job has other bytes");
}

#[test]
fn a_job_has_the_text_in_the_state_of_a_coordinator_that_it_always_had() {
    let job = everything();
    let text = serde_json::to_string(&job).unwrap();
    let golden = String::from_utf8(golden("job-4.json", text.as_bytes())).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&golden).unwrap(), job);
    assert_eq!(text, golden);
}

#[test]
fn a_job_has_the_fingerprint_that_it_always_had() {
    let fingerprint = everything().fingerprint().to_string();
    let golden = String::from_utf8(golden("job-4.fingerprint", fingerprint.as_bytes())).unwrap();
    assert_eq!(fingerprint, golden);
}

/// Returns the bytes of the job with one column `label`, in which `from` is replaced by `to`.
fn patched(from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut job = everything();
    job.columns.retain(|column| column.name == "label");
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the bytes are there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

/// The end of a column: the field `cls`, the kind `int` and the type `i32`.
const INT_COLUMN: &[u8] = b"\x03cls\x01\x01";

#[test]
fn a_kind_and_a_type_without_a_number_travel_by_name() {
    let mut job = everything();
    job.columns.retain(|column| column.name == "label");
    let tensor = TensorColumn { shape: vec![2], max_rows: None, encoding: TensorEncoding::Raw, array: None };
    (job.columns[0].kind, job.columns[0].dtype) = (ColumnKind::Tensor(tensor), DType::U16);
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let named = b"\x03cls\x06\x06tensor\x050.1.0\x2b{\"shape\":[2],\"encoding\":\"raw\",\"array\":null}\x07\x03u16";
    assert!(bytes == patched(INT_COLUMN, named), "{}", bytes.escape_ascii());
    assert_eq!(codec::decode::<Job>(&bytes).unwrap(), job);
}

#[test]
fn a_picture_with_keys_later_than_its_number_travels_by_name() {
    let mut job = everything();
    job.columns.retain(|column| column.name == "small");
    let ColumnKind::Image(image) = &mut job.columns[0].kind else { panic!("{job:?}") };
    (image.color, image.normalise) = (ImageColor::Gray, None);
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let text = bytes.escape_ascii().to_string();
    assert!(text.contains(r#"image\x050.1.0"#) && text.contains(r#"\"color\":\"gray\""#), "{text}");
    assert_eq!(codec::decode::<Job>(&bytes).unwrap(), job);
}

#[test]
fn a_kind_of_a_later_release_is_refused_by_name_with_the_release_that_it_needs() {
    let named = b"\x03cls\x06\x08hologram\x059.2.0\x0b{\"depth\":7}\x01";
    let error = codec::decode::<Job>(&patched(INT_COLUMN, named)).unwrap_err().to_string();
    let ours = env!("CARGO_PKG_VERSION");
    let expected =
        format!("does not decode: kind of column `hologram` needs spdl-cluster 9.2.0 or later; this is {ours}");
    assert_eq!(error, expected);
}

#[test]
fn an_operation_of_a_later_release_is_refused_by_name_with_the_release_that_it_needs() {
    let named = b"\x03cls\x00\x01\x05\x05twirl\x059.2.0\x02{}\x00\x00\x08\x08\x00";
    let error = codec::decode::<Job>(&patched(INT_COLUMN, named)).unwrap_err().to_string();
    assert!(error.contains("operation `twirl` needs spdl-cluster 9.2.0 or later"), "{error}");
}

#[test]
fn a_function_with_arguments_travels_by_name_and_one_without_as_ever() {
    let mut job = everything();
    job.columns.retain(|column| column.name == "shorter");
    let mut plain = Vec::new();
    codec::encode(&job, &mut plain).unwrap();
    assert!(!plain.windows(11).any(|bytes| bytes == b"transformed"), "{}", plain.escape_ascii());
    let text = r#"{"model":"x"}"#.to_owned();
    job.columns[0].transform.as_mut().unwrap().function.arguments = Arguments::from_text(text);
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let named = b"\x03txt\x06\x0btransformed\x050.1.0";
    assert!(bytes.windows(named.len()).any(|bytes| bytes == named), "{}", bytes.escape_ascii());
    assert_eq!(codec::decode::<Job>(&bytes).unwrap(), job);
    assert_eq!(serde_json::from_str::<Job>(&serde_json::to_string(&job).unwrap()).unwrap(), job);
}

#[test]
fn a_function_with_the_digest_of_its_source_travels_by_name() {
    let mut job = everything();
    job.columns.retain(|column| column.name == "shorter");
    job.columns[0].transform.as_mut().unwrap().function.source = Some(SourceDigest(0xab));
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let named = b"\x03txt\x06\x0btransformed\x050.1.0";
    let digest = b"\"source\":\"000000000000000000000000000000ab\"";
    for part in [&named[..], digest] {
        assert!(bytes.windows(part.len()).any(|bytes| bytes == part), "{}", bytes.escape_ascii());
    }
    assert_eq!(codec::decode::<Job>(&bytes).unwrap(), job);
    assert_eq!(serde_json::from_str::<Job>(&serde_json::to_string(&job).unwrap()).unwrap(), job);
}

#[test]
fn a_type_of_a_later_release_is_refused_by_name() {
    let error = codec::decode::<Job>(&patched(INT_COLUMN, b"\x03cls\x01\x07\x03f8e")).unwrap_err().to_string();
    assert!(error.contains("type `f8e` of elements is unknown to spdl-cluster"), "{error}");
}

#[test]
fn a_stored_job_of_a_later_release_names_what_it_needs() {
    let text = serde_json::to_string(&everything()).unwrap();
    let error = serde_json::from_str::<Job>(&text.replace("\"int\"", "{\"hologram\":{}}")).unwrap_err().to_string();
    assert!(error.contains("kind of column `hologram` is unknown to spdl-cluster"), "{error}");
}

#[test]
fn a_number_that_no_kind_has_is_refused() {
    for kind in [7, 99] {
        let error =
            codec::decode::<Job>(&patched(INT_COLUMN, &[3, b'c', b'l', b's', kind, 1])).unwrap_err().to_string();
        assert!(error.contains(&format!("there is no kind of column with the number {kind}")), "{error}");
    }
}
