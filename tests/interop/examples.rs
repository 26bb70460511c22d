//! Reads files of examples that the packages `tfrecord` and `array_record` wrote, and compares them with what these packages and
//! the parser of Protocol Buffers give.

use std::{
    fs,
    path::{Path, PathBuf},
};

use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{Finished, ctl, run},
    python::{python, run_script},
};

use super::trained::trains_end_to_end;

const SCRIPT: &str = "tests/interop/examples.py";
const SAMPLES: u64 = 40;
const TFRECORD: &str = "tfrecord";
const ARRAY_RECORD: &str = "array_record";

/// Writes examples with pictures into files of this format, with these options of its writer, and indexes them.
fn written(folder: &tempfile::TempDir, format: &str, options: &str) -> (PathBuf, PathBuf) {
    let python = python();
    let (pictures, dataset) = (folder.path().join("pictures"), folder.path().join("dataset"));
    write_image_folder(&pictures, SAMPLES, 5, |_| {}).unwrap();
    run_script(&python, SCRIPT, [format, pictures.to_str().unwrap(), dataset.to_str().unwrap(), options]);
    let report = indexed(&dataset);
    assert_eq!(report["samples"], SAMPLES, "{report}");
    if format == TFRECORD {
        assert_eq!(report["fields"]["sometimes"], SAMPLES / 4, "{report}");
    } else {
        assert_eq!(report["fields"]["boxes"], SAMPLES, "{report}");
        assert!(report["blocks"].as_u64() > Some(3), "{report}");
    }
    (python, dataset)
}

fn indexed(dataset: &Path) -> serde_json::Value {
    run(ctl().arg("index").arg(dataset).args(["--json", "--block-size", "64KiB"])).json()
}

/// Verifies and unpacks a dataset, and returns how many values are those of the package.
fn compared(python: &Path, dataset: &Path) -> serde_json::Value {
    let verified = run(ctl().arg("verify").arg(dataset).arg("--json")).json();
    assert_eq!((&verified["records"], verified["faults"].as_array().unwrap().len()), (&SAMPLES.into(), 0));
    let unpacked = tempfile::tempdir().unwrap();
    let files = unpacked.path().join("files");
    run(ctl().arg("unpack").arg(dataset).arg(&files).arg("--json")).json();
    let compared = run_script(python, SCRIPT, ["compare", dataset.to_str().unwrap(), files.to_str().unwrap()]);
    assert_eq!(compared["samples"], SAMPLES, "{compared}");
    compared["values"].clone()
}

/// Replays a job with one column, the integer in `field`.
fn replayed(folder: &tempfile::TempDir, dataset: &Path, field: &str) -> Finished {
    let job = folder.path().join("job.toml");
    let text = format!(
        "name = \"j\"\ndataset = {dataset:?}\nglobal_batch = 4\nbad_samples = \"fail\"\n\
         [[column]]\nname = \"x\"\nfrom = {field:?}\ndecode = \"int\"\n"
    );
    fs::write(&job, text).unwrap();
    run(ctl().arg("replay").arg(&job).args(["--all", "--json"]))
}

#[test]
fn features_are_those_of_the_parser_of_protocol_buffers() {
    for (format, options, values) in [
        (TFRECORD, "", SAMPLES * 8 + SAMPLES / 4),
        (TFRECORD, "gzip", SAMPLES * 8 + SAMPLES / 4),
        (TFRECORD, "zlib", SAMPLES * 8 + SAMPLES / 4),
        (ARRAY_RECORD, "group_size:2", SAMPLES * 8),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (python, dataset) = written(&folder, format, options);
        assert_eq!(compared(&python, &dataset), values, "{format} {options}");
    }
}

#[test]
fn every_record_is_that_of_array_record_whatever_its_options_are() {
    let options = [
        "",
        "group_size:7",
        "group_size:7,brotli",
        "group_size:7,snappy",
        "group_size:7,uncompressed",
        "group_size:7,pad_to_block_boundary:true",
        "group_size:65536,zstd:9,window_log:22",
    ];
    let python = python();
    for options in options {
        let folder = tempfile::tempdir().unwrap();
        let dataset = folder.path().join("dataset");
        run_script(&python, SCRIPT, ["whole", &SAMPLES.to_string(), dataset.to_str().unwrap(), options]);
        let report = indexed(&dataset);
        assert_eq!(
            (&report["shards"], &report["fields"]["record"]),
            (&3.into(), &SAMPLES.into()),
            "{options}: {report}"
        );
        assert_eq!(compared(&python, &dataset), SAMPLES, "{options}");
    }
}

const COLUMNS: &str = "[[column]]\nname = \"image\"\nfrom = \"image/encoded\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = { size = 32 } }]\n\
    [[column]]\nname = \"frames\"\nfrom = \"frames\"\ndecode = \"image\"\n\
    ops = [{ random_resized_crop = 16 }, \"random_flip\"]\nmax_rows = 3\n\
    [[column]]\nname = \"label\"\nfrom = \"image/class/label\"\ndecode = \"int\"\n\
    [[column]]\nname = \"name\"\nfrom = \"image/filename\"\ndecode = \"bytes\"\n\
    [[column]]\nname = \"embedding\"\nfrom = \"embedding\"\ndecode = \"tensor\"\nshape = [2, 3]\ndtype = \"f32\"\n\
    [[column]]\nname = \"boxes\"\nfrom = \"boxes\"\ndecode = \"tensor\"\nshape = []\nmax_rows = 8\ndtype = \"f32\"\n";

#[tokio::test]
async fn a_job_on_tfrecord_trains_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    trains_end_to_end(&written(&folder, TFRECORD, "").1, SAMPLES, COLUMNS).await;
}

#[tokio::test]
async fn a_job_on_array_record_trains_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    trains_end_to_end(&written(&folder, ARRAY_RECORD, "").1, SAMPLES, COLUMNS).await;
}

#[test]
fn a_feature_that_is_no_value_of_a_column_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, dataset) = written(&folder, TFRECORD, "gzip");
    replayed(&folder, &dataset, "extremes").error(&[
        "record `train.tfrecord-",
        "column `x`: field `extremes` does not decode: it holds i64 [4], and the column expects one number",
    ]);
}

#[test]
fn a_transposed_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("dataset");
    let python = python();
    run_script(&python, SCRIPT, ["whole", "3", dataset.to_str().unwrap(), "group_size:7,transpose:true"]);
    run(ctl().arg("index").arg(&dataset))
        .error(&["train.array_record-00000-of-00003", "was written with `transpose:true`, which is not read"]);
}

#[test]
fn a_job_names_the_file_the_record_and_the_chunk_that_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (_, dataset) = written(&folder, ARRAY_RECORD, "group_size:2,uncompressed");
    let path = dataset.join("train.array_record-00001-of-00003");
    let mut file = fs::read(&path).unwrap();
    file[5000] ^= 1;
    fs::write(&path, &file).unwrap();
    replayed(&folder, &dataset, "image/class/label").error(&[
        "field `image/class/label` of record `train.array_record-00001-of-00003/000000",
        "(chunk 0, byte 64): its chunk has other bytes than were written: its checksum is wrong, after ",
        "the file is damaged",
    ]);
    fs::write(&path, &file[..file.len() - (64 << 10)]).unwrap();
    replayed(&folder, &dataset, "image/class/label").error(&["train.array_record-00001-of-00003", "bytes"]);
}
