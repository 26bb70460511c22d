//! Jobs that name what their dataset does not have: fields, classes, and values within fields.

use std::{fs, path::Path, sync::atomic::Ordering::Relaxed};

use spdl_dataset::{
    ClassOrder, IndexOptions, Misfits, index, misfits,
    tar::{TAR_END, append_member},
    view::evaluate,
};
use spdl_job::JobFile;
use spdl_shard::{samples::JobSamples, store::DatasetStore};
use spdl_store::StoreOptions;

use crate::counting::counted;

const RECORDS: usize = 400;

/// Makes a dataset of the classes `ant` and `bee`, whose documents have `rare` in the last record alone.
async fn dataset(folder: &Path) -> DatasetStore {
    let mut tar = Vec::new();
    for number in 0..RECORDS {
        let rare = if number + 1 == RECORDS { ", \"rare\": 1" } else { "" };
        let document =
            format!("{{\"camera\": {{\"exposure\": 0.5, \"iso\": [100]}}, \"name\": \"bee\", \"none\": null{rare}}}");
        append_member(&mut tar, &format!("{number:03}.json"), document.as_bytes());
        append_member(&mut tar, &format!("{number:03}.cls"), format!("{}", number % 2).as_bytes());
        append_member(&mut tar, &format!("{number:03}.txt"), b"two words");
    }
    tar.extend_from_slice(&TAR_END);
    fs::write(folder.join("0.tar"), tar).unwrap();
    let store = DatasetStore::create_with(folder.to_str().unwrap(), &StoreOptions::default()).unwrap();
    let classes = ClassOrder::Given(vec!["ant".to_owned(), "bee".to_owned()]);
    let options = IndexOptions { classes, block_bytes: Some(64 << 10), ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.unwrap();
    store
}

async fn misfits_of(store: &DatasetStore, column: &str, keys: &str) -> Misfits {
    let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{keys}\n[[column]]\nname = \"x\"\n{column}");
    let mut file = JobFile::parse(&text, "job.toml").unwrap();
    let manifest = store.manifest().await.unwrap();
    let mut samples = JobSamples::All;
    if let Some(view) = &mut file.view {
        let evaluated = evaluate(store, &manifest, view, 0, &|_| ()).await.unwrap();
        (view.samples, samples) = (Some(evaluated.samples), JobSamples::View(evaluated.set));
    }
    let job = file.freeze(&samples.facts(&manifest)).unwrap();
    misfits(store, &manifest, &job, samples.kept().map(|set| &**set)).await.unwrap()
}

#[tokio::test]
async fn what_no_record_has_is_an_error_with_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = dataset(folder.path()).await;
    for (column, expected) in [
        (
            "from = \"jsn\"\ndecode = \"bytes\"",
            "`from` is `jsn`, which no record of the dataset has; did you mean `json`? its fields are cls, json, txt",
        ),
        (
            "from = \"json\"\ndecode = \"json\"\npath = \"camera.exposur\"",
            "records that were looked at has; did you mean `camera.exposure`? there are camera.exposure, camera.iso",
        ),
        ("from = \"json\"\ndecode = \"text\"\npath = \"nmae\"", "did you mean `name`? there are camera, name, none"),
        ("from = \"json\"\ndecode = \"int\"\npath = \"camera.iso.x\"", "`camera.iso` is a list of 1, whose places are"),
        ("from = \"json\"\ndecode = \"int\"\npath = \"name.first\"", "`name` is a single value"),
        ("from = \"txt\"\ndecode = \"text\"\npath = \"a\"", "field `txt` of none of the"),
        (
            "from = \"cls\"\ndecode = \"int\"\nclasses = [\"be\"]",
            "`classes` has `be`, which is none of the dataset's classes; did you mean `bee`? they are ant, bee",
        ),
        (
            "from = \"json\"\ndecode = \"category\"\npath = \"name\"\ndefault = \"aunt\"",
            "`default` has `aunt`, which is none",
        ),
        (
            "from = \"json\"\ndecode = \"category\"\npath = \"name\"\nnames = [\"beee\"]",
            "records that were looked at, which have `bee`; did you mean `beee`? the names are beee",
        ),
        ("from = \"cls\"\ndecode = \"category\"", "`decode = \"int\"` takes numbers of classes"),
        (
            "from = \"cls\"\ndecode = \"int\"\n[[function]]\ncall = \"a:b\"\nfields = [\"json\", \"text|tx\"]\nreturns = [{ name = \"y\", max_bytes = 9 }]",
            "function `a:b`: `fields` is `text` or `tx`, which no record of the dataset has; did you mean `txt`? its fields are",
        ),
    ] {
        let found = misfits_of(&store, column, "").await;
        let error = found.error.unwrap_or_else(|| panic!("{column}")).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert_eq!(found.warnings, [""; 0]);
    }
}

#[tokio::test]
async fn what_a_record_has_is_no_error_and_what_may_be_rare_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let store = dataset(folder.path()).await;
    for column in [
        "from = \"json\"\ndecode = \"json\"\npath = \"camera.iso.0\"",
        "from = \"json\"\ndecode = \"json\"\npath = \"none\"",
        "from = \"json\"\ndecode = \"category\"\npath = \"name\"",
        "from = \"cls\"\ndecode = \"int\"\nclasses = [\"bee\"]",
        "from = \"__key__\"\ndecode = \"category\"\nnames = [\"007\"]",
    ] {
        let found = misfits_of(&store, column, "").await;
        assert!(found.error.is_none() && found.warnings.is_empty(), "{column}: {found:?}");
    }
    for (column, keys) in [
        ("from = \"json\"\ndecode = \"json\"\npath = \"rare\"\ndefault = 0", ""),
        ("from = \"mask\"\ndecode = \"text\"\ndefault = \"\"", ""),
        ("from = \"json\"\ndecode = \"json\"\npath = \"rare\"", "max_bad_fraction = 1.0"),
    ] {
        let found = misfits_of(&store, column, keys).await;
        assert!(found.error.is_none() && found.warnings.len() == 1, "{column}: {found:?}");
    }
    let view = "view = { where = \"json.rare is not null\" }\nepoch_end = \"pad\"";
    let found = misfits_of(&store, "from = \"json\"\ndecode = \"json\"\npath = \"rare\"", view).await;
    assert!(found.error.is_none() && found.warnings.is_empty(), "a view has other records: {found:?}");
}

#[tokio::test]
async fn a_few_records_are_read_for_a_path_and_none_for_fields() {
    let folder = tempfile::tempdir().unwrap();
    let (store, bytes) = counted(dataset(folder.path()).await, ".tar");
    let whole = fs::metadata(folder.path().join("0.tar")).unwrap().len();
    misfits_of(&store, "from = \"json\"\ndecode = \"bytes\"", "").await;
    assert_eq!(bytes.load(Relaxed), 0);
    misfits_of(&store, "from = \"json\"\ndecode = \"json\"\npath = \"none\"", "").await;
    let read = bytes.load(Relaxed);
    assert!(read > 0 && read < whole / 4, "{read} of {whole}");
}
