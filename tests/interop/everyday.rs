//! Everyday use of datasets: packing folders that contain more than pictures, checking, planning and copying.

use std::{fs, path::Path};

use spdl_cli::pictures::Pictures;
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
    root,
};

fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn photograph() -> Vec<u8> {
    fs::read(root().join("assets/photos/rocket.jpg")).unwrap()
}

#[test]
fn pack_reports_what_it_found_and_what_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..3 {
        write(path(&format!("in/cat/{number}.jpg")), photograph());
        write(path(&format!("in/cat/{number}.png")), "mask");
    }
    write(path("in/cat/0.txt"), "a cat");
    write(path("in/cat/list.csv"), "0,1");
    let shown = run(ctl().arg("pack").arg(path("in")).arg(path("out"))).stdout;
    for part in [
        "3 samples in 3 records",
        "1 class: cat",
        "fields: cls in all records, jpg in all records, png in all records, txt in 1 (2 do not have it)",
        "left out: 1 `.csv` file: no picture has their stem (`cat/list.csv`)",
    ] {
        assert!(shown.contains(part), "`{part}` is not in:\n{shown}");
    }
    let packed =
        run(ctl().arg("pack").arg(path("in")).arg(path("chosen")).args(["--fields", "jpg,png=mask", "--json"]));
    assert_eq!(packed.json()["fields"], serde_json::json!({ "cls": 3, "jpg": 3, "mask": 3 }));
    let fields = ["--fields", "jpg,png=mask", "--json"];
    let verified = run(ctl().arg("verify").arg(path("chosen")).arg("--against").arg(path("in")).args(fields)).json();
    assert_eq!((&verified["faults"], &verified["same_pictures"]), (&serde_json::json!([]), &6.into()));
    run(ctl().arg("pack").arg(path("in")).arg(path("none")).args(["--fields", "jpg,png=jpg"]))
        .error(&["`fields` has the field `jpg` twice"]);
}

#[test]
fn a_picture_that_is_cut_off_is_found_by_decoding_and_verify_reports_whether_it_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(path("in/a/whole.jpg"), photograph());
    write(path("in/a/cut.jpg"), &photograph()[..500]);
    write(path("in/a/mask.png"), fs::read(root().join("assets/photos/brick.png")).unwrap());
    run(ctl().arg("pack").arg(path("in")).arg(path("set")).args(["--fields", "jpg=picture,png=mask", "--json"])).json();
    let plain = run(ctl().arg("verify").arg(path("set")));
    assert!(plain.status.success() && plain.stdout.contains("pictures were not decoded"), "{}", plain.stdout);
    let decoded = run(ctl().arg("verify").arg(path("set")).arg("--decode"));
    assert_eq!(decoded.status.code(), Some(1));
    for part in
        ["record `a/cut`: field `picture` is a JPEG that is cut off after 500 bytes", "2 pictures were decoded whole"]
    {
        assert!(decoded.stdout.contains(part), "{}", decoded.stdout);
    }
}

#[test]
fn a_plan_of_nothing_is_an_error_and_a_relative_dataset_lies_beside_its_job_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for number in 0..10 {
        write(path(&format!("in/a/{number}.jpg")), photograph());
    }
    run(ctl().arg("pack").arg(path("in")).arg(path("jobs/data/set")).arg("--json")).json();
    let job = |name: &str, batch: u32| {
        let text = format!(
            "name = \"x\"\ndataset = \"data/set\"\nglobal_batch = {batch}\nepochs = 3\n[[column]]\nname = \"label\"\nfrom = \
             \"cls\"\ndecode = \"int\"\n"
        );
        write(path(name), text);
        path(name)
    };
    let file = job("jobs/x.toml", 4);
    let plan = |arguments: &[&str]| run(ctl().arg("plan").arg(&file).args(arguments).current_dir(path("in")));
    assert_eq!(plan(&["--json"]).json()["steps"], 2);
    assert_eq!(plan(&["--epoch", "2", "--from", "6", "--json"]).json()["steps"], 1);
    plan(&["--epoch", "3", "--ids"]).error(&["`--epoch` is 3, beyond the job's epochs, which are 3: the last is 2"]);
    plan(&["--from", "10"]).error(&["`--from` is 10, beyond the 10 samples of an epoch"]);
    plan(&["--from", "7"]).error(&["`--from` is 7, too near to the end of epoch 0: its last 3 samples"]);

    // The same error from each command that reads a job.
    let file = job("jobs/large.toml", 64);
    for command in ["plan", "replay"] {
        run(ctl().arg(command).arg(&file)).error(&["`global_batch` is 64", "10 samples", "never fill it", "lower it"]);
    }
}

#[test]
fn a_pack_that_fails_leaves_no_folder_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    run(ctl().arg("pack").arg(path("nowhere")).arg(path("a/b"))).error(&["nowhere` cannot be read"]);
    assert!(!path("a").exists());
    write(path("in/x\ty/1.jpg"), photograph());
    run(ctl().arg("pack").arg(path("in")).arg(path("a/b"))).error(&["`x\\ty` cannot be a class's name"]);
    assert!(!path("a").exists());
}

/// A step of this example takes 730 MB, and one more is filled ahead.
#[test]
fn the_imagenet_example_is_replayed_unchanged_and_in_parts_where_memory_is_short() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(path("picture.jpg"), Pictures::new().picture(3, 0));
    write(
        path("captions.py"),
        "import numpy\n\ndef tokens(text, sample, model):\n    return numpy.resize(numpy.frombuffer(text, 'u1'), 77).astype('i4')\n",
    );
    fs::create_dir(path("dataset")).unwrap();
    let arguments = [path("picture.jpg"), path("dataset/part-0.tar"), "2100".into()];
    run_script(&python, "tests/interop/write_imagenet.py", arguments);
    run(ctl().arg("index").arg(path("dataset")).arg("--json")).json();
    let example = root().join("examples/imagenet-train.toml");
    let text = fs::read_to_string(example).unwrap();
    assert!(text.contains("\"s3://bucket/imagenet/train\""));
    write(path("job.toml"), text.replace("s3://bucket/imagenet/train", "dataset"));

    let replay = |arguments: &[&str]| {
        let mut command = ctl();
        command.arg("replay").arg(path("job.toml")).arg("--python").arg(&python).arg("--json").args(arguments);
        run(command.env("PYTHONPATH", folder.path())).json()
    };
    let whole = replay(&[]);
    assert_eq!((&whole["samples"], &whole["substituted"]), (&2048.into(), &0.into()), "{whole}");
    let part = replay(&["--memory", "1GiB", "--world", "4", "--rank", "1"]);
    assert_eq!((&part["samples"], &part["substituted"]), (&512.into(), &0.into()), "{part}");
}
