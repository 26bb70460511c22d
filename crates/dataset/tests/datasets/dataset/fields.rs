//! Records of several files: which files of a folder become which field, and which are left out.

use spdl_dataset::{Against, FieldChoice, LeftOut, LeftOutReason, VerifyOptions};

use super::*;

/// Writes pictures with a mask and a caption each, and other files that occur in such a folder.
fn segmentation(root: &Path) {
    for (class, number) in [("cat", 0), ("cat", 1), ("dog", 0)] {
        write(root.join(class).join(format!("{number}.jpg")), format!("{class} {number}"));
        write(root.join(class).join(format!("{number}.PNG")), format!("mask of {class} {number}"));
        write(root.join(class).join(format!("{number}.txt")), format!("a {class}"));
    }
    write(root.join("cat/0.depth.png"), "depth of cat 0");
    write(root.join("dog/2.jpg"), "dog 2");
    write(root.join("dog/notes.txt"), "no picture has this stem");
    write(root.join("dog/0.cls"), "7");
    write(root.join("README.md"), "outside");
}

fn names(found: &[IndexedRecord]) -> Vec<String> {
    let mut names: Vec<String> = found
        .iter()
        .map(|(_, key, _, fields)| {
            let fields: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
            format!("{key}: {}", fields.join(" "))
        })
        .collect();
    names.sort();
    names
}

fn left_out(report: &DatasetReport) -> Vec<(&str, LeftOutReason, u64)> {
    let mut left: Vec<_> =
        report.left_out.iter().map(|LeftOut { suffix, why, files, .. }| (&**suffix, *why, *files)).collect();
    left.sort_unstable();
    left
}

#[tokio::test]
async fn files_with_one_stem_are_one_record_that_keeps_every_field_and_the_report_lists_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    segmentation(&root);
    let options = PackOptions::new(PackSource::ImageFolder(root.clone()));
    let report = packed(&options, &to).await.unwrap();
    assert_eq!((report.records, &report.class_names), (4, &vec!["cat".to_owned(), "dog".to_owned()]));
    let fields: Vec<(&str, u64)> = report.fields.iter().map(|(name, records)| (name.as_str(), *records)).collect();
    assert_eq!(fields, [("cls", 4), ("depth.png", 1), ("jpg", 4), ("png", 3), ("txt", 3)]);
    let expected = [
        (".cls", LeftOutReason::FieldTaken, 1),
        (".md", LeftOutReason::NoClass, 1),
        (".txt", LeftOutReason::NoPicture, 1),
    ];
    assert_eq!((left_out(&report), report.skipped_files), (expected.to_vec(), 3));
    let found = records(&to).await;
    let expected =
        ["cat/0: png cls jpg depth.png txt", "cat/1: png cls jpg txt", "dog/0: png cls jpg txt", "dog/2: jpg cls"];
    assert_eq!(names(&found), expected);
    let cat = found.iter().find(|(_, key, ..)| key == "cat/0").unwrap();
    let content = |name: &str| cat.3.iter().find(|(field, _)| field == name).unwrap().1.clone();
    assert_eq!((content("jpg"), content("depth.png")), (b"cat 0".to_vec(), b"depth of cat 0".to_vec()));
    assert_eq!((content("txt"), content("cls")), (b"a cat".to_vec(), b"0".to_vec()));

    // Every field is compared with its file.
    let against =
        |fields| VerifyOptions { against: Some(Against::Files(options.source.clone())), fields, ..Default::default() };
    let compared = verify(&at(&to), &against(None), &quiet).await.unwrap();
    assert_eq!((compared.faults, compared.same_pictures, compared.same_fields), (vec![], 8, 7));
    write(root.join("cat/1.txt"), "another caption");
    let compared = verify(&at(&to), &against(None), &quiet).await.unwrap();
    assert!(compared.faults.len() == 1 && compared.faults[0].problem.starts_with("field `txt` has other bytes"));
}

/// A source that was packed before records could have several files is packed to the same bytes.
#[tokio::test]
async fn a_folder_of_pictures_alone_gives_the_bytes_that_it_always_gave() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("in");
    for number in 0..8 {
        write(root.join(format!("ant/p{number:02}.JPEG")), format!("ant {number}").repeat(50));
        write(root.join(format!("cat/deep/img_0.{number}.png")), format!("cat {number}").repeat(70));
    }
    for (name, content) in [("a.jpg", "one"), ("a.jpeg", "two"), ("grace.hopper.jpeg", "three")] {
        write(root.join("cat").join(name), content);
    }
    let report = packed(&PackOptions::new(PackSource::ImageFolder(root)), &folder.path().join("out")).await.unwrap();
    assert_eq!(report.fingerprint.to_string(), "77250545d07311b60765ebfdd516cde0");
}

#[tokio::test]
async fn fields_are_chosen_and_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    segmentation(&root);
    let mut options = PackOptions::new(PackSource::ImageFolder(root));
    options.fields = Some(FieldChoice::parse("jpg,png=mask").unwrap());
    let report = packed(&options, &to).await.unwrap();
    let expected = ["cat/0: mask cls jpg", "cat/1: mask cls jpg", "dog/0: mask cls jpg", "dog/2: jpg cls"];
    assert_eq!(names(&records(&to).await), expected);
    let expected = [
        (".cls", LeftOutReason::NotChosen, 1),
        (".md", LeftOutReason::NoClass, 1),
        (".png", LeftOutReason::NotChosen, 1),
        (".txt", LeftOutReason::NoPicture, 1),
        (".txt", LeftOutReason::NotChosen, 3),
    ];
    assert_eq!(left_out(&report), expected);
    let options = VerifyOptions {
        against: Some(Against::Files(options.source)),
        fields: options.fields,
        ..VerifyOptions::default()
    };
    let compared = verify(&at(&to), &options, &quiet).await.unwrap();
    assert_eq!((compared.faults, compared.same_pictures), (vec![], 7));
}

#[tokio::test]
async fn a_list_makes_one_record_of_files_with_one_stem_and_one_label() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["0.jpg", "0.png", "1.jpg", "1.txt", "a/1.txt"] {
        write(folder.path().join(name), name);
    }
    let list = folder.path().join("list.txt");
    write(&list, "\u{feff}# with a byte order mark\n0.jpg\tx\n0.png\tx\n1.jpg\tx\n1.txt\ty\na/1.txt\ty\n");
    let options = PackOptions { order: PackOrder::AsListed, ..PackOptions::new(PackSource::FileList(list.clone())) };
    packed(&options, &folder.path().join("out")).await.unwrap();
    let expected = ["0: jpg cls png", "1: jpg cls", "1~1: txt cls", "a/1: txt cls"];
    assert_eq!(names(&records(&folder.path().join("out")).await), expected);

    for (text, expected) in [
        ("0.jpg\t1.5\n", "list.txt:1` has the label `1.5`; labels are whole numbers or names of classes"),
        (
            "0.jpg\t1\n1.jpg\t12345678901234567890\n",
            "list.txt:2` has the label `12345678901234567890`, which is beyond",
        ),
    ] {
        write(&list, text);
        let error = packed(&options, &folder.path().join("none")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    write(&list, [&b"\xff\xfe"[..], &b"0\0.\0j\0p\0g\0"[..]].concat());
    let error = packed(&options, &folder.path().join("none")).await.unwrap_err().to_string();
    assert!(error.contains("list.txt` is UTF-16; save it as UTF-8"), "{error}");
}

#[tokio::test]
async fn coco_annotations_beside_the_pictures_are_reported_as_unread() {
    let folder = tempfile::tempdir().unwrap();
    let coco = r#"{"info": {}, "licenses": [], "images": [{"id": 1, "file_name": "1.jpg"}], "annotations": []}"#;
    write(folder.path().join("coco/train2017/1.jpg"), "picture");
    write(folder.path().join("coco/annotations/instances_train2017.json"), coco);
    let source = PackOptions::new(PackSource::ImageFolder(folder.path().join("coco")));
    let report = packed(&source, &folder.path().join("out")).await.unwrap();
    let (classes, notes) = (report.class_names, report.notes);
    assert_eq!(classes, ["train2017"]);
    let none = "folder `annotations` has no picture, and is no class; `--classes` gives it a number";
    assert!(notes.iter().any(|note| note == none), "{notes:?}");
    let coco = "annotations/instances_train2017.json` has COCO annotations, which were not used";
    assert!(notes.iter().any(|note| note.contains(coco)), "{notes:?}");

    let flat = PackOptions::new(PackSource::ImageFolder(folder.path().join("coco/train2017")));
    let error = packed(&flat, &folder.path().join("flat")).await.unwrap_err().to_string();
    for part in ["train2017`: a folder per class", "1 `.jpg` file", "move them into a folder per class"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_folder_of_tables_is_distinguished_from_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    for suffix in ["arrow", "parquet"] {
        for number in 0..2 {
            write(folder.path().join(format!("{suffix}/part-{number}.{suffix}")), "PAR1");
        }
    }
    let folder_of = |suffix: &str| PackOptions::new(PackSource::ImageFolder(folder.path().join(suffix)));
    let packing = packed(&folder_of("arrow"), &folder.path().join("out")).await.unwrap_err().to_string();
    let indexing = indexed(&folder.path().join("arrow"), &Default::default()).await.unwrap_err().to_string();
    for error in [packing, indexing] {
        for part in ["there is nothing in", "it contains: 2 `.arrow` files", "tables are not read yet: write their"] {
            assert!(error.contains(part), "{error}");
        }
    }
    let packing = packed(&folder_of("parquet"), &folder.path().join("out")).await.unwrap_err().to_string();
    assert!(packing.contains("`spdl-ctl index` makes a dataset of Parquet files as they are"), "{packing}");
    let indexing = indexed(&folder.path().join("parquet"), &Default::default()).await.unwrap_err().to_string();
    assert!(indexing.contains("part-0.parquet` is no Parquet file: it has 4 bytes"), "{indexing}");
}

#[tokio::test]
async fn who_packs_what_is_indexed_as_it_is_learns_so() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("a.tar", "WebDataset"),
        ("a.tar.gz", "compressed tars"),
        ("a.tfrecord", "TFRecord"),
        ("a.array_record", "ArrayRecord"),
        ("a.mds", "MDS"),
    ];
    for (name, format) in cases {
        let source = folder.path().join(format);
        write(source.join("train").join(name), "-");
        let options = PackOptions::new(PackSource::ImageFolder(source));
        let error = packed(&options, &folder.path().join("out")).await.unwrap_err().to_string();
        assert!(error.contains("`spdl-ctl index`") && error.contains(format), "{error}");
    }
}

#[tokio::test]
async fn pipes_and_devices_are_neither_opened_nor_packed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    image_folder(&root, 1);
    let made = std::process::Command::new("mkfifo").arg(root.join("cat/pipe.jpg")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", root.join("cat/zero.jpg")).unwrap();
    let report = packed(&PackOptions::new(PackSource::ImageFolder(root.clone())), &to).await.unwrap();
    assert_eq!(report.records, 3);
    assert!(left_out(&report).contains(&(".jpg", LeftOutReason::NotRegular, 2)), "{report:?}");

    let list = folder.path().join("list.txt");
    for name in ["in/cat/pipe.jpg", "in/cat/zero.jpg"] {
        write(&list, format!("in/cat/p00.JPEG\n{name}\n"));
        let error = packed(&PackOptions::new(PackSource::FileList(list.clone())), &folder.path().join("none")).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("{name}` is not a regular file")), "{error}");
        assert_eq!(fs::read_dir(folder.path().join("none")).unwrap().count(), 0, "nothing is left of it");
    }
}

#[tokio::test]
async fn a_class_that_cannot_be_named_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (root, to) = (folder.path().join("in"), folder.path().join("out"));
    image_folder(&root, 2);
    write(root.join("a\tb/1.jpg"), "picture");
    // The error comes before any file is read: a user with a million pictures sees it at once.
    let progress = |progress| panic!("{progress:?}");
    let error =
        pack(&at(&to), &PackOptions::new(PackSource::ImageFolder(root)), &progress).await.unwrap_err().to_string();
    assert!(error.contains("`a\\tb` cannot be a class's name"), "{error}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);

    // An invalid class in an annotation is the fault of that record only.
    write(folder.path().join("voc/x/1.jpg"), "picture");
    write(folder.path().join("voc/x/1.xml"), annotation(&["do\tg"]));
    write(folder.path().join("voc/x/2.jpg"), "picture");
    write(folder.path().join("voc/x/2.xml"), annotation(&["dog"]));
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.path().join("voc")));
    options.annotations = Some(Annotations::Beside);
    let report = packed(&options, &to).await.unwrap();
    assert_eq!((report.samples, report.bad_annotations), (1, 1), "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("`do\\tg` cannot be a class's name")), "{:?}", report.notes);
}

#[tokio::test]
async fn a_folder_that_links_to_itself_is_an_error_that_names_the_link() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("in/cat/1.jpg"), "picture");
    std::os::unix::fs::symlink("..", folder.path().join("in/cat/up")).unwrap();
    let root = folder.path().join("in");
    let error = indexed(&root, &IndexOptions::default()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("holds a link to a folder around it") && text.contains("in/cat/up"), "{text}");
    assert!(!error.is_retryable());
    let error = packed(&PackOptions::new(PackSource::ImageFolder(root)), &folder.path().join("out")).await.unwrap_err();
    assert!(error.to_string().contains("is a link to a folder around it"), "{error}");
}

#[tokio::test]
async fn pictures_with_one_stem_are_noted_and_those_of_unread_formats_are_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["cat/1.jpg", "cat/1.png", "cat/2.jpg", "cat/2.seg.png", "cat/3.jxl", "dog/4.JP2", "dog/5.webp"] {
        write(path("in").join(name), name);
    }
    let note = "`cat/1` is one sample with the pictures `jpg`, `png`, as others with one stem are; pictures that are samples of their \
                own need other names";
    let packed = packed(&PackOptions::new(PackSource::ImageFolder(path("in"))), &path("out")).await.unwrap();
    let indexed = indexed(&path("in"), &IndexOptions::default()).await.unwrap();
    for report in [packed, indexed] {
        assert_eq!((report.records, &report.notes[..]), (3, &[note.to_owned()][..]));
        let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.why, entry.example.as_str())).collect();
        let unread = LeftOutReason::UnreadPicture;
        assert_eq!(left_out, [(unread, "dog/4.JP2"), (unread, "cat/3.jxl")]);
        assert!(unread.text().contains("JPEG XL and JPEG 2000"));
    }
    fs::remove_dir_all(path("in")).unwrap();
    write(path("in/cat/3.jxl"), "picture");
    let error = pack(&at(&path("none")), &PackOptions::new(PackSource::ImageFolder(path("in"))), &quiet).await;
    assert!(error.unwrap_err().to_string().contains("JPEG XL and JPEG 2000 are not read"));
    write(path("flat/1.jpg"), "picture");
    let error = pack(&at(&path("none")), &PackOptions::new(PackSource::ImageFolder(path("flat"))), &quiet).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("`spdl-ctl index` reads pictures that lie in no folder of a class where they are"),
        "{error}"
    );
}
