//! Footers of Parquet that say more than the columns: what others can read is read, and what is encrypted is left out with a note.

use std::{fs, sync::Arc};

use parquet::{
    data_type::Int64Type,
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{DatasetError, DatasetReport, IndexOptions, index};
use spdl_shard::{format::parquet::ParquetFooter, store::DatasetStore};

async fn indexed(file: &[u8]) -> Result<DatasetReport, DatasetError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.parquet"), file).unwrap();
    let store = DatasetStore::open(folder.path().to_str().unwrap()).unwrap();
    index(&store, &store, &IndexOptions::default(), &|_| {}).await
}

#[tokio::test]
async fn an_encrypted_column_is_no_field_and_the_report_says_so() {
    let report = indexed(include_bytes!("../golden/encrypted.parquet")).await.unwrap();
    assert_eq!(report.records, 6);
    assert_eq!(report.fields.keys().collect::<Vec<_>>(), ["image.path", "label"]);
    let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
    assert!(note.contains("column `image.bytes` of `a.parquet` is left out: it is encrypted"), "{note}");
}

#[tokio::test]
async fn metadata_of_other_programs_need_not_be_text() {
    let schema = Arc::new(parse_message_type("message rows { required int64 id; }").unwrap());
    let properties = WriterProperties::builder()
        .set_created_by("somebody's".to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("their key".to_owned(), "their value".to_owned())]))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    let file = writer.into_inner().unwrap();
    let place = |text: &str| file.windows(text.len()).rposition(|bytes| bytes == text.as_bytes()).unwrap();
    for text in ["their key", "their value", "somebody's"] {
        let mut odd = file.clone();
        odd[place(text)] = 0xff;
        assert_eq!(indexed(&odd).await.unwrap().records, 3, "{text}");
    }
    // A footer that is cut off is none.
    let mut damaged = file.clone();
    damaged[place("their key") - 3..].fill(0x7f);
    damaged[file.len() - 8..].copy_from_slice(&file[file.len() - 8..]);
    let error = indexed(&damaged).await.unwrap_err().to_string();
    assert!(error.contains("has a damaged footer"), "{error}");
}

#[test]
fn a_field_that_a_program_had_before_it_was_defined_is_passed_over() {
    // A column `id` of 3 rows. Dremio put a list of structs into field 15 of a chunk, which became the length of a Bloom filter.
    let footer = |of_dremio: &[u8]| {
        let schema = b"\x15\x02\x19\x2c\x48\x04root\x15\x02\0\x15\x04\x25\0\x18\x02id\0\x16\x06";
        let chunk =
            b"\x19\x1c\x19\x1c\x26\x08\x1c\x15\x04\x19\x15\0\x19\x18\x02id\x15\0\x16\x06\x16\x64\x16\x64\x26\x08";
        [&schema[..], chunk, of_dremio, b"\0\0\x16\x64\x16\x06\0\0"].concat()
    };
    for field in [&b""[..], b"\x69\x1c\x1c\x1c\x15\0\0\0\0"] {
        let footer = ParquetFooter::parse(&footer(field), 1000).unwrap();
        assert_eq!(footer.left_out().count(), 0);
    }
    for length in 1..footer(b"").len() {
        ParquetFooter::parse(&footer(b"")[..length], 1000).expect_err("it is cut off");
    }
}
