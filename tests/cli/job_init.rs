//! `job init`: a first job for a dataset, which runs as it is written.

use std::{fs, path::Path, process::Command};

use spdl_testkit::{
    processes::{Cluster, Finished, TestDataset, ctl, run, write_pictures},
    tokens::write_megatron,
};

fn init(folder: &Path, arguments: &[&str]) -> Finished {
    run(ctl().args(["job", "init"]).args(arguments).current_dir(folder))
}

/// Packs pictures as a dataset in a folder.
fn pack(folder: &Path, dataset: &str, pictures: u64, further: &[&str]) {
    let source = folder.join(format!("{}-pictures", dataset.replace('/', "-")));
    write_pictures(&source, pictures);
    let mut command = ctl();
    let packed = run(command.arg("pack").arg(source).arg(folder.join(dataset)).args(further));
    assert!(packed.status.success(), "{}", packed.stderr);
}

fn text(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Delivers a whole job in this process, and returns the samples.
fn replayed(folder: &Path, job: &str) -> u64 {
    let mut command = ctl();
    run(command.args(["replay", job, "--all", "--json"]).current_dir(folder)).json()["samples"]
        .as_u64()
        .expect("a number")
}

#[test]
fn the_first_jobs_of_a_dataset_run_as_they_are_written() {
    let dataset = TestDataset::of_pictures(70, 16);
    let folder = dataset.folder.path();
    pack(folder, "valset", 30, &[]);
    let done = init(folder, &["dataset", "--validation", "valset"]);
    assert!(done.status.success(), "{}", done.stderr);
    for line in [
        "train.toml: job `train`, 70 samples of dataset, 64 in a batch",
        "val.toml: job `val`, 30 samples of valset, 30 in a batch",
        "  image: u8 [224, 224, 3] from jpg",
        "  label: i64 a number from cls",
    ] {
        assert!(done.stdout.lines().any(|there| there == line), "`{line}` is not in\n{}", done.stdout);
    }
    assert_eq!(done.stdout.lines().last(), Some("next: spdl-ctl dev up train.toml val.toml"));
    let (train, val) = (text(folder, "train.toml"), text(folder, "val.toml"));
    for part in ["dataset = \"dataset\"", "ops = [{ random_resized_crop = 224 }, \"random_flip\"]", "epochs = 10"] {
        assert!(train.contains(part), "`{part}` is not in\n{train}");
    }
    for part in ["shuffle = false", "epoch_end = \"partial\"", "ops = [{ resize = 256 }, { center_crop = 224 }]"] {
        assert!(val.contains(part), "`{part}` is not in\n{val}");
    }
    assert!(!val.contains("random_"), "{val}");
    // Ten epochs of one whole batch, and every sample once.
    assert_eq!((replayed(folder, "train.toml"), replayed(folder, "val.toml")), (640, 30));

    let cluster = Cluster::start(1);
    cluster.submit(&folder.join("train.toml"));
    cluster.submit(&folder.join("val.toml"));
    let pulled = run(&mut cluster.pull("val", 0, 1, "node-0", &[])).json();
    assert_eq!(pulled["samples"], 30, "{pulled}");
}

#[test]
fn nothing_is_overwritten_unless_it_is_asked_for() {
    let dataset = TestDataset::of_pictures(24, 8);
    let folder = dataset.folder.path();
    fs::write(folder.join("val.toml"), "mine").expect("it is written");
    let refused = init(folder, &["dataset", "--validation", "dataset"]);
    refused.error(&["`val.toml` is there already, with another text", "hint: `--force` replaces it, `--out FILE`"]);
    assert!(!folder.join("train.toml").exists(), "either both are written or none");
    let elsewhere =
        init(folder, &["dataset", "--validation", "dataset", "--out", "mine.toml", "--size", "64", "--batch", "8"]);
    assert!(elsewhere.status.success() && folder.join("mine-val.toml").exists(), "{}", elsewhere.stderr);
    let mine = text(folder, "mine.toml");
    assert!(mine.contains("name = \"mine\"") && mine.contains("random_resized_crop = 64"), "{mine}");
    assert!(mine.contains("global_batch = 8 "), "{mine}");
    // The same again changes nothing, and is no error.
    assert!(init(folder, &["dataset", "--out", "mine.toml", "--size", "64", "--batch", "8"]).status.success());
    init(folder, &["dataset", "--out", "mine.toml"]).error(&["`mine.toml` is there already"]);
    assert!(init(folder, &["dataset", "--out", "mine.toml", "--force"]).status.success());
    assert!(text(folder, "mine.toml").contains("random_resized_crop = 224"));
    assert_eq!(text(folder, "val.toml"), "mine");

    // A job file in another folder has a path that holds from there.
    fs::create_dir(folder.join("jobs")).expect("it is made");
    assert!(init(folder, &["dataset", "--out", "jobs/train.toml"]).status.success());
    assert_eq!(replayed(folder, "jobs/train.toml"), 240);
}

#[test]
fn a_folder_with_training_and_validation_needs_no_more_than_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    pack(folder, "data/train", 24, &[]);
    pack(folder, "data/val", 12, &["--classes-from", folder.join("data/train").to_str().expect("a plain path")]);
    for given in ["data", "data/train"] {
        let done = init(folder, &[given, "--force"]);
        assert!(done.status.success() && done.stderr.is_empty(), "{}", done.stderr);
        assert!(done.stdout.ends_with("next: spdl-ctl dev up train.toml val.toml\n"), "{}", done.stdout);
        assert!(text(folder, "train.toml").contains("dataset = \"data/train\""));
        assert!(text(folder, "val.toml").contains("dataset = \"data/val\""));
    }
    assert_eq!(replayed(folder, "val.toml"), 12);
    let alone = init(folder, &["data/val", "--out", "alone.toml"]);
    assert!(alone.stdout.ends_with("next: spdl-ctl dev up alone.toml\n"), "{}", alone.stdout);
}

#[test]
fn a_field_that_is_left_out_is_named_and_so_is_what_does_not_fit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let photos = folder.join("photos");
    write_pictures(&photos, 12);
    let first =
        |folder: &Path| fs::read_dir(folder).expect("a folder").next().expect("an entry").expect("it is read").path();
    let picture = first(&first(&photos));
    fs::write(picture.with_extension("txt"), "a caption").expect("it is written");
    assert!(run(ctl().args(["pack", "photos", "dataset"]).current_dir(folder)).status.success());
    let done = init(folder, &["dataset"]);
    let reason = "`txt`: only in 1 of 12 records, and a sample without it is a bad one";
    assert!(done.stdout.contains(&format!("  left out: {reason}\n")), "{}", done.stdout);
    assert!(text(folder, "train.toml").contains(&format!("# {reason}\n")));

    // Another list of classes: `other` has only some of them, with other numbers.
    let class = picture.parent().and_then(Path::file_name).expect("its class");
    let other = folder.join("some").join(class);
    fs::create_dir_all(&other).expect("it is made");
    fs::copy(&picture, other.join("0.jpg")).expect("it is copied");
    assert!(run(ctl().args(["pack", "some", "other"]).current_dir(folder)).status.success());
    let warned = init(folder, &["dataset", "--validation", "other", "--force"]);
    assert!(warned.status.success(), "{}", warned.stderr);
    assert!(
        warned.stderr.contains("warning: class 0 is `") && warned.stderr.contains("--classes-from"),
        "{}",
        warned.stderr
    );
}

#[test]
fn what_is_no_dataset_is_named_with_what_makes_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    write_pictures(&folder.join("photos"), 4);
    init(folder, &["nowhere"]).error(&["/nowhere", "does not exist"]);
    init(folder, &["photos"]).error(&[
        "/photos/",
        "does not exist",
        "make one with `spdl-ctl pack` or `spdl-ctl index`",
    ]);
    let empty = folder.join("empty");
    fs::create_dir(&empty).expect("it is made");
    fs::write(empty.join("0.bin"), "").expect("it is written");
    let mut tar = Command::new("tar");
    fs::create_dir(folder.join("shards")).expect("it is made");
    assert!(run(tar.arg("-cf").arg(folder.join("shards/0.tar")).arg("-C").arg(&empty).arg("0.bin")).status.success());
    assert!(run(ctl().args(["index", "shards"]).current_dir(folder)).status.success());
    init(folder, &["shards"]).error(&[
        "no column can read what the records of `",
        "`bin`: ",
        "hint: `spdl-ctl info --all`",
    ]);
    assert_eq!(
        fs::read_dir(folder)
            .expect("it is there")
            .filter(|entry| { entry.as_ref().expect("an entry").path().extension().is_some_and(|kind| kind == "toml") })
            .count(),
        0
    );
}

#[test]
fn the_first_job_of_documents_of_tokens_packs_them_and_runs_as_it_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let documents = |count: usize| -> Vec<Vec<u16>> {
        (0..count).map(|number| vec![(number % 9000) as u16; 1 + number * 37 % 500]).collect()
    };
    // A corpus of some size, and one that has hardly a sequence.
    for (dataset, count, seq_len) in [("corpus", 4000, 2048), ("few", 3, 128)] {
        fs::create_dir(folder.join(dataset)).expect("it is made");
        write_megatron(&folder.join(dataset), "web_text_document", &documents(count));
        run(ctl().arg("index").arg(folder.join(dataset)).arg("--json")).json();
        let file = format!("{dataset}.toml");
        let done = init(folder, &[dataset, "--out", &file]);
        assert!(done.status.success(), "{}", done.stderr);
        let first =
            format!("{file}: job `{dataset}`, {count} documents of {dataset}, in sequences of {seq_len} tokens, ");
        let first = first.replace("4000", "4 000");
        assert!(done.stdout.starts_with(&first), "{}", done.stdout);
        let written = text(folder, &file);
        for part in ["[sequence]", format!("seq_len = {seq_len} ").as_str(), "# eos = ID", "# vocab = SIZE"] {
            assert!(written.contains(part), "`{part}` is not in\n{written}");
        }
        for kind in ["tokens", "labels", "positions", "document_lengths"] {
            assert!(written.contains(&format!("decode = \"{kind}\"")), "{kind}:\n{written}");
        }
        let plan = run(ctl().args(["plan", &file, "--json"]).current_dir(folder)).json();
        let sequences = plan["sequences"]["sequences"].as_u64().expect("a number");
        assert!(plan["steps"].as_u64() > Some(0) && sequences > 0, "{plan}");
        let pulled = replayed(folder, &file);
        assert!(pulled > 0 && pulled <= 10 * sequences, "{pulled} of {sequences}");
    }
    let largest = "the largest id that was seen is ";
    let seen = text(folder, "few.toml");
    assert!(seen.contains(&format!("{largest}2\n")), "{seen}");
    let cluster = Cluster::start(1);
    cluster.submit(&folder.join("corpus.toml"));
    let from = run(&mut cluster.pull("corpus", 0, 1, "node-0", &["--steps", "2"])).json();
    assert!(from["samples"].as_u64() > Some(0), "{from}");
}
