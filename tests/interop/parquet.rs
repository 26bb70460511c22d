//! Parquet that pyarrow writes, of every type, encoding and compression, as the dataset of a job.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spdl_testkit::{
    processes::{Cluster, ServerProcess, ctl, run, sum, write_pictures},
    python::{python, run_script},
    s3::S3Server,
};

use super::s3_job::ctl_for;

const PICTURES: u64 = 96;

/// A column of the job, the field that it is of, and the other keys.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("a", "int8", "decode = \"int\""),
    ("b", "uint8", "decode = \"int\""),
    ("c", "int16", "decode = \"int\""),
    ("d", "uint16", "decode = \"int\""),
    ("e", "int32", "decode = \"int\""),
    ("f", "uint32", "decode = \"int\""),
    ("g", "int64", "decode = \"int\""),
    ("h", "uint64", "decode = \"tensor\"\ndtype = \"u64\"\nshape = []"),
    ("i", "float32", "decode = \"tensor\"\nshape = []"),
    ("j", "float64", "decode = \"tensor\"\ndtype = \"f64\"\nshape = []"),
    ("k", "float16", "decode = \"tensor\"\ndtype = \"f16\"\nshape = []"),
    ("l", "flag", "decode = \"tensor\"\ndtype = \"bool\"\nshape = []"),
    ("m", "small", "decode = \"int\"\ndtype = \"i32\""),
    ("n", "day", "decode = \"int\""),
    ("o", "moment", "decode = \"int\""),
    ("p", "blob", "decode = \"bytes\""),
    ("q", "large", "decode = \"bytes\""),
    ("r", "fixed", "decode = \"bytes\""),
    ("s", "text", "decode = \"bytes\""),
    ("t", "triple", "decode = \"tensor\"\nshape = [3]"),
    ("u", "ragged", "decode = \"tensor\"\ndtype = \"i32\"\nshape = []\nmax_rows = 8"),
    ("v", "image.bytes", "decode = \"bytes\""),
    ("w", "image.path", "decode = \"bytes\""),
    ("x", "points.x", "decode = \"tensor\"\ndtype = \"f64\"\nshape = []\nmax_rows = 8"),
    ("y", "nested", "decode = \"tensor\"\ndtype = \"i64\"\nshape = [2, 2]"),
    ("z", "objects.bbox", "decode = \"tensor\"\ndtype = \"f64\"\nshape = [2]\nmax_rows = 8"),
    ("each", "each.bbox", "decode = \"tensor\"\ndtype = \"f64\"\nshape = [2]\nmax_rows = 8"),
    ("category", "each.category", "decode = \"tensor\"\ndtype = \"i64\"\nshape = []\nmax_rows = 8"),
    ("price", "price", "decode = \"float\"\ndtype = \"f64\""),
    ("wide", "wide", "decode = \"float\"\ndtype = \"f64\""),
    ("count", "count", "decode = \"int\""),
    ("scores", "scores.value", "decode = \"tensor\"\ndtype = \"i64\"\nshape = []\nmax_rows = 8"),
];

fn job_file(path: &Path, dataset: &str, keys: &str, columns: &[(&str, &str, &str)]) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let mut text = format!("name = \"{name}\"\ndataset = {dataset:?}\n{keys}\n");
    for (name, field, keys) in columns {
        text += &format!("[[column]]\nname = \"{name}\"\nfrom = \"{field}\"\n{keys}\n");
    }
    fs::write(path, text).unwrap();
}

#[test]
fn every_type_encoding_and_compression_is_what_pyarrow_reads() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let (dataset, out) = (folder.path().join("types"), folder.path().join("out"));
    let written = run_script(&python, "tests/interop/write_parquet.py", ["types".as_ref(), dataset.as_os_str()]);
    let report = run(ctl().arg("index").arg(&dataset).args(["--block-size", "32KiB", "--json"])).json();
    assert_eq!((&report["shards"], &report["samples"]), (&written["files"], &written["rows"]));
    let fields = report["fields"].as_object().unwrap();
    assert!(COLUMNS.iter().all(|(_, field, _)| fields[*field] == written["rows"]), "{fields:?}");
    let notes = report["notes"].to_string();
    let left_out = "column `pages` of `codec=brotli/part-012.parquet` is left out: lists of lists of text";
    assert!(notes.contains(left_out), "{notes}");
    assert!(!notes.contains("`words`") && !notes.contains("`frames"), "{notes}");
    assert!(notes.contains("column `deep`") && notes.contains("lists of lists of lists are not read"), "{notes}");
    let verified = run(ctl().arg("verify").arg(&dataset).arg("--json")).json();
    assert_eq!((&verified["records"], verified["faults"].as_array().unwrap().len()), (&written["rows"], 0));
    let unpacked = folder.path().join("unpacked");
    run(ctl().arg("unpack").arg(&dataset).arg(&unpacked).arg("--json")).json();
    let [from, to] = [&dataset, &unpacked].map(|folder| folder.display().to_string());
    let fields = ["words", "frames.bytes", "frames.path"].map(str::to_owned);
    let arguments = ["lists".to_owned(), from, to].into_iter().chain(fields);
    let checked = run_script(&python, "tests/interop/check_parquet.py", arguments);
    assert_eq!(checked["different"], Value::Array(vec![]), "{checked}");
    assert!(checked["compared"].as_object().unwrap().values().all(|values| values.as_u64() > Some(500)), "{checked}");

    let job = folder.path().join("job.toml");
    let keys = "global_batch = 25\nepochs = 1\nshuffle = false\nbad_samples = \"fail\"";
    job_file(&job, &dataset.display().to_string(), keys, COLUMNS);
    run(ctl().arg("replay").arg(&job).args(["--all", "--json", "--out"]).arg(&out)).json();
    let pairs: Vec<String> = COLUMNS.iter().map(|(column, field, _)| format!("{column}={field}")).collect();
    let paths = [dataset.display().to_string(), out.display().to_string()];
    let checked = run_script(&python, "tests/interop/check_parquet.py", paths.into_iter().chain(pairs));
    assert_eq!(checked["different"], Value::Array(vec![]), "{checked}");
    let compared = checked["compared"].as_object().unwrap();
    assert!(compared.len() == COLUMNS.len() && compared.values().all(|rows| rows == &written["rows"]), "{checked}");

    numbers_alone_are_what_they_are_beside_text(folder.path(), &dataset);

    // Of the bad samples of the first batch, which is the first file, the sample that is decoded first is named.
    let of_the_batch = "record `codec=brotli/part-012/0000";
    // A folder is a field; a row without a value lacks the field, and so does one whose list has a gap.
    let refused = |column: (&str, &str, &str), expected: &[&str]| {
        job_file(&job, &dataset.display().to_string(), keys, &[column]);
        run(ctl().arg("replay").arg(&job).args(["--all", "--json"])).error(expected);
    };
    refused(("codec", "codec", "decode = \"int\""), &["field `codec` is", "brotli", "not a whole number"]);
    refused(
        ("maybe", "maybe", "decode = \"int\""),
        &[of_the_batch, "codec=brotli/part-012.parquet", "no field `maybe`"],
    );
    refused(("gaps", "gaps", "decode = \"tensor\"\ndtype = \"i64\"\nshape = [2]"), &[of_the_batch, "no field `gaps`"]);
    for field in ["uneven", "holes"] {
        let column = (field, field, "decode = \"tensor\"\ndtype = \"i64\"\nshape = [1]\nmax_rows = 2");
        refused(column, &[of_the_batch, &format!("no field `{field}`")]);
    }
    refused(
        ("f", "float64", "decode = \"int\""),
        &["field `float64`", "it holds f64 [], and the column expects a whole number"],
    );
    refused(("t", "triple", "decode = \"tensor\"\ndtype = \"f64\"\nshape = [3]"), &["it holds f32", "expects f64 [3]"]);
    refused(
        ("w", "words", "decode = \"text\"\nmax_bytes = 9"),
        &[of_the_batch, "field `words` is a list of", "and one is wanted"],
    );
    let frames =
        |list: &str| ("x", "frames.bytes", format!("decode = \"image\"\nops = [{{ resize = [8, 8] }}]\n{list}"));
    let (name, field, keys) = frames("max_rows = 2");
    refused((name, field, &keys), &[of_the_batch, "column `x`: ", "field `frames.bytes`"]);
    refused(("t", "triple", "decode = \"tensor\"\nshape = [4]"), &["it holds f32 [3], and the column expects f32 [4]"]);
}

/// Where all columns are numbers, they are copied column by column, and otherwise decoded row by row: with the same batches,
/// also for rows that lack a value or have one that does not fit.
fn numbers_alone_are_what_they_are_beside_text(folder: &Path, dataset: &Path) {
    let number = |(_, field, keys): &&(&str, &str, &str)| {
        *field != "triple" && (keys.contains("\"int\"") || keys.ends_with("shape = []"))
    };
    let narrow = ("narrow", "uint32", "decode = \"int\"\ndtype = \"i32\"");
    let mut columns: Vec<_> = COLUMNS.iter().filter(number).copied().collect();
    columns.extend([("maybe", "maybe", "decode = \"int\""), narrow]);
    assert_eq!(columns.len(), 18, "{columns:?}");
    let numbers: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    for policy in ["mask", "substitute"] {
        let keys =
            format!("global_batch = 50\nepochs = 1\nseed = 4\nbad_samples = \"{policy}\"\nmax_bad_fraction = 1.0");
        let replayed = |name: &str, columns: &[(&str, &str, &str)]| {
            let (job, out) = (folder.join("job.toml"), folder.join(format!("{policy}-{name}")));
            job_file(&job, &dataset.display().to_string(), &keys, columns);
            let report = run(ctl().arg("replay").arg(&job).args(["--all", "--json", "--out"]).arg(&out)).json();
            (out, report["receipt"].clone())
        };
        let (alone, receipt) = replayed("alone", &columns);
        let beside: Vec<_> = columns.iter().copied().chain([("text", "text", "decode = \"bytes\"")]).collect();
        let (beside, same_receipt) = replayed("beside", &beside);
        assert_eq!(receipt, same_receipt, "{policy}");
        let mut compared = 0;
        for step in fs::read_dir(&alone).unwrap().map(|step| step.unwrap()).filter(|step| step.path().is_dir()) {
            for column in &numbers {
                let [one, other] = [&alone, &beside]
                    .map(|out| fs::read(out.join(step.file_name()).join(format!("{column}.npy"))).unwrap());
                assert!(one == other, "{policy}: column `{column}` of {:?}", step.file_name());
                compared += 1;
            }
        }
        assert!(compared > 18 * 10, "{compared}");
    }
}

#[test]
fn a_damaged_file_is_named_with_the_row_group_and_the_column() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("types");
    run_script(&python, "tests/interop/write_parquet.py", ["types".as_ref(), dataset.as_os_str()]);
    run(ctl().arg("index").arg(&dataset).arg("--json")).json();
    // Checksums are in the files with even numbers.
    let path = dataset.join("codec=none/part-000.parquet");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(14).position(|window| window == "prefix 6 Züri".as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = run(ctl().arg("verify").arg(&dataset).arg("--json"));
    for part in ["codec=none/part-000.parquet", "field `text` (row group ", "Page CRC checksum mismatch"] {
        assert!(report.stdout.contains(part), "{part}: {}", report.stdout);
    }
    let other = dataset.join("codec=none/part-001.parquet");
    let length = fs::metadata(&other).unwrap().len();
    fs::OpenOptions::new().write(true).open(&other).unwrap().set_len(length - 9).unwrap();
    let report = run(ctl().arg("verify").arg(&dataset).arg("--json"));
    assert!(report.stdout.contains("when it was indexed"), "{}", report.stdout);
    run(ctl().arg("index").arg(&dataset).args(["--force", "--json"]))
        .error(&["part-001.parquet", "is no Parquet file"]);
}

#[test]
fn boxes_of_a_detection_dataset_are_read_as_datasets_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, out) = (pictures(folder.path(), "detection"), folder.path().join("out"));
    run(ctl().arg("index").arg(&dataset).arg("--json")).json();
    let boxes =
        "decode = \"boxes\"\nfollows = \"image\"\nstored_as = \"xywh\"\nmax_rows = 8\nmin_visible = 0\nmin_size = 0";
    let job = folder.path().join("job.toml");
    let keys = "global_batch = 16\nepochs = 1\nshuffle = false\nbad_samples = \"fail\"";
    let columns = [
        ("image", "image.bytes", "decode = \"image\"\nops = [{ resize = [64, 96] }]"),
        ("boxes", "objects.bbox", boxes),
        ("labels", "objects.category", "decode = \"box_labels\"\nfollows = \"boxes\""),
        ("each_boxes", "each.bbox", boxes),
        ("each_labels", "each.category", "decode = \"box_labels\"\nfollows = \"each_boxes\""),
    ];
    job_file(&job, &dataset.display().to_string(), keys, &columns);
    run(ctl().arg("replay").arg(&job).args(["--all", "--json", "--out"]).arg(&out)).json();
    let pairs = ["boxes=expected", "each_boxes=expected", "labels=objects.category", "each_labels=objects.category"];
    let paths = [dataset.display().to_string(), out.display().to_string()];
    let arguments = paths.into_iter().chain(pairs.map(str::to_owned));
    let checked = run_script(&python(), "tests/interop/check_parquet.py", arguments);
    assert_eq!(checked["different"], Value::Array(vec![]), "{checked}");
    assert!(checked["compared"].as_object().unwrap().values().all(|rows| *rows == PICTURES), "{checked}");
}

/// Writes pictures as Parquet, as the command `what` of the script does.
fn pictures(folder: &Path, what: &str) -> PathBuf {
    let (pictures, dataset) = (folder.join("pictures"), folder.join("set"));
    write_pictures(&pictures, PICTURES);
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![pictures];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let arguments = [what.into(), dataset.clone().into_os_string()].into_iter();
    run_script(&python(), "tests/interop/write_parquet.py", arguments.chain(files.into_iter().map(Into::into)));
    dataset
}

fn picture_job(path: &Path, dataset: &str) {
    let image = "decode = \"image\"\nops = [{ random_resized_crop = { size = 32 } }, { random_flip = {} }]";
    let frames = "decode = \"image\"\nops = [{ random_resized_crop = 16 }, \"random_flip\"]\nmax_rows = 4";
    let pair = "decode = \"image\"\nops = [{ random_crop = { size = 16, pad_if_needed = true } }]\npictures = 2\nlayout = \"nchw\"\ndtype = \"f32\"";
    let columns = [
        ("image", "image.bytes", image),
        ("label", "label", "decode = \"int\""),
        ("frames", "frames.bytes", frames),
        ("pair", "views.pair", pair),
    ];
    job_file(path, dataset, "seed = 3\nglobal_batch = 16\nepochs = 2\nepoch_end = \"exact\"", &columns);
}

#[tokio::test]
async fn a_job_of_pictures_in_parquet_is_the_same_on_disk_on_s3_and_at_every_world_size() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = pictures(folder.path(), "pictures");
    let report = run(ctl().arg("index").arg(&dataset).args(["--block-size", "64KiB", "--json"])).json();
    assert_eq!((&report["samples"], &report["shards"]), (&Value::from(PICTURES), &Value::from(3)));
    assert!(report["blocks"].as_u64().unwrap() > 3, "row groups are cut at their pages: {report}");
    let server = S3Server::start();
    let stored = server.upload(&dataset, "pictures").await;
    let digests = |reports: &[Value]| (sum(reports, "receipt"), sum(reports, "content_digest"));
    let mut replays = Vec::new();
    for (name, url) in [("disk", dataset.display().to_string()), ("stored", stored.clone())] {
        let job = folder.path().join(format!("{name}.toml"));
        picture_job(&job, &url);
        let report = run(ctl_for(&server).arg("replay").arg(&job).args(["--all", "--json"])).json();
        assert_eq!(report["samples"], 2 * PICTURES);
        replays.push(digests(&[report]));
    }
    assert_eq!(replays[0], replays[1], "on disk and on S3");

    // The files that are there already are indexed where they lie, too.
    let again = run(ctl_for(&server).args(["index", &stored, "--force", "--block-size", "64KiB", "--json"])).json();
    assert_eq!(again["fingerprint"], report["fingerprint"]);

    let mut cluster =
        Cluster::start_with(2, &[], server.environment().map(|(name, value)| (name.to_owned(), value)).into());
    for (name, expected) in [("disk", &replays[0]), ("stored", &replays[1])] {
        cluster.submit(&folder.path().join(format!("{name}.toml")));
        for (world, node) in [(1, "node-0"), (2, "elsewhere"), (4, "node-0")] {
            let reports = cluster.pull_all(name, world, &[node], &["--from", "0:0"]);
            assert_eq!(digests(&reports), *expected, "{name} at world {world} on {node}");
        }
        // A trainer is killed, and later a worker; the run goes on at other world sizes.
        let slowly = ["--progress", "--rate", "48", "--from", "0:0"];
        let mut killed = ServerProcess::spawn(&mut cluster.pull(name, 0, 1, "node-0", &slowly));
        killed.progress_to(32);
        killed.kill();
        cluster.wait_for("workers without ranks", |status| {
            let workers = status["workers"].as_array().unwrap();
            workers.iter().all(|worker| worker["ranks"].as_array().is_some_and(Vec::is_empty))
        });
        let mut parts = cluster.pull_all(name, 2, &["node-0"], &["--steps", "4", "--from", "0:0"]);
        let position = parts[0]["position"].as_str().unwrap().to_owned();
        cluster.workers[0].process.kill();
        cluster.restart_worker(0);
        parts.extend(cluster.pull_all(name, 4, &["elsewhere"], &["--from", &position]));
        assert_eq!(digests(&parts), *expected, "{name}, resumed");
    }
    server.clear().await;
}
