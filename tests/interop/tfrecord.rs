//! Reads TFRecord files that the package `tfrecord` wrote, and compares them with the parser of Protocol Buffers.

use std::{fs, path::PathBuf};

use spdl_cli::pictures::write_image_folder;
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
};

use super::trained::trains_end_to_end;

const SAMPLES: u64 = 40;

/// Writes a dataset of pictures and indexes it.
fn written(folder: &tempfile::TempDir, compression: &str) -> (PathBuf, PathBuf) {
    let python = python();
    let (pictures, dataset) = (folder.path().join("pictures"), folder.path().join("dataset"));
    write_image_folder(&pictures, SAMPLES, 5, |_| {}).unwrap();
    let arguments = ["write", pictures.to_str().unwrap(), dataset.to_str().unwrap(), compression];
    run_script(&python, "tests/interop/tfrecord.py", arguments);
    let report = run(ctl().arg("index").arg(&dataset).args(["--json", "--block-size", "64KiB"])).json();
    assert_eq!(report["samples"], SAMPLES, "{report}");
    assert_eq!(report["fields"]["sometimes"], SAMPLES / 4);
    (python, dataset)
}

#[test]
fn features_are_those_of_the_parser_of_protocol_buffers() {
    for compression in ["", "gzip", "zlib"] {
        let folder = tempfile::tempdir().unwrap();
        let (python, dataset) = written(&folder, compression);
        let verified = run(ctl().arg("verify").arg(&dataset).arg("--json")).json();
        assert_eq!((&verified["records"], verified["faults"].as_array().unwrap().len()), (&SAMPLES.into(), 0));
        let unpacked = folder.path().join("unpacked");
        run(ctl().arg("unpack").arg(&dataset).arg(&unpacked).arg("--json")).json();
        let arguments = ["compare", dataset.to_str().unwrap(), unpacked.to_str().unwrap()];
        let compared = run_script(&python, "tests/interop/tfrecord.py", arguments);
        assert_eq!((&compared["samples"], &compared["values"]), (&SAMPLES.into(), &(SAMPLES * 8 + SAMPLES / 4).into()));
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
    trains_end_to_end(&written(&folder, "").1, SAMPLES, COLUMNS).await;
}

#[test]
fn a_feature_that_is_no_value_of_a_column_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, dataset) = written(&folder, "gzip");
    let job = folder.path().join("job.toml");
    let text = format!(
        "name = \"j\"\ndataset = {dataset:?}\nglobal_batch = 4\nbad_samples = \"fail\"\n\
         [[column]]\nname = \"x\"\nfrom = \"extremes\"\ndecode = \"int\"\n"
    );
    fs::write(&job, text).unwrap();
    run(ctl().arg("replay").arg(&job).args(["--all", "--json"])).error(&[
        "record `train.tfrecord-",
        "column `x`: field `extremes` does not decode: it holds i64 [4], and the column expects one number",
    ]);
}
