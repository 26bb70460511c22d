//! Text that comes from people, other tools and checkpoints: job files, annotations, trainer states, short words.

use spdl_client::State;
use spdl_control::{Role, messages::Session};
use spdl_job::{Job, JobFile};
use spdl_order::{DatasetFacts, Receipt};
use spdl_shard::voc::Annotation;
use spdl_types::{Fingerprint, Position, SessionId};

use crate::input::{FuzzInput, append_piece};

/// The job file of the seeds.
pub(crate) const JOB: &str = r#"name = "train"
dataset = "data"
seed = 17
global_batch = 8
epochs = 2
epoch_end = "exact"
bad_samples = "mask"
max_bad_fraction = 0.5
order = { lanes = 2, window = 5 }
[[column]]
name = "image"
from = "jpg|png"
decode = "image"
ops = [{ crop_box = { margin = 0.1 } }, { random_resized_crop = { size = 8, scale = [0.1, 1.0] } }, { random_flip = {} }]
dtype = "f32"
layout = "nchw"
normalise = { mean = [0.5, 0.5, 0.5], std = [0.2, 0.2, 0.2] }
[[column]]
name = "label"
from = "cls"
decode = "int"
[[column]]
name = "exposure"
from = "json"
decode = "json"
path = "camera.exposure"
[[column]]
name = "class"
from = "xml"
decode = "box_class"
[[column]]
name = "raw"
from = "jpg"
decode = "bytes"
max_bytes = 1000
"#;

/// Checks that a valid job file gives a valid job, reads back as itself, and can be served by one rank unless it is too
/// large.
pub(crate) fn job(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = JobFile::parse(text, "job.toml") else { return };
    for facts in [(100, 10), (u64::from(u32::MAX) << 20, 1 << 20), (1, 1)] {
        let facts = DatasetFacts::new(Fingerprint(7), facts.0, facts.1);
        let Ok(job) = file.freeze(&facts) else { continue };
        job.check().expect("a frozen job is valid");
        let written = toml::to_string(&file).expect("a job file can be written");
        let again = JobFile::parse(&written, "again.toml").expect("and read again").freeze(&facts);
        assert_eq!(again.expect("and frozen again"), job);
        let json = serde_json::to_vec(&job).expect("a job is plain data");
        assert_eq!(serde_json::from_slice::<Job>(&json).expect("what was written can be read"), job);
        let session =
            Session { id: SessionId(1), world: 1, global_batch: job.global_batch, start: Position::START, job };
        if session.check(0).is_ok() {
            assert!(session.layout().slot_bytes() as u64 <= spdl_control::MAX_BATCH_BYTES);
        }
    }
}

pub(crate) fn job_seeds() -> Vec<Vec<u8>> {
    let small = "name=\"a\"\ndataset=\"b\"\nglobal_batch=1\n[[column]]\nname=\"l\"\nfrom=\"cls\"\ndecode=\"int\"\n";
    vec![JOB.into(), small.into()]
}

/// Checks that boxes of an annotation are finite and do not end before they start.
pub(crate) fn voc(data: &[u8]) {
    let Ok(annotation) = Annotation::parse(data) else { return };
    for object in &annotation.objects {
        let sides = [object.xmin, object.ymin, object.xmax, object.ymax];
        assert!(sides.iter().all(|side| side.is_finite()) && !object.class.is_empty(), "{object:?}");
        assert!(object.xmin <= object.xmax && object.ymin <= object.ymax, "{object:?}");
    }
}

pub(crate) const ANNOTATION: &str = "<?xml version=\"1.0\"?><!-- a --><annotation><object><name>dog</name><bndbox>\
    <xmin>1</xmin><ymin>2</ymin><xmax>30.5</xmax><ymax>4e1</ymax></bndbox></object><object a='b'><name>cat</name><bndbox>\
    <xmin>&#49;</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object></annotation>";

pub(crate) fn voc_seeds() -> Vec<Vec<u8>> {
    vec![ANNOTATION.into(), "<annotation/>".into()]
}

/// Checks that states, positions, receipts and roles read back what they print.
pub(crate) fn texts(data: &[u8]) {
    if let Ok(state) = State::from_bytes(data) {
        assert_eq!(State::from_bytes(&state.to_bytes()).expect("what was written can be read"), state);
    }
    let mut input = FuzzInput(data);
    let Ok(text) = std::str::from_utf8(input.piece()) else { return };
    if let Ok(position) = text.parse::<Position>() {
        assert_eq!(position.to_string().parse::<Position>().expect("it was printed"), position);
    }
    if let Ok(receipt) = text.parse::<Receipt>() {
        assert_eq!(receipt.to_string().parse::<Receipt>().expect("it was printed"), receipt);
    }
    if let Ok(role) = text.parse::<Role>() {
        assert_eq!(role.name(), text);
    }
}

pub(crate) fn texts_seeds() -> Vec<Vec<u8>> {
    let state = State::new(Fingerprint(7), Position::new(3, 4096)).to_bytes();
    let words = ["3:4096", "000000000000000000000000000000ff", "worker"];
    let piece = |word: &str| {
        let mut bytes = Vec::new();
        append_piece(&mut bytes, word.as_bytes());
        bytes
    };
    words.into_iter().map(piece).chain([state]).collect()
}
