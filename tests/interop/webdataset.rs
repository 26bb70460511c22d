//! Exchanges shards with the Python package `webdataset`, in both directions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;
use spdl_cli::pictures::{Pictures, write_image_folder};
use spdl_testkit::{
    processes::{ctl, run},
    python::{python, run_script},
};

const PICTURES: u64 = 40;

/// Returns the SHA-256 hex digests of files, computed by Python's implementation.
fn sha256_of(python: &Path, files: &[impl AsRef<Path>]) -> Vec<String> {
    let digests = run_script(python, "tests/interop/sha256.py", files.iter().map(AsRef::as_ref));
    digests.as_array().unwrap().iter().map(|digest| digest.as_str().unwrap().to_owned()).collect()
}

/// Returns the files of a folder with this prefix and suffix, sorted by name.
fn files(folder: &Path, prefix: &str, suffix: &str) -> Vec<std::path::PathBuf> {
    let named = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(named).collect();
    files.sort();
    files
}

#[test]
fn shards_of_webdataset_give_the_same_bytes_after_indexing() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let (pictures, shards) = (folder.path().join("pictures"), folder.path().join("shards"));
    write_image_folder(&pictures, PICTURES, 11, |_| {}).unwrap();
    let arguments = [pictures.as_os_str(), shards.as_os_str(), "15".as_ref()];
    let written = run_script(&python, "tests/interop/write_webdataset.py", arguments);
    assert_eq!(written["shards"].as_array().unwrap().len(), 3);

    let report = run(ctl().arg("index").arg(&shards).arg("--json")).json();
    assert_eq!((&report["samples"], &report["shards"]), (&Value::from(PICTURES), &Value::from(3)));
    let job = folder.path().join("job.toml");
    let text = format!(
        "name = \"theirs\"\ndataset = {shards:?}\nglobal_batch = {PICTURES}\nshuffle = false\nbad_samples = \"fail\"\n\
         [[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n\
         [[column]]\nname = \"meta\"\nfrom = \"json\"\ndecode = \"bytes\"\n\
         [[column]]\nname = \"exposure\"\nfrom = \"json\"\ndecode = \"json\"\npath = \"camera.exposure\"\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
    );
    fs::write(&job, text).unwrap();
    let out = folder.path().join("out");
    run(ctl().arg("replay").arg(&job).arg("--out").arg(&out).arg("--json")).json();

    // Without shuffling, entries come in the order of the tars, which is the order of writing.
    let read = run_script(&python, "tests/interop/read_webdataset.py", files(&shards, "part-", ".tar"));
    let theirs = |field: &str| -> Vec<String> {
        let records = read["records"].as_array().unwrap();
        records.iter().map(|record| record["fields"][field].as_str().unwrap().to_owned()).collect()
    };
    let step = out.join("step-00000");
    assert_eq!(sha256_of(&python, &files(&step, "raw-", ".bin")), theirs("jpg"));
    assert_eq!(sha256_of(&python, &files(&step, "meta-", ".bin")), theirs("json"));
    let numbers = run_script(&python, "tests/interop/npy.py", [step.join("label.npy"), step.join("exposure.npy")]);
    let classes = Pictures::classes().len();
    let per_class = |class: usize| (0..PICTURES).filter(|&index| Pictures::class(index) as usize == class).count();
    let labels: Vec<usize> = (0..classes).flat_map(|class| vec![class; per_class(class)]).collect();
    assert_eq!(numbers[0], Value::from(labels.clone()));
    assert_eq!(numbers[1], Value::from(labels.iter().map(|&label| label as f64 / 8.0).collect::<Vec<_>>()));
}

#[test]
fn shards_that_we_pack_are_read_by_webdataset() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let (pictures, dataset) = (folder.path().join("pictures"), folder.path().join("dataset"));
    write_image_folder(&pictures, PICTURES, 12, |_| {}).unwrap();
    let mut pack = ctl();
    pack.arg("pack").arg(&pictures).arg(&dataset).args(["--records-per-shard", "15", "--json"]);
    assert_eq!(run(&mut pack).json()["shards"], 3);

    let read = run_script(&python, "tests/interop/read_webdataset.py", files(&dataset, "", ".tar"));
    let records = read["records"].as_array().unwrap();
    assert_eq!(records.len() as u64, PICTURES);
    let keys: BTreeSet<&str> = records.iter().map(|record| record["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), records.len(), "every key is there once");
    let mut labelled = BTreeMap::new();
    for record in records {
        let field = |name: &str| record["fields"][name].as_str().unwrap().to_owned();
        assert_eq!(labelled.insert(field("jpg"), field("cls")), None);
    }

    let mut expected = BTreeMap::new();
    for (class, name) in Pictures::classes().enumerate() {
        let number = folder.path().join("number");
        fs::write(&number, class.to_string()).unwrap();
        let label = sha256_of(&python, &[&number]).remove(0);
        let digests = sha256_of(&python, &files(&pictures.join(name), "", ".jpg"));
        expected.extend(digests.into_iter().map(|digest| (digest, label.clone())));
    }
    assert_eq!(labelled, expected);
}

#[test]
fn records_whose_names_are_latin_1_have_the_keys_and_bytes_that_webdataset_reads() {
    let python = python();
    for format in ["ustar", "gnu", "pax"] {
        let folder = tempfile::tempdir().unwrap();
        let (set, out) = (folder.path().join("set"), folder.path().join("out"));
        fs::create_dir(&set).unwrap();
        let shard = set.join("s.tar");
        let written = run_script(&python, "tests/interop/write_latin1.py", [format.as_ref(), shard.as_os_str()]);
        let indexed = run(ctl().arg("index").arg(&set).arg("--json")).json();
        assert_eq!(indexed["records"], written["records"]);
        assert_eq!(
            (&indexed["odd_members"][0]["what"], &indexed["odd_members"][0]["count"]),
            (&"not_utf8".into(), &6.into())
        );
        run(ctl().arg("verify").arg(&set).arg("--json")).json();
        run(ctl().arg("unpack").arg(&set).arg(&out).arg("--json")).json();
        let read = run_script(&python, "tests/interop/read_webdataset.py", [&shard]);
        for record in read["records"].as_array().unwrap() {
            let key = record["key"].as_str().unwrap();
            for (field, digest) in record["fields"].as_object().unwrap() {
                let file = out.join(format!("{key}.{field}"));
                assert_eq!(sha256_of(&python, &[&file]), [digest.as_str().unwrap()], "{format}: {key}.{field}");
            }
        }
    }
}
