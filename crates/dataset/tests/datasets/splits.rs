//! Splits and chosen shards: what names say is for training, validation or tests is no dataset together unless that is meant.

use std::path::Path;

use spdl_dataset::{
    ClassOrder, DatasetError, DatasetReport, IndexOptions, PackOptions, PackSource, ShardList, Splits, index, pack,
};

use crate::{
    dataset::{at, quiet, write},
    hidden::shards,
};

async fn of(folder: &Path, to: &Path, options: &IndexOptions) -> Result<DatasetReport, DatasetError> {
    index(&at(folder), &at(to), options, &quiet).await
}

fn message(error: &DatasetError) -> String {
    format!("{error}; {}", error.hint().unwrap_or_default())
}

async fn urls(folder: &Path) -> Vec<String> {
    at(folder)
        .manifest()
        .await
        .unwrap()
        .shards()
        .map(|shard| shard.url.rsplit('/').next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn shards_of_several_splits_are_refused_with_the_ways_out_in_every_format() {
    for (name, shard) in shards() {
        let extension = name.split_once('.').unwrap().1;
        let folder = tempfile::tempdir().unwrap();
        let (dataset, to) = (folder.path().join("dataset"), |name: &str| folder.path().join(name));
        for name in ["train-0", "train-1", "val-0", "a/test", "more"] {
            write(dataset.join(format!("{name}.{extension}")), &shard);
        }
        let refused = of(&dataset, &dataset, &IndexOptions::default()).await.unwrap_err();
        let url = dataset.display();
        assert_eq!(
            message(&refused),
            format!(
                "`{url}` has several splits: test (1 shard), train (2 shards), validation (1 shard), of none (1 shard); give \
                 `--split NAME` for a dataset of one of them, or `--all-splits` for one of them all"
            )
        );
        for (split, expected) in
            [("train", &["train-0", "train-1"][..]), ("val", &["val-0"]), ("validation", &["val-0"])]
        {
            let options = IndexOptions { splits: Splits::Named(split.to_owned()), ..IndexOptions::default() };
            of(&dataset, &to(split), &options).await.unwrap();
            let expected: Vec<String> = expected.iter().map(|name| format!("{name}.{extension}")).collect();
            assert_eq!(urls(&to(split)).await, expected, "{name}");
        }
        let all = IndexOptions { splits: Splits::All, ..IndexOptions::default() };
        assert_eq!(of(&dataset, &to("all"), &all).await.unwrap().shards, 5);
        let chosen = ["train-1", "val-0"].map(|name| format!("{name}.{extension}")).to_vec();
        let chosen = IndexOptions { shards: ShardList::Named(chosen), ..IndexOptions::default() };
        assert_eq!(of(&dataset, &to("chosen"), &chosen).await.unwrap().shards, 2, "who names shards means them");
        let none = IndexOptions { splits: Splits::Named("extra".into()), ..IndexOptions::default() };
        let refused = of(&dataset, &to("none"), &none).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("`split` is `extra`, and no shard is of that split: test (1 shard), "),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn folders_of_splits_are_no_classes_unless_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("pictures");
    for name in ["train/cat/1.jpg", "val/cat/2.jpg", "val/dog/3.jpg"] {
        write(root.join(name), name);
    }
    let packed = |options: PackOptions, to: &str| {
        let to = at(&folder.path().join(to));
        async move { pack(&to, &options, &quiet).await }
    };
    let expected = format!(
        "in `{}`, folders that would be classes are called as splits: `train`, `val`; give one of the folders, for a dataset of \
         it; or `--all-splits` if they are the classes",
        root.display()
    );
    for source in [PackSource::of(&root), PackSource::StoredFolder(at(&root))] {
        let refused = packed(PackOptions::new(source.clone()), "refused").await.unwrap_err();
        assert_eq!(message(&refused), expected);
        let all = PackOptions { all_splits: true, ..PackOptions::new(source.clone()) };
        let kind_of_source = kind(&source);
        assert_eq!(packed(all, &format!("all-{kind_of_source}")).await.unwrap().class_names, ["train", "val"]);
        let given =
            PackOptions { classes: ClassOrder::Given(vec!["val".into(), "train".into()]), ..PackOptions::new(source) };
        assert_eq!(packed(given, &format!("given-{kind_of_source}")).await.unwrap().classes, 2);
    }
    let one = PackOptions::new(PackSource::of(&root.join("val")));
    assert_eq!(packed(one, "val").await.unwrap().class_names, ["cat", "dog"]);

    let refused = of(&root, &folder.path().join("index"), &IndexOptions::default()).await.unwrap_err();
    assert_eq!(message(&refused), expected);
    let named = IndexOptions { splits: Splits::Named("train".into()), ..IndexOptions::default() };
    let refused = of(&root, &folder.path().join("index"), &named).await.unwrap_err().to_string();
    assert_eq!(refused, "`split` is `train`, and is for shards of their own; here, give the folder of the split");
    let all = IndexOptions { splits: Splits::All, ..IndexOptions::default() };
    assert_eq!(of(&root, &folder.path().join("index"), &all).await.unwrap().class_names, ["train", "val"]);

    // A train is also a thing that pictures show.
    std::fs::rename(root.join("val"), root.join("bus")).unwrap();
    assert_eq!(packed(PackOptions::new(PackSource::of(&root)), "things").await.unwrap().class_names, ["bus", "train"]);
}

fn kind(source: &PackSource) -> &'static str {
    if matches!(source, PackSource::StoredFolder(_)) { "stored" } else { "folder" }
}

#[tokio::test]
async fn shards_are_chosen_by_braces_and_as_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, [(_, shard), ..]) = (folder.path().join("dataset"), shards());
    for name in [
        "train-000.tar",
        "train-001.tar",
        "train-010.tar",
        "a/train-000.tar",
        "val-000.tar",
        ".train-9.tar",
        "x[1].tar",
    ] {
        write(dataset.join(name), &shard);
    }
    for (number, (text, expected)) in [
        ("train-*", &["train-000.tar", "train-001.tar", "train-010.tar"][..]),
        ("train-{000..001}.tar", &["train-000.tar", "train-001.tar"]),
        ("train-01?.tar,{val,train}-000.tar", &["train-010.tar", "val-000.tar", "train-000.tar"]),
        ("train-001.tar,*-00[01].tar", &["train-001.tar", "train-000.tar", "val-000.tar"]),
        ("**/train-000.tar", &["a/train-000.tar", "train-000.tar"]),
        ("x[1].tar", &["x[1].tar"]),
    ]
    .into_iter()
    .enumerate()
    {
        let to = folder.path().join(number.to_string());
        let options = IndexOptions { shards: ShardList::of_texts(&[text.to_owned()]), ..IndexOptions::default() };
        of(&dataset, &to, &options).await.unwrap();
        let manifest = at(&to).manifest().await.unwrap();
        let found: Vec<&str> = manifest.shards().map(|shard| shard.url).collect();
        let found: Vec<&str> =
            found.iter().map(|url| url.rsplit_once("dataset/").map_or(*url, |(_, name)| name)).collect();
        assert_eq!(found, expected, "{text}");
    }
    for (text, problem) in [
        ("test-*", "`shards` has `test-*`, which matches none of the 7 objects in"),
        ("train-*,test-000.tar", "`shards` has `test-000.tar`, which is none of the 7 objects in"),
        ("train-000.tar,train-{000..001}.tar", "`shards` has `train-000.tar` twice"),
        ("../*.tar", "`shards` names `../*.tar`, which is not a path inside the dataset's folder"),
        ("a[.tar,*", "`shards` has `a[.tar`"),
    ] {
        let options = IndexOptions { shards: ShardList::of_texts(&[text.to_owned()]), ..IndexOptions::default() };
        let refused = of(&dataset, &folder.path().join("refused"), &options).await.unwrap_err().to_string();
        assert!(refused.starts_with(problem), "{text}: {refused}");
    }
}

#[tokio::test]
async fn folders_have_one_numbering_packed_in_a_store_and_as_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("pictures");
    for name in ["cat/1.jpg", "ant/1.jpg", "ant/x/2.jpg", "notes/README.txt"] {
        write(root.join(name), name);
    }
    std::fs::create_dir(root.join("bee")).unwrap();
    let classes_of = async |order: ClassOrder, name: &str| {
        let mut found = Vec::new();
        for source in [PackSource::of(&root), PackSource::StoredFolder(at(&root))] {
            let to = folder.path().join(format!("{name}-{}", kind(&source)));
            let options = PackOptions { classes: order.clone(), ..PackOptions::new(source) };
            found.push(pack(&at(&to), &options, &quiet).await);
        }
        let options = IndexOptions { classes: order, ..IndexOptions::default() };
        found.push(of(&root, &folder.path().join(name), &options).await);
        found
    };
    for report in classes_of(ClassOrder::ByName, "by-name").await {
        let report = report.unwrap();
        assert_eq!((report.records, report.class_names), (3, vec!["ant".to_owned(), "cat".to_owned()]));
    }
    let packed =
        pack(&at(&folder.path().join("noted")), &PackOptions::new(PackSource::of(&root)), &quiet).await.unwrap();
    for name in ["bee", "notes"] {
        let note = format!("folder `{name}` has no picture, and is no class; `--classes` gives it a number");
        assert!(packed.notes.contains(&note), "{:?}", packed.notes);
    }
    let of_training = ClassOrder::of_dataset(&at(&folder.path().join("by-name"))).await.unwrap();
    assert_eq!(of_training, ClassOrder::Given(vec!["ant".into(), "cat".into()]));
    let list = folder.path().join("classes.txt");
    write(&list, "# of all\r\n\ncat\nbee \nant\nnotes\n");
    let of_file = ClassOrder::of_file(&list).unwrap();
    for report in classes_of(of_file, "of-file").await {
        assert_eq!(report.unwrap().class_names, ["cat", "bee", "ant", "notes"]);
    }
    for report in classes_of(ClassOrder::Numeric, "numeric").await {
        let refused = report.unwrap_err().to_string();
        assert_eq!(refused, "`classes` are to be in the order of their numbers, and `ant` is not a whole number");
    }

    std::fs::remove_dir_all(&root).unwrap();
    for name in ["0", "1", "10", "100", "11", "2"] {
        write(root.join(name).join("1.jpg"), name);
    }
    for report in classes_of(ClassOrder::ByName, "digits").await {
        let report = report.unwrap();
        assert_eq!(report.class_names, ["0", "1", "10", "100", "11", "2"]);
        let note = "classes are numbered by their names, so that `100` is class 3 and `11` is class 4; ";
        let noted = report.notes.iter().filter(|text| text.starts_with(note)).count();
        assert_eq!(noted, 1, "{:?}", report.notes);
    }
    for report in classes_of(ClassOrder::Numeric, "numbers").await {
        let report = report.unwrap();
        assert_eq!((report.class_names.join(" "), report.notes), ("0 1 2 10 11 100".to_owned(), vec![]));
    }
}
