//! Datasets from lists of files, with labels and annotations.

use super::*;

#[tokio::test]
async fn a_list_gives_labels_as_numbers_or_as_names_of_classes() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "d.e/a.png", "a.b.jpg", "a_b.JPEG"] {
        write(folder.path().join(name), name);
    }
    let list = folder.path().join("list.txt");
    let mut options = PackOptions::new(PackSource::FileList(list.clone()));
    options.order = PackOrder::AsListed;
    let labels = |records: Vec<IndexedRecord>| -> Vec<(String, String, String)> {
        let label = |field: Option<&(String, Vec<u8>)>| field.map(|field| String::from_utf8(field.1.clone()).unwrap());
        let row = |fields: Vec<(String, Vec<u8>)>| (fields[0].0.clone(), label(fields.get(1)).unwrap_or_default());
        records.into_iter().map(|(_, key, _, fields)| (key, row(fields))).map(|(k, (f, l))| (k, f, l)).collect()
    };
    let expected = |labels: [&str; 4]| {
        let rows = [("a", "jpg"), ("d.e/a", "png"), ("a_b", "jpg"), ("a_b~1", "jpg")];
        let rows = rows.into_iter().zip(labels);
        rows.map(|((key, field), label)| (key.into(), field.into(), label.into())).collect::<Vec<(String, _, _)>>()
    };

    write(&list, "# numbers\na.jpg\t7\n\nd.e/a.png\t-1\r\n./a.b.jpg\t7\na_b.JPEG\t0\n");
    let report = packed(&options, &folder.path().join("numbers")).await.unwrap();
    assert_eq!(report.classes, 0);
    assert_eq!(labels(records(&folder.path().join("numbers")).await), expected(["7", "-1", "7", "0"]));

    write(&list, "a.jpg\tx\nd.e/a.png\t3\na.b.jpg\ta b\na_b.JPEG\tx\n");
    packed(&options, &folder.path().join("names")).await.unwrap();
    assert_eq!(labels(records(&folder.path().join("names")).await), expected(["2", "0", "1", "2"]));

    // As ImageNet's and Caffe's lists have it.
    write(&list, "a.jpg 7\nd.e/a.png  -1\n./a.b.jpg 7\na_b.JPEG 0\n");
    packed(&options, &folder.path().join("spaces")).await.unwrap();
    assert_eq!(labels(records(&folder.path().join("spaces")).await), expected(["7", "-1", "7", "0"]));

    write(&list, "a.jpg\nd.e/a.png\n./a.b.jpg\na_b.JPEG\n");
    packed(&options, &folder.path().join("none")).await.unwrap();
    assert_eq!(labels(records(&folder.path().join("none")).await), expected(["", "", "", ""]));
}

#[tokio::test]
async fn a_list_that_makes_no_sense_is_an_error_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    write(folder.path().join("a.jpg"), "x");
    for (text, expected) in [
        ("a.jpg\t1\na.jpg\n", "list.txt:2` has no label"),
        ("a.jpg\na.jpg\t1\n", "list.txt:2` has no label, or is the first with one"),
        ("a.jpg\t\n", "list.txt:1` has no label"),
        ("a.jpg\nREADME\n", "list.txt:2` names `README`"),
        ("file,label\na.jpg,1\n", "list.txt:1` has commas; a list has a path on each line, and a label behind a tab"),
        ("a.jpg,1\n", "`spdl-ctl index FOLDER --table TABLE.tsv`"),
        ("a.jpg cat\n", "list.txt:1` names `a.jpg cat`; if that is a path and a label, divide them by a tab"),
        ("gone.jpg\n", "gone.jpg` does not exist"),
        ("\n# nothing\n", "there is nothing in"),
    ] {
        write(&list, text);
        let error = packed(&PackOptions::new(PackSource::FileList(list.clone())), &folder.path().join("out")).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
        assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 0, "nothing is left of it");
    }
    let mut options = PackOptions::new(PackSource::FileList(list.clone()));
    options.classes = ClassOrder::Given(vec!["one".into()]);
    for (text, expected) in [("a.jpg\tx\n", "list.txt:1` has the class `x`"), ("a.jpg\t1\n", "has the label 1")] {
        write(&list, text);
        let error = packed(&options, &folder.path().join("out")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[tokio::test]
async fn annotated_pictures_have_a_sample_per_object() {
    let folder = tempfile::tempdir().unwrap();
    let (root, notes) = (folder.path().join("JPEGImages"), folder.path().join("Annotations"));
    for (name, xml) in [
        ("1", Some(annotation(&["dog", "cat"]))),
        ("2", Some(annotation(&[]))),
        ("3", None),
        ("4", Some("<annotation><object/></annotation>".to_owned())),
        ("5", Some(annotation(&["dog", "owl", "dog"]))),
    ] {
        write(root.join(format!("{name}.jpg")), "picture");
        if let Some(xml) = xml {
            write(notes.join(format!("{name}.xml")), &xml);
            write(root.join(format!("{name}.xml")), &xml);
        }
    }
    let list = folder.path().join("list.txt");
    write(&list, (1..=5).map(|name| format!("JPEGImages/{name}.jpg\n")).collect::<String>());
    for (place, annotations) in [("under", Annotations::Under(notes)), ("beside", Annotations::Beside)] {
        let to = folder.path().join(place);
        let mut options = PackOptions::new(PackSource::FileList(list.clone()));
        options.annotations = Some(annotations);
        options.order = PackOrder::AsListed;
        let report = packed(&options, &to).await.unwrap();
        assert_eq!((report.records, report.samples, report.classes), (4, 5, 3));
        assert_eq!((report.records_without_samples, report.bad_annotations), (2, 1));
        assert_eq!(report.pictures_without_annotation, 1);
        assert!(report.notes.iter().any(|note| note.contains("3.jpg` has no annotation")), "{:?}", report.notes);
        assert!(report.notes.iter().any(|note| note.contains("record `JPEGImages/4`: object 0")), "{:?}", report.notes);
        let samples: Vec<_> = records(&to).await.into_iter().map(|(_, _, samples, _)| samples).collect();
        assert_eq!(samples, [2, 0, 0, 3]);
        let manifest = at(&to).manifest().await.unwrap();
        assert_eq!(manifest.classes().collect::<Vec<_>>(), ["cat", "dog", "owl"]);
        assert_eq!(verified(&to).await.faults, []);

        // The shards alone give the same result: indexing them again gives the same dataset.
        let again = IndexOptions { boxes: Some("xml".into()), overwrite: Overwrite::Replace, ..Default::default() };
        assert_eq!(indexed(&to, &again).await.unwrap().fingerprint, report.fingerprint);
    }
}
