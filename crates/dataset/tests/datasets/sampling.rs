//! Views with `sampling`: which class each sample is of in datasets of several formats, how many each gives, and what is refused.

use std::path::Path;

use spdl_dataset::view::EvaluatedView;
use spdl_job::{SamplingFile, ViewFile};
use spdl_order::view::ClassSampling;
use spdl_shard::{
    samples::JobSamples,
    view::{open_view, save_view},
};

use crate::files::at;
use crate::view::{ROWS, filter, nsfw, rows, split, tar, view};

fn by(name: &str) -> SamplingFile {
    SamplingFile { by: name.to_owned(), samples: None, weights: [].into(), repeat: true }
}

fn sampled(sampling: SamplingFile) -> ViewFile {
    ViewFile { sampling: Some(sampling), ..ViewFile::default() }
}

fn weights(some: &[(&str, f64)]) -> std::collections::BTreeMap<String, f64> {
    some.iter().map(|(class, weight)| ((*class).to_owned(), *weight)).collect()
}

fn sampling(found: &EvaluatedView) -> &ClassSampling {
    found.set.sampling().expect("a view with `sampling`")
}

/// Returns name, samples and given samples of each class.
async fn classes(folder: &Path, file: ViewFile) -> Vec<(String, u64, u64)> {
    let found = view(folder, &file).await.unwrap();
    let classes = sampling(&found).classes().iter();
    classes.map(|class| (class.name.clone(), class.samples, class.given)).collect()
}

fn expected(some: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    some.iter().map(|(name, samples, given)| ((*name).to_owned(), *samples, *given)).collect()
}

async fn refused(folder: &Path, file: ViewFile) -> String {
    view(folder, &file).await.unwrap_err()
}

#[tokio::test]
async fn classes_are_values_of_columns_of_members_of_documents_and_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = rows(folder.path()).await;
    let [val, train] = ["val", "train"].map(|name| (0..ROWS).filter(|row| split(*row) == name).count() as u64);
    let (all, half) = (classes(folder.path(), sampled(by("split"))).await, ROWS as u64 / 2);
    assert_eq!(all, expected(&[("train", train, half), ("val", val, half)]));
    let cap = SamplingFile { samples: Some(1000), repeat: false, ..by("split") };
    assert_eq!(classes(folder.path(), sampled(cap)).await, expected(&[("train", train, 1000), ("val", val, val)]));
    let found = view(folder.path(), &sampled(by("split"))).await.unwrap();
    let facts = JobSamples::View(found.set).facts(&manifest);
    assert_eq!((facts.samples, facts.documents, facts.blocks), (3000, 3000, u64::from(manifest.block_count())));

    let tarred = tempfile::tempdir().unwrap();
    let manifest = tar(tarred.path()).await;
    let packed = tarred.path().join("packed");
    let authors = classes(&packed, sampled(SamplingFile { samples: Some(9), ..by("json.meta.author") })).await;
    assert_eq!(authors, expected(&[("a0", 7, 9), ("a1", 7, 9), ("a2", 6, 9)]));
    // What another key leaves out is in no class.
    let wide = ViewFile { sampling: Some(by("cls")), ..filter("json.width >= 100 and cls != 2") };
    assert_eq!(classes(&packed, wide).await, expected(&[("0", 2, 3), ("1", 2, 3), ("3", 3, 3)]));
    let weighted =
        SamplingFile { samples: Some(10), weights: weights(&[("0", 2.5), ("2", 0.0), ("3", 0.01)]), ..by("cls") };
    let found = view(&packed, &sampled(weighted)).await.unwrap();
    let given: Vec<_> = sampling(&found).classes().iter().map(|class| (class.name.as_str(), class.given)).collect();
    assert_eq!(given, [("0", 25), ("1", 10), ("3", 1)]);
    assert_eq!((sampling(&found).kept().len(), sampling(&found).in_epoch()), (15, 36));
    let store = at(&packed);
    save_view(&store, &manifest, &found.set).await.unwrap();
    assert_eq!(open_view(&store, &manifest, found.samples).await.unwrap(), found.set);
}

#[tokio::test]
async fn what_makes_no_classes_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path()).await;
    let missing = (0..ROWS).filter(|row| nsfw(*row).is_none()).count();
    let tarred = tempfile::tempdir().unwrap();
    tar(tarred.path()).await;
    let (of_rows, packed) = (folder.path(), tarred.path().join("packed"));
    for (folder, file, said) in [
        (
            of_rows,
            sampled(by("label")),
            "`view.sampling.by` is `label`: no record has the field `label`; there are nsfw, picture, split, width, and `key`".to_owned(),
        ),
        (
            of_rows,
            sampled(by("nsfw")),
            format!("`view.sampling.by` is `nsfw`, and {missing} samples have no value of it; the first is record `"),
        ),
        (of_rows, sampled(by("nsfw")), "leave them out with `where = \"nsfw is not null\"`, or give them one".to_owned()),
        (&packed, sampled(by("json.meta")), "field `json.meta` is an object, of which members can be named".to_owned()),
        (
            &packed,
            sampled(SamplingFile { weights: weights(&[("4", 2.0)]), ..by("cls") }),
            "`view.sampling.weights` has `4`, and no sample has it in `cls`: there are 0, 1, 2, 3".to_owned(),
        ),
        (
            &packed,
            sampled(SamplingFile { weights: weights(&[("a9", 2.0)]), ..by("json.meta.author") }),
            "no sample has it in `json.meta.author`; did you mean `a".to_owned(),
        ),
        (
            &packed,
            sampled(SamplingFile { weights: weights(&[("0", 0.0), ("1", 0.0), ("2", 0.0), ("3", 0.0)]), ..by("cls") }),
            "`view.sampling.weights` is 0 for each class; give one at least more".to_owned(),
        ),
        (
            &packed,
            sampled(SamplingFile { samples: Some(1 << 40), ..by("cls") }),
            "`view.sampling.samples` and `weights` give an epoch of 4398046511104 samples; it can have 268435456".to_owned(),
        ),
    ] {
        let error = refused(folder, file).await;
        assert!(error.contains(&said), "{error}\n{said}");
    }
}
