//! Files in Parquet, and the indexes that are made of them.

use std::sync::Arc;

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, Int32Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_shard::format::{
    MadeIndex,
    parquet::{PagesByHeader, ParquetFooter, RowFacts},
};

use crate::indexes::{decoded_file, decoded_index, part};

/// Checks that a file whose footer makes an index can be read by it from end to end, whatever its pages are.
pub(crate) fn file(data: &[u8]) {
    let Some((rest, tail)) = data.split_at_checked(data.len().saturating_sub(8)) else { return };
    let Some(length) = tail.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else { return };
    let Some(start) = rest.len().checked_sub(length) else { return };
    let Ok(footer) = ParquetFooter::parse(&rest[start..], data.len() as u64) else { return };
    assert!(footer.page_index().iter().all(|range| range.end <= data.len() as u64));
    if let Ok(made) = made(&footer, data) {
        decoded_file("parquet", made, data);
    }
}

/// Makes the index of a file.
fn made(footer: &ParquetFooter, file: &[u8]) -> Result<MadeIndex, String> {
    let partitions = [("split".to_owned(), "train".to_owned())];
    footer.index(
        &|range| part(file, range),
        &PagesByHeader::default(),
        RowFacts { key_prefix: "split=train/rows/", partitions: &partitions, series: None },
        1 << 10,
    )
}

/// Checks that an index that opens can be read from end to end.
pub(crate) fn index(data: &[u8]) {
    decoded_index("parquet", data);
}

/// Returns files of a few rows with three columns, compressed and not.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let compressions = [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW];
    compressions
        .into_iter()
        .flat_map(|compression| [true, false].map(|dictionary| seed(compression, dictionary)))
        .collect()
}

fn seed(compression: Compression, dictionary: bool) -> Vec<u8> {
    let schema = "message rows { optional binary text; optional group scores (LIST) { repeated group list { required \
                  int32 element; } } optional group files (LIST) { repeated group list { optional binary element; } } }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(dictionary)
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(1)
        .build();
    let write = || {
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let mut column = group.next_column()?.expect("a column");
        let texts = ["", "ab", "ab", "a longer text"].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&[1, 1, 0, 1, 1]), None)?;
        column.close()?;
        let mut column = group.next_column()?.expect("a column");
        column.typed::<Int32Type>().write_batch(
            &[7, -7, 1 << 30],
            Some(&[2, 2, 1, 0, 2, 1]),
            Some(&[0, 1, 0, 0, 0, 0]),
        )?;
        column.close()?;
        let mut column = group.next_column()?.expect("a column");
        let files = ["ab", "", "ab"].map(ByteArray::from);
        let levels = (&[3, 3, 0, 1, 2, 3, 1], &[0, 1, 0, 0, 0, 1, 0]);
        column.typed::<ByteArrayType>().write_batch(&files, Some(levels.0), Some(levels.1))?;
        column.close()?;
        group.close()?;
        writer.into_inner()
    };
    write().expect("a file in memory")
}

/// Returns the indexes of the seeds.
pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let index = |file: Vec<u8>| {
        let (rest, tail) = file.split_at(file.len() - 8);
        let length = u32::from_le_bytes(*tail.first_chunk().expect("eight bytes")) as usize;
        let footer = ParquetFooter::parse(&rest[rest.len() - length..], file.len() as u64).expect("a footer");
        made(&footer, &file).expect("an index").index.to_vec()
    };
    seeds().into_iter().map(index).collect()
}
