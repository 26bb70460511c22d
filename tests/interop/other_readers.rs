//! Folders that we have indexed, or packed into, are read by other programs as they were before.

use std::path::Path;

use serde_json::{Value, json};
use spdl_testkit::{
    processes::{ctl, run, write_pictures},
    python::{python, run_script},
};

/// Returns the rows that pyarrow and the Hub's `datasets` find in a folder.
fn rows(python: &Path, folder: &Path) -> Value {
    let cache = tempfile::tempdir().expect("a folder");
    run_script(python, "tests/interop/read_folder.py", [folder.as_os_str(), cache.path().as_os_str()])
}

#[test]
fn pyarrow_and_datasets_read_a_folder_after_it_was_indexed_and_packed_into() {
    let python = python();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for kind in ["parquet", "tars"] {
        run_script(&python, "tests/interop/write_folder.py", [kind.as_ref(), path(kind).as_os_str()]);
    }
    write_pictures(&path("pictures"), 24);
    for kind in ["parquet", "tars", "pictures"] {
        let before = rows(&python, &path(kind));
        assert_eq!(before["datasets"], json!({ "train": 24 }), "{kind}");
        let report = run(ctl().arg("index").arg(path(kind)).arg("--json")).json();
        assert_eq!(report["samples"], 24, "{kind}");
        assert_eq!(rows(&python, &path(kind)), before, "{kind}");
        run(ctl().arg("index").arg(path(kind)).args(["--force", "--json"])).json();
        assert_eq!(rows(&python, &path(kind)), before, "{kind}");
    }
    run(ctl().arg("pack").args([path("pictures"), path("packed")]).arg("--json")).json();
    assert_eq!(rows(&python, &path("packed"))["datasets"], json!({ "train": 24 }));
}
