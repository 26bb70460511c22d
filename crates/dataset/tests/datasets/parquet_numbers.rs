//! Numbers of Parquet that their column's type cannot hold: they have no value, and no other one.

use std::{fs, sync::Arc};

use bytes::Bytes;
use parquet::{
    data_type::{DataType, Int32Type, Int96, Int96Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{IndexOptions, index};
use spdl_shard::{
    format::{Array, FieldValue, OpenError},
    store::DatasetStore,
};
use spdl_types::DType;

/// Writes a file with one column, and returns what is read of each row.
async fn read_back<T: DataType>(column: &str, values: &[T::T]) -> Vec<Result<Option<FieldValue>, OpenError>> {
    let folder = tempfile::tempdir().unwrap();
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {column}; }}")).unwrap());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut written = group.next_column().unwrap().unwrap();
    written.typed::<T>().write_batch(values, None, None).unwrap();
    written.close().unwrap();
    group.close().unwrap();
    let file = Bytes::from(writer.into_inner().unwrap());
    fs::write(folder.path().join("a.parquet"), &file).unwrap();
    let store = DatasetStore::open(folder.path().to_str().unwrap()).unwrap();
    index(&store, &store, &IndexOptions::default(), &|_| {}).await.unwrap();
    let manifest = store.manifest().await.unwrap();
    let index = store.index(&manifest.shard(0)).await.unwrap();
    let whole = 0..index.shard_bytes();
    let pieces: Vec<_> = index.plan(&manifest.shard(0), std::slice::from_ref(&whole));
    let fetched = |range: std::ops::Range<u64>| {
        let part = pieces.iter().find(|part| part.at <= range.start)?;
        let place = part.range.start + (range.start - part.at);
        Some(file.slice(place as usize..(place + (range.end - range.start)) as usize))
    };
    let rows = index.decode(&[whole], &fetched).unwrap();
    (0..values.len() as u32).map(|row| rows.open(row, 0)).collect()
}

fn number(dtype: DType, elements: &[u8]) -> Result<Option<FieldValue>, OpenError> {
    Ok(Some(Array { dtype, shape: vec![], elements: Bytes::copy_from_slice(elements) }.into()))
}

fn outside(dtype: &str) -> Result<Option<FieldValue>, OpenError> {
    Err(OpenError::Malformed(format!("has a number outside the range of {dtype}")))
}

#[tokio::test]
async fn a_whole_number_is_within_the_type_that_its_column_states() {
    let values = [-129, -128, -1, 0, 127, 128, 255, 256, 65_535, 65_536, i32::MIN];
    for (kind, dtype, range) in [
        ("INT_8", DType::I8, -128..=127),
        ("UINT_8", DType::U8, 0..=255),
        ("INT_16", DType::I16, -32_768..=32_767),
        ("UINT_16", DType::U16, 0..=65_535),
    ] {
        let rows = read_back::<Int32Type>(&format!("required int32 n ({kind})"), &values).await;
        for (value, row) in values.iter().zip(rows) {
            let bytes = &value.to_le_bytes()[..dtype.bytes()];
            assert_eq!(
                row,
                if range.contains(value) { number(dtype, bytes) } else { outside(dtype.name()) },
                "{value}"
            );
        }
    }
    let rows = read_back::<Int32Type>("required int32 n (UINT_32)", &[-1]).await;
    assert_eq!(rows, [number(DType::U32, &u32::MAX.to_le_bytes())]);
}

#[tokio::test]
async fn a_time_of_96_bits_is_nanoseconds_or_no_value() {
    let time = |day: u32, nanoseconds: u64| Int96::from(vec![nanoseconds as u32, (nanoseconds >> 32) as u32, day]);
    // 1970-01-01, the last that 64 bits hold, which is on 2262-04-11, and 9999-12-31, which many tables have for "never".
    let of_day = |total: i64| total.rem_euclid(86_400_000_000_000) as u64;
    let last_day = 2_440_588 + 106_751;
    let values = [
        time(2_440_588, 7),
        time(last_day, of_day(i64::MAX)),
        time(last_day, of_day(i64::MAX) + 1),
        time(5_373_484, 0),
    ];
    let rows = read_back::<Int96Type>("required int96 t", &values).await;
    let [first, last] = [7, i64::MAX].map(|value| number(DType::I64, &value.to_le_bytes()));
    assert_eq!(rows, [first, last, outside("i64"), outside("i64")]);
}
