//! Parquet as a dataset: what is read to index it, which bytes a job's columns need, and hostile and damaged files.

use std::{
    fs,
    ops::Range,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{counting::counted, in_memory};
use bytes::Bytes;
use object_store::ObjectStoreExt;
use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, FloatType, Int64Type},
    file::{
        properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use proptest::prelude::*;
use spdl_dataset::{DatasetProgress, DatasetReport, IndexOptions, VerifyOptions, index, unpack, verify};
use spdl_shard::{
    format::{
        Array, FieldValue, Format, OpenError, ShardIndex, format_called,
        parquet::{PagesByHeader, ParquetFooter, RowFacts},
    },
    store::DatasetStore,
};
use spdl_types::{DType, Fingerprint};

use crate::files::at;

const SCHEMA: &str = "message rows { optional binary picture; required int64 label; optional group scores (LIST) { \
                      repeated group list { required float element; } } }";

fn quiet(_: DatasetProgress) {}

async fn indexed(folder: &Path) -> DatasetReport {
    index(&at(folder), &at(folder), &IndexOptions::default(), &quiet).await.unwrap()
}

/// The bytes of a row's picture; every ninth row has none.
fn picture(row: usize, bytes: usize) -> Option<Vec<u8>> {
    (row % 9 != 8).then(|| (0..bytes + row % 5).map(|at| (at * 31 + row * 17) as u8).collect())
}

/// Writes row groups of these numbers of rows, with pictures of about so many bytes.
fn written(groups: &[usize], picture_bytes: usize, compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression).set_dictionary_enabled(false);
    written_with(groups, picture_bytes, properties)
}

fn written_with(groups: &[usize], picture_bytes: usize, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let properties = properties.set_data_page_size_limit(picture_bytes * 4).set_write_batch_size(2).build();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut row = 0;
    for &rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let pictures: Vec<_> = (row..row + rows).map(|row| picture(row, picture_bytes)).collect();
        let there: Vec<i16> = pictures.iter().map(|picture| i16::from(picture.is_some())).collect();
        let values: Vec<ByteArray> = pictures.into_iter().flatten().map(ByteArray::from).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&there), None).unwrap();
        column.close().unwrap();
        let labels: Vec<i64> = (row..row + rows).map(|row| row as i64 * 3).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&labels, None, None).unwrap();
        column.close().unwrap();
        // Rows have 0, 1, 2, ... scores in turn; one of five has no list.
        let (mut scores, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for row in row..row + rows {
            match row % 5 {
                4 => (definitions.push(0), repetitions.push(0)),
                0 => (definitions.push(1), repetitions.push(0)),
                count => {
                    scores.extend((0..count).map(|number| (row * 10 + number) as f32));
                    (0..count).for_each(|number| repetitions.push(i16::from(number > 0)));
                    (definitions.extend(vec![2; count]), ())
                }
            };
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&scores, Some(&definitions), Some(&repetitions)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        row += rows;
    }
    writer.into_inner().unwrap()
}

#[tokio::test]
async fn less_than_a_thousandth_of_a_dataset_is_read_to_index_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&[160, 160, 80], 100_000, Compression::UNCOMPRESSED);
    fs::write(folder.path().join("a.parquet"), &file).unwrap();
    let (from, bytes) = counted(at(folder.path()), "");
    let report = index(&from, &at(folder.path()), &IndexOptions::default(), &quiet).await.unwrap();
    assert_eq!((report.samples, report.shards), (400, 1));
    assert!((4..=7).contains(&report.blocks), "blocks of about 8 MiB: {report:?}");
    let read = bytes.load(Relaxed);
    assert!(read > 0 && read < file.len() as u64 / 1000, "{read} of {} bytes", file.len());
}

#[tokio::test]
async fn a_large_row_group_without_a_page_index_is_cut_at_the_headers_of_its_pages() {
    for (version, compression) in
        [(WriterVersion::PARQUET_1_0, Compression::SNAPPY), (WriterVersion::PARQUET_2_0, Compression::UNCOMPRESSED)]
    {
        let properties = || {
            let properties = WriterProperties::builder().set_writer_version(version).set_compression(compression);
            properties.set_dictionary_page_size_limit(1_000_000)
        };
        let folders = [false, true].map(|disabled| {
            let folder = tempfile::tempdir().unwrap();
            let file = written_with(&[300, 40], 100_000, properties().set_offset_index_disabled(disabled));
            fs::write(folder.path().join("a.parquet"), &file).unwrap();
            folder
        });
        let mut blocks: Vec<Vec<_>> = Vec::new();
        for folder in &folders {
            let (from, bytes) = counted(at(folder.path()), "");
            index(&from, &at(folder.path()), &IndexOptions::default(), &quiet).await.unwrap();
            let read = bytes.load(Relaxed);
            assert!(read < 100_000, "{read} bytes");
            let manifest = at(folder.path()).manifest().await.unwrap();
            let number = 0..manifest.block_count();
            blocks.push(
                number.map(|block| manifest.block(block)).map(|block| (block.first_sample, block.samples)).collect(),
            );
        }
        assert_eq!(blocks[0], blocks[1], "{version:?}");
        assert!(blocks[0].len() >= 4, "{blocks:?}");
        let store = at(folders[1].path());
        let manifest = store.manifest().await.unwrap();
        let index = store.index(&manifest.shard(0)).await.unwrap();
        for record in [0, 9, 10, 171, 299, 300, 339] {
            let row = index.record(record);
            let (rows, read) = decoded(&store, &*index, &[row.field("picture").unwrap().range().unwrap()]).await;
            assert!(read < 4_000_000, "{read} bytes");
            let content = rows.open(record, index.field_number(&row, "picture").unwrap()).unwrap();
            let expected = picture(record as usize, 100_000).map(|picture| Bytes::from(picture).into());
            assert_eq!(content, expected, "record {record}");
        }
    }
}

/// Decodes what `ranges` of a shard have.
async fn decoded(
    store: &DatasetStore,
    index: &dyn ShardIndex,
    ranges: &[Range<u64>],
) -> (Arc<dyn spdl_shard::format::DecodedBlock>, u64) {
    let manifest = store.manifest().await.unwrap();
    let (mut pieces, mut read) = (Vec::new(), 0);
    for part in index.plan(&manifest.shard(0), ranges) {
        let bytes = store.object().get_range(&store.path_of(&part.object.url), part.range).await.unwrap();
        read += bytes.len() as u64;
        pieces.push((part.at, bytes));
    }
    let fetched = |range: Range<u64>| {
        let mut found = Vec::new();
        for (start, bytes) in &pieces {
            let part = range.start.max(*start)..range.end.min(start + bytes.len() as u64);
            if part.start < part.end {
                found.extend_from_slice(&bytes[(part.start - start) as usize..(part.end - start) as usize]);
            }
        }
        (found.len() as u64 == range.end - range.start).then(|| Bytes::from(found))
    };
    (index.decode(ranges, &fetched).unwrap(), read)
}

#[tokio::test]
async fn only_the_columns_of_a_job_are_read_and_one_record_takes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&[100, 60], 20_000, Compression::SNAPPY);
    fs::write(folder.path().join("a.parquet"), &file).unwrap();
    indexed(folder.path()).await;
    let store = at(folder.path());
    let manifest = store.manifest().await.unwrap();
    let index = store.index(&manifest.shard(0)).await.unwrap();
    let block = manifest.block(0);
    let whole = block.offset..block.offset + block.bytes;

    let parts = index.project(whole.clone(), &["label".to_owned(), "scores".to_owned(), "no such".to_owned()]);
    let (rows, read) = decoded(&store, &*index, &parts).await;
    assert!(read < 20_000, "{read} bytes");
    let number = |record: u32, name: &str| index.field_number(&index.record(record), name).unwrap();
    for record in 0..block.records {
        let label = rows.open(record, number(record, "label")).unwrap().unwrap();
        let expected = Bytes::copy_from_slice(&(i64::from(record) * 3).to_le_bytes());
        assert_eq!(rows.number(record, number(record, "label")), Some((DType::I64, &expected[..])));
        let run = rows.numbers(record, number(record, "label")).unwrap();
        assert!(run.records.contains(&record) && run.records.len() > 1, "{run:?}");
        assert_eq!((run.dtype, run.element(record)), (DType::I64, &expected[..]));
        assert_eq!(label, Array { dtype: DType::I64, shape: vec![], elements: expected }.into());
        let scores = rows.open(record, number(record, "scores")).unwrap();
        let expected = (record % 5 != 4).then(|| {
            let scores = (0..record % 5).map(|number| (record * 10 + number) as f32);
            let elements = scores.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into();
            Array { dtype: DType::F32, shape: vec![(record % 5).into()], elements }.into()
        });
        assert_eq!(scores, expected, "record {record}");
        let picture = rows.open(record, number(record, "picture"));
        assert_eq!(picture, Err(OpenError::Missing), "which was not read");
        let others = ["scores", "picture"].map(|name| rows.number(record, number(record, name)));
        assert_eq!(others, [None, None], "no numbers");
        let others = ["scores", "picture"].map(|name| rows.numbers(record, number(record, name)));
        assert_eq!(others, [None, None], "no numbers");
    }

    for record in [0, 7, 99, 100, 159] {
        let field = index.record(record).field("picture").unwrap();
        let (rows, read) = decoded(&store, &*index, &[field.range().unwrap()]).await;
        assert!(read < 100_000 && field.shared_by < 10, "{read} bytes for {} records", field.shared_by);
        let content = rows.open(record, number(record, "picture")).unwrap();
        assert_eq!(
            content,
            picture(record as usize, 20_000).map(|picture| Bytes::from(picture).into()),
            "record {record}"
        );
    }
}

#[tokio::test]
async fn a_picture_behind_a_full_dictionary_is_read_without_the_dictionary() {
    let folder = tempfile::tempdir().unwrap();
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(200_000);
    let file = written_with(&[100, 60], 20_000, properties);
    fs::write(folder.path().join("a.parquet"), &file).unwrap();
    indexed(folder.path()).await;
    let store = at(folder.path());
    let manifest = store.manifest().await.unwrap();
    let index = store.index(&manifest.shard(0)).await.unwrap();
    let mut without = 0;
    for record in 0..160 {
        let row = index.record(record);
        let range = row.field("picture").unwrap().range().unwrap();
        let (rows, read) = decoded(&store, &*index, &[range]).await;
        let content = rows.open(record, index.field_number(&row, "picture").unwrap()).unwrap();
        let expected = picture(record as usize, 20_000).map(|picture| Bytes::from(picture).into());
        assert_eq!(content, expected, "record {record}");
        without += u32::from(read < 150_000);
    }
    assert!((120..150).contains(&without), "{without} of 160; the others refer to the dictionaries");
}

/// The list of a row: `None` for every seventh, else up to three values, of which some are null.
fn list(row: usize) -> Option<Vec<Option<Bytes>>> {
    let value = |number: usize| {
        let bytes = (0..(row * 37 + number * 11) % 400).map(|at| (at * 31 + row) as u8);
        ((row + number) % 5 != 4).then(|| bytes.collect::<Bytes>())
    };
    (row % 7 != 6).then(|| (0..row % 4).map(value).collect())
}

#[tokio::test]
async fn lists_of_bytes_are_read_row_by_row_with_their_nulls() {
    let schema = "message rows { optional group files (LIST) { repeated group list { optional group element { optional \
                  binary bytes; } } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    for is_dictionary in [false, true] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(is_dictionary)
            .set_data_page_size_limit(2000)
            .set_write_batch_size(3)
            .build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), Arc::new(properties)).unwrap();
        for rows in [0..60, 60..100] {
            let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
            for row in rows {
                let Some(list) = list(row) else {
                    definitions.push(0);
                    repetitions.push(0);
                    continue;
                };
                if list.is_empty() {
                    definitions.push(1);
                    repetitions.push(0);
                }
                for (number, value) in list.into_iter().enumerate() {
                    // A null is a struct without bytes, or no struct.
                    definitions.push(if value.is_some() { 4 } else { 2 + (row % 2) as i16 });
                    repetitions.push(i16::from(number > 0));
                    values.extend(value.map(ByteArray::from));
                }
            }
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.parquet"), writer.into_inner().unwrap()).unwrap();
        let report = indexed(folder.path()).await;
        assert_eq!((report.samples, report.fields.get("files.bytes")), (100, Some(&100)));
        let store = at(folder.path());
        let manifest = store.manifest().await.unwrap();
        let index = store.index(&manifest.shard(0)).await.unwrap();
        let block = manifest.block(0);
        let range = block.offset..block.offset + block.bytes;
        let (whole, _) = decoded(&store, &*index, std::slice::from_ref(&range)).await;
        for row in 0..100 {
            let expected = list(row as usize).map(FieldValue::List);
            assert_eq!(whole.open(row, 0), Ok(expected.clone()), "row {row}");
            assert_eq!((whole.number(row, 0), whole.numbers(row, 0)), (None, None));
            let field = index.record(row).field("files.bytes").unwrap();
            let (alone, _) = decoded(&store, &*index, &[field.range().unwrap()]).await;
            assert_eq!(alone.open(row, 0), Ok(expected), "row {row} alone");
        }
        let target = tempfile::tempdir().unwrap();
        unpack(&store, target.path(), &quiet).await.unwrap();
        for row in 0..100 {
            for (number, value) in list(row).unwrap_or_default().into_iter().enumerate() {
                let file = fs::read(target.path().join(format!("a/{row:06}.files.bytes.{number}")));
                assert_eq!(file.ok().map(Bytes::from), value, "row {row}");
            }
        }
    }
}

#[tokio::test]
async fn every_value_is_verified_and_unpacked_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("split=train");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("a.parquet"), written(&[30, 11], 50, Compression::SNAPPY)).unwrap();
    indexed(folder.path()).await;
    let report = verify(&at(folder.path()), &VerifyOptions::default(), &quiet).await.unwrap();
    // Three columns; the value of the folder lies in the index.
    assert_eq!((report.records, report.fields, report.faults.len()), (41, 41 * 3, 0));
    let target = tempfile::tempdir().unwrap();
    unpack(&at(folder.path()), target.path(), &quiet).await.unwrap();
    for row in 0..41 {
        let file = |field: &str| fs::read(target.path().join(format!("split=train/a/{row:06}.{field}"))).ok();
        assert_eq!(file("picture"), picture(row, 50), "row {row}");
        assert_eq!(file("split").unwrap(), b"train");
        let label = file("label").unwrap();
        assert!(label.starts_with(b"\x93NUMPY") && label.ends_with(&(row as i64 * 3).to_le_bytes()), "row {row}");
        assert_eq!(file("scores").is_some(), row % 5 != 4, "row {row}");
    }
}

fn format() -> &'static dyn Format {
    format_called("parquet").unwrap()
}

/// Makes the index of a file in memory.
fn index_of(file: &[u8]) -> Result<(Bytes, Fingerprint), String> {
    let length = file.get(file.len().wrapping_sub(8)..file.len().wrapping_sub(4)).ok_or("short")?;
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    let start = file.len().checked_sub(8 + length).ok_or("claims more")?;
    let footer = ParquetFooter::parse(&file[start..file.len() - 8], file.len() as u64)?;
    let read = |range: Range<u64>| file.get(range.start as usize..range.end as usize).map(Bytes::copy_from_slice);
    let partitions = [("split".into(), "train".into())];
    let of_rows = RowFacts { key_prefix: "split=train/a/", partitions: &partitions, series: None };
    let made = footer.index(&read, &PagesByHeader::default(), of_rows, 4000)?;
    Ok((made.index, made.hash))
}

/// Reads every field of a file as its index describes it, and returns how many do not decode.
pub(crate) fn read_all(file: &[u8], index: &dyn ShardIndex) -> usize {
    let rows = in_memory::decoded(format(), file, index, std::slice::from_ref(&(0..index.shard_bytes())));
    let mut damaged = 0;
    for record in index.records() {
        for (nth, field) in (0..).zip(record.fields()) {
            assert_eq!(index.field_number(&record, field.name), Some(nth));
            if field.value.is_none() {
                damaged += usize::from(rows.open(record.number(), nth).is_err());
            }
        }
    }
    damaged
}

/// A file, and the index that version 1 makes of it. A test run with `SPDL_WRITE_GOLDEN` set writes them if they are not
/// there; never replace them.
pub(crate) const GOLDEN: [&str; 2] = ["tests/golden/rows.parquet", "tests/golden/parquet-v1.idx"];

#[test]
fn the_index_of_a_file_is_made_and_read_as_ever() {
    if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !Path::new(GOLDEN[0]).exists() {
        let file = written(&[30, 0, 11], 50, Compression::SNAPPY);
        fs::write(GOLDEN[0], &file).unwrap();
        fs::write(GOLDEN[1], index_of(&file).unwrap().0).unwrap();
    }
    let [file, golden] = GOLDEN.map(|path| fs::read(path).unwrap());
    let (made, hash) = index_of(&file).unwrap();
    assert!(made == golden, "another index is made of the same file");
    let index = format().open_index(golden.into(), hash).unwrap();
    assert_eq!((index.record_count(), read_all(&file, &*index)), (41, 0));
    assert_eq!(index.record(40).key, "split=train/a/000040");
    let fields: Vec<_> = index.record(0).fields().map(|field| (field.name, field.value.is_some())).collect();
    assert_eq!(fields, [("picture", false), ("label", false), ("scores", false), ("split", true)]);
}

#[test]
fn a_file_reads_from_end_to_end_and_an_index_with_any_byte_changed_is_refused() {
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW] {
        let file = written(&[30, 0, 11], 50, compression);
        let (index, hash) = index_of(&file).unwrap();
        let opened = format().open_index(index.clone(), hash).unwrap();
        assert_eq!((opened.record_count(), read_all(&file, &*opened)), (41, 0), "{compression:?}");
        let split = opened.record(7).field("split").unwrap();
        assert_eq!((split.value, split.range()), (Some(&b"train"[..]), None));
        for at in 0..index.len() {
            let mut other = index.to_vec();
            other[at] ^= 1;
            assert!(format().open_index(other.into(), hash).is_err(), "byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_file_is_an_error_and_never_a_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        near_end in any::<bool>(),
    ) {
        let file = written(&[30, 11], 50, Compression::SNAPPY);
        let (index, hash) = index_of(&file).unwrap();
        let opened = format().open_index(index, hash).unwrap();
        let mut damaged = file.clone();
        for (place, flip) in flips {
            let from = if near_end { file.len() * 2 / 3 } else { 0 };
            let place = from + place.index(damaged.len() - from);
            damaged[place] ^= flip;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()));
        }
        // Damaged after it was indexed, and before.
        read_all(&damaged, &*opened);
        if let Ok((index, hash)) = index_of(&damaged) {
            let opened = format().open_index(index, hash).unwrap();
            read_all(&damaged, &*opened);
        }
    }
}
