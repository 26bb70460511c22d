//! What a report says of fields that some records lack: the number of those that have them, or that nobody has counted.

use std::{fs, path::Path, sync::Arc};

use parquet::{
    data_type::Int64Type,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use spdl_dataset::{DatasetReport, IndexOptions, index};
use spdl_shard::store::DatasetStore;

const SCHEMA: &str = "message rows { required int64 id; optional int64 half; optional group image { optional int64 bytes; } \
                      optional group scores (LIST) { repeated group list { required int64 element; } } }";

async fn indexed(folder: &Path) -> DatasetReport {
    let store = DatasetStore::open(folder.to_str().unwrap()).unwrap();
    index(&store, &store, &IndexOptions::default(), &|_| {}).await.unwrap()
}

/// Writes two row groups of six rows. Of `half`, every second row has a value, of `image` there is no value in the first row of a
/// group and no picture in the second, and every row has a list.
fn written(statistics: EnabledStatistics) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_statistics_enabled(statistics).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for _ in 0..2 {
        let mut group = writer.next_row_group().unwrap();
        for (values, definitions, repetitions) in [
            (6, None, None),
            (3, Some([0, 1, 0, 1, 0, 1]), None),
            (4, Some([0, 1, 2, 2, 2, 2]), None),
            (6, Some([2; 6]), Some([0; 6])),
        ] {
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<i64> = (0..values).collect();
            let [definitions, repetitions] =
                [&definitions, &repetitions].map(|levels| levels.as_ref().map(|levels| &levels[..]));
            column.typed::<Int64Type>().write_batch(&values, definitions, repetitions).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[tokio::test]
async fn rows_that_have_a_column_of_parquet_are_counted_where_the_file_says_how_many_lack_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.parquet"), written(EnabledStatistics::Chunk)).unwrap();
    let report = indexed(folder.path()).await;
    let expected = [("half", 6), ("id", 12), ("image.bytes", 8), ("scores", 12)];
    assert_eq!(report.fields, expected.map(|(name, rows)| (name.to_owned(), rows)).into());
    assert_eq!(report.uncounted_fields, ["scores".to_owned()].into(), "of lists, elements are counted");
    // A second file without statistics.
    fs::remove_dir_all(folder.path()).unwrap();
    fs::create_dir(folder.path()).unwrap();
    fs::write(folder.path().join("a.parquet"), written(EnabledStatistics::Chunk)).unwrap();
    fs::write(folder.path().join("b.parquet"), written(EnabledStatistics::None)).unwrap();
    let report = indexed(folder.path()).await;
    let expected = [("half", 18), ("id", 24), ("image.bytes", 20), ("scores", 24)];
    assert_eq!(report.fields, expected.map(|(name, rows)| (name.to_owned(), rows)).into());
    assert_eq!(report.uncounted_fields, ["half", "image.bytes", "scores"].map(str::to_owned).into());
}
