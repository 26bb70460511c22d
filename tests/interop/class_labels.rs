//! The names of classes that the Hub's `datasets` writes into Parquet.

use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
};

#[test]
fn class_labels_of_the_hub_are_the_classes_of_the_dataset() {
    let [shards, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = shards.path().join("train.parquet");
    let names = run_script(&python(), "tests/interop/write_class_labels.py", [file.as_path(), cache.path()]);
    let report = run(ctl().arg("index").arg(shards.path().join("*.parquet")).arg("--json")).json();
    assert_eq!(report["class_names"], names, "{report}");
    let found = run(ctl().args(["info", "--json"]).arg(shards.path())).json();
    let classes: Vec<_> = found["classes"].as_array().unwrap().iter().map(|class| &class["name"]).collect();
    assert_eq!(classes, names.as_array().unwrap().iter().collect::<Vec<_>>(), "{found}");
    let twice = run(ctl().args(["info", "--json"]).arg(shards.path()).arg(shards.path()));
    assert_eq!(twice.stdout.lines().count(), 2, "a line for each dataset");
}
