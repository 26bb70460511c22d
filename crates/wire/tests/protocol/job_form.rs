//! The form in which a job travels and is stored: golden files of a job.
//!
//! To add a file for a new version of the protocol, run with `SPDL_WRITE_GOLDEN=1`; never replace one of a release.

use std::{fs, path::PathBuf};

use spdl_job::{Job, JobFile, Mix};
use spdl_order::{DatasetFacts, MixParams};
use spdl_types::Fingerprint;
use spdl_wire::codec;

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
fn golden(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !path.exists() {
        fs::write(&path, content).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_job_has_the_text_that_it_always_had_in_the_state_and_in_messages() {
    let job = everything();
    let text = serde_json::to_string(&job).unwrap();
    let golden = golden("job-5.json", &text);
    assert_eq!(text, golden);
    assert_eq!(serde_json::from_str::<Job>(&golden).unwrap(), job);
    let mut bytes = Vec::new();
    codec::encode(&job, &mut bytes).unwrap();
    let length = [&[0xfb][..], &u16::try_from(golden.len()).unwrap().to_le_bytes()].concat();
    assert!(bytes == [&length[..], golden.as_bytes()].concat(), "{}", bytes.escape_ascii());
    assert_eq!(codec::decode::<Job>(&bytes).unwrap(), job);
}

#[test]
fn a_job_has_the_fingerprint_that_it_always_had() {
    let fingerprint = everything().fingerprint().to_string();
    assert_eq!(fingerprint, golden("job-5.fingerprint", &fingerprint));
}

/// Returns the error of a message with a job in whose text `from` is replaced by `to`.
fn patched(from: &str, to: &str) -> String {
    let text = serde_json::to_string(&everything()).unwrap();
    assert!(text.contains(from), "{text}");
    let mut bytes = Vec::new();
    codec::encode(&text.replacen(from, to, 1), &mut bytes).unwrap();
    codec::decode::<Job>(&bytes).unwrap_err().to_string()
}

#[test]
fn what_only_a_later_release_knows_is_refused_by_name() {
    let ours = env!("CARGO_PKG_VERSION");
    for (from, to, expected) in [
        ("\"int\"", "{\"hologram\":{\"depth\":7}}", "kind of column `hologram`"),
        ("\"int\"", "\"hologram\"", "kind of column `hologram`"),
        ("{\"bytes\":{\"max_bytes\":4096}}", "\"hologram\"", "kind of column `hologram`"),
        ("{\"random_flip\":{\"p\":0.25}}", "{\"twirl\":{}}", "`twirl`"),
        ("\"i32\"", "\"f8e\"", "`f8e`"),
        ("\"continuous\"", "\"endless\\n\"", "`endless `"),
    ] {
        let expected =
            format!("does not decode: {expected} is unknown to spdl-cluster {ours}: a later release knows it");
        assert_eq!(patched(from, to), expected);
    }
}

#[test]
fn a_key_that_only_a_later_release_knows_is_not_ignored() {
    for (from, to) in [
        ("\"max_bytes\":300", "\"max_bytes\":300,\"encoding\":\"zip\""),
        ("\"seed\":17", "\"seed\":17,\"stride\":2"),
        ("\"window\":77", "\"window\":77,\"skip\":2"),
    ] {
        let error = patched(from, to);
        assert!(
            error.contains("the job is not as spdl-cluster") && error.contains("install the same release"),
            "{error}"
        );
    }
    let error = patched("\"size\":[9,31]}}", "\"size\":[9,31],\"tilt\":1}}");
    assert!(error.contains("unknown field `tilt`"), "{error}");
}

#[test]
fn a_text_that_is_no_job_is_refused() {
    for (from, to, expected) in [
        ("{\"name\"", "[\"name\"", "expected `,` or `]`"),
        ("\"seed\":17,", "", "missing field `seed`"),
        ("\"max_bad_fraction\":0.25", "\"max_bad_fraction\":null", "null is not a number"),
        ("\"max_bad_fraction\":0.25", "\"max_bad_fraction\":1e999", "`1e999` is not a number"),
        ("\"max_bad_fraction\":0.25", "\"max_bad_fraction\":\"0.25\"", "is not a number"),
        ("{\"p\":0.25}", "{\"p\":1e99}", "the job is not as spdl-cluster"),
    ] {
        let error = patched(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    assert!(patched("\"seed\":17", &format!("\"seed\":\"{}\"", "x".repeat(9999))).len() < 400);
    let nested = "{\"random_apply\":{\"transforms\":[".repeat(5000);
    let error = patched("{\"random_flip\":{\"p\":0.25}}", &nested);
    assert!(error.contains("recursion limit exceeded"), "{error}");
}

#[test]
fn a_stored_job_of_a_later_release_names_what_it_needs() {
    let text = serde_json::to_string(&everything()).unwrap();
    let error = serde_json::from_str::<Job>(&text.replace("\"int\"", "{\"hologram\":{}}")).unwrap_err().to_string();
    assert!(error.contains("kind of column `hologram` is unknown to spdl-cluster"), "{error}");
}

#[test]
fn no_bit_of_a_number_is_lost_on_the_way() {
    let params = MixParams { mixup: None, cutmix: None, p: 1.0, cutmix_p: 0.5, distance: 1 };
    let mut job = Job { mix: Some(Mix { columns: vec!["image".to_owned()], params }), ..everything() };
    for number in 1..500_u32 {
        let fraction = 10.0 / f64::from(number);
        job.max_bad_fraction = fraction;
        job.mix.as_mut().unwrap().params = MixParams {
            mixup: Some(fraction),
            cutmix: Some(1.0 / fraction),
            p: fraction / 7.0,
            cutmix_p: fraction.sqrt(),
            ..params
        };
        let mut bytes = Vec::new();
        codec::encode(&job, &mut bytes).unwrap();
        let back: Job = codec::decode(&bytes).unwrap();
        assert_eq!((back.fingerprint(), &back), (job.fingerprint(), &job));
        assert_eq!(serde_json::from_str::<Job>(&serde_json::to_string(&job).unwrap()).unwrap(), job);
    }
}
