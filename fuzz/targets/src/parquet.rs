//! Files in Parquet, and the indexes that are made of them.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, Int32Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_shard::{
    format::{
        ShardIndex, format_called,
        parquet::{FileIndex, Footer, PagesByHeader, RowFacts},
    },
    manifest::{Manifest, ManifestBuilder, ShardFacts},
};
use spdl_types::Fingerprint;

use crate::files::with_checksum;

/// Checks that a file whose footer makes an index can be read by it from end to end, whatever its pages are.
pub(crate) fn file(data: &[u8]) {
    let Some((rest, tail)) = data.split_at_checked(data.len().saturating_sub(8)) else { return };
    let Some(length) = tail.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else { return };
    let Some(start) = rest.len().checked_sub(length) else { return };
    let Ok(footer) = Footer::parse(&rest[start..], data.len() as u64) else { return };
    let part = |range: Range<u64>| {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        data.get(range).map(Bytes::copy_from_slice)
    };
    assert!(footer.page_index().iter().all(|range| range.end <= data.len() as u64));
    let Ok(made) = made(&footer, &part) else { return };
    let format = format_called("parquet").expect("a format");
    let index = format.open_index(made.index, made.hash).expect("an index that was made can be opened");
    read(&*index, &part);
}

/// Makes the index of a file.
fn made(footer: &Footer, part: &dyn Fn(Range<u64>) -> Option<Bytes>) -> Result<FileIndex, String> {
    let partitions = [("split".to_owned(), "train".to_owned())];
    footer.index(
        part,
        &PagesByHeader::default(),
        RowFacts { key_prefix: "split=train/rows/", partitions: &partitions },
        1 << 10,
    )
}

/// Checks that an index that opens can be read from end to end.
pub(crate) fn index(data: &[u8]) {
    let format = format_called("parquet").expect("a format");
    let open = |file: Vec<u8>| {
        let hash = Fingerprint::of(&file);
        format.open_index(file.into(), hash)
    };
    let _ = open(data.to_vec());
    let Ok(index) = open(with_checksum(data)) else { return };
    // The file that it describes may be of any size; nothing of it is there.
    read(&*index, &|_| None);
}

fn manifest_of(index: &dyn ShardIndex) -> Manifest {
    let mut manifest = ManifestBuilder::new("rows").format(format_called("parquet").expect("a format"));
    let shard = ShardFacts {
        url: "rows.parquet".to_owned(),
        bytes: index.shard_bytes(),
        etag: None,
        records: index.record_count(),
        index_bytes: index.bytes().len() as u64,
        index_hash: Fingerprint(0),
    };
    manifest.shard(&shard, &[]).expect("a shard without blocks");
    manifest.finish().expect("a manifest")
}

/// Reads some records of a shard: alone, and with all others.
fn read(index: &dyn ShardIndex, file: &dyn Fn(Range<u64>) -> Option<Bytes>) {
    let manifest = manifest_of(index);
    let fetched = |range: Range<u64>| {
        let parts = index.plan(&manifest.shard(0), std::slice::from_ref(&range));
        let mut found = Vec::new();
        for part in parts {
            found.extend_from_slice(&file(part.range)?);
        }
        (found.len() as u64 == range.end - range.start).then(|| Bytes::from(found))
    };
    let Some(last) = index.record_count().checked_sub(1) else { return };
    for number in [0, last / 2, last] {
        let record = index.record(number);
        assert_eq!(index.locate(number), (number, 0));
        for (nth, field) in (0..).zip(record.fields()) {
            assert_eq!(record.field(field.name), Some(field), "{record:?}");
            let Some(range) = field.range() else { continue };
            assert!(range.end <= index.shard_bytes(), "{record:?}");
            let parts = index.plan(&manifest.shard(0), std::slice::from_ref(&range));
            let planned: u64 = parts.iter().map(|part| part.range.end - part.range.start).sum();
            assert_eq!(planned, range.end - range.start, "{record:?}");
            let rows = index.decode(&[range], &fetched).expect("Parquet is decoded");
            // The field was fetched, so it is there, or its damage is known.
            let content = rows.open(number, nth);
            assert!(!matches!(content, Err(spdl_shard::format::OpenError::Missing)), "{record:?}");
        }
    }
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
        let footer = Footer::parse(&rest[rest.len() - length..], file.len() as u64).expect("a footer");
        let part = |range: Range<u64>| Some(Bytes::copy_from_slice(&file[range.start as usize..range.end as usize]));
        made(&footer, &part).expect("an index").index.to_vec()
    };
    seeds().into_iter().map(index).collect()
}
