//! The form in which a job travels and is stored: golden files of a job with every kind of column and every operation
//! that had a number when the form was fixed.
//!
//! To add a file for a new release, run with `SPDL_WRITE_GOLDEN=1`; never replace one.

use std::{fs, path::PathBuf};

use spdl_core::{
    Fingerprint,
    job::{DatasetFacts, Job, JobFile},
};
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
    let facts = DatasetFacts { fingerprint: Fingerprint(0x1234_5678), samples: 1000, blocks: 40 };
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
