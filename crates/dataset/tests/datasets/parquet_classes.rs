//! The names of classes that Parquet files state, as Hugging Face `datasets` writes them.

use std::{fs, path::Path, sync::Arc};

use parquet::{
    data_type::Int64Type,
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{ClassOrder, DatasetReport, IndexOptions, Overwrite, index, view::evaluate};
use spdl_job::ViewFile;

use crate::files::at;

/// Writes four rows of the labels 0, 1, 0, 1, whose metadata has these features.
fn write(folder: &Path, name: &str, features: &str) {
    let features = format!("{{\"info\": {{\"features\": {{{features}}}}}}}");
    let metadata = vec![KeyValue::new("huggingface".to_owned(), features)];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
    let schema = Arc::new(parse_message_type("message rows { required int64 label; }").unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[0, 1, 0, 1], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    fs::write(folder.join(name), writer.into_inner().unwrap()).unwrap();
}

fn feature(field: &str, names: &[&str]) -> String {
    format!("\"{field}\": {{\"_type\": \"ClassLabel\", \"names\": {}}}", serde_json::json!(names))
}

async fn indexed(folder: &Path, given: &[&str]) -> DatasetReport {
    let classes = match given {
        [] => ClassOrder::ByName,
        given => ClassOrder::Given(given.iter().map(|class| (*class).to_owned()).collect()),
    };
    let options = IndexOptions { classes, overwrite: Overwrite::Replace, ..IndexOptions::default() };
    index(&at(folder), &at(folder), &options, &|_| {}).await.unwrap()
}

#[tokio::test]
async fn the_classes_of_a_file_are_the_dataset_s_in_the_order_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.parquet", &feature("label", &["zebra", "ant"]));
    write(folder.path(), "b.parquet", &feature("label", &["zebra", "ant"]));
    let report = indexed(folder.path(), &[]).await;
    assert_eq!((report.class_names, report.notes), (vec!["zebra".to_owned(), "ant".to_owned()], vec![]));
    let manifest = at(folder.path()).manifest().await.unwrap();
    assert_eq!(manifest.classes().collect::<Vec<_>>(), ["zebra", "ant"]);
    for (text, expected) in [("label == 'ant'", &[1, 3, 5, 7][..]), ("label in ['zebra']", &[0, 2, 4, 6])] {
        let view = ViewFile { filter: Some(text.to_owned()), ..ViewFile::default() };
        let view = evaluate(&at(folder.path()), &manifest, &view, 0, &|_| ()).await.unwrap().set;
        let kept: Vec<u64> = (0..view.kept().len()).map(|nth| view.kept().select(nth).0).collect();
        assert_eq!(kept, expected, "{text}");
    }
    let wrong = ViewFile { filter: Some("label in ['ant', 'zebrra']".to_owned()), ..ViewFile::default() };
    let error = evaluate(&at(folder.path()), &manifest, &wrong, 0, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("`zebrra` is none of the dataset's classes; did you mean `zebra`?"), "{error}");
}

#[tokio::test]
async fn files_that_disagree_state_no_classes_and_given_ones_come_first() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.parquet", &feature("label", &["zebra", "ant"]));
    write(folder.path(), "b.parquet", &feature("label", &["ant", "zebra"]));
    let report = indexed(folder.path(), &[]).await;
    assert_eq!(report.class_names, [""; 0]);
    assert!(report.notes[0].contains("different classes of field `label`, such as `b.parquet`"), "{:?}", report.notes);

    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.parquet", &feature("label", &["zebra", "ant"]));
    let report = indexed(folder.path(), &["ant", "zebra"]).await;
    assert_eq!(report.class_names, ["ant", "zebra"]);
    assert!(report.notes[0].contains("class 0 is `zebra`, and not `ant`"), "{:?}", report.notes);
}

#[tokio::test]
async fn of_several_fields_that_of_the_label_is_taken() {
    let [of_label, of_two] = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let (fine, coarse) = (feature("fine", &["ant", "bee", "cat"]), feature("coarse", &["insect", "mammal"]));
    write(of_label.path(), "a.parquet", &format!("{coarse}, {}", feature("label", &["ant", "bee"])));
    assert_eq!(indexed(of_label.path(), &[]).await.class_names, ["ant", "bee"]);
    write(of_two.path(), "a.parquet", &format!("{coarse}, {fine}"));
    let report = indexed(of_two.path(), &[]).await;
    assert_eq!(report.class_names, [""; 0]);
    assert!(report.notes[0].contains("classes of the fields `coarse`, `fine`"), "{:?}", report.notes);
    let twice = tempfile::tempdir().unwrap();
    write(twice.path(), "a.parquet", &feature("label", &["ant", "ant"]));
    let report = indexed(twice.path(), &[]).await;
    assert!(report.class_names.is_empty() && report.notes[0].contains("two classes are called `ant`"), "{report:?}");
}
