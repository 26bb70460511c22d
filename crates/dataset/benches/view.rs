//! Measures how long it takes to evaluate views over 10^7 rows of Parquet.
//!
//! `cargo bench --bench view -p spdl-shard --features store`. Prints the time of each view, the samples that it keeps, and
//! the bytes that were read of the bytes of the dataset. The dataset is written to TMPDIR first: 1.3 GB.

use std::{fs, path::Path, sync::Arc, time::Instant};

use parquet::{
    data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{IndexOptions, index, view::evaluate};
use spdl_job::ViewFile;
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;
use spdl_types::mix::splitmix64;

const FILES: u64 = 10;
const GROUPS: u64 = 10;
const GROUP_ROWS: u64 = 100_000;
/// The column that no view names.
const OTHER_BYTES: usize = 112;

fn write(folder: &Path, file: u64) {
    let schema = format!(
        "message rows {{ required int32 width; required float nsfw; required binary split (UTF8); required \
         fixed_len_byte_array({OTHER_BYTES}) other; }}"
    );
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let out = fs::File::create(folder.join(format!("{file:02}.parquet"))).unwrap();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(WriterProperties::default())).unwrap();
    for group in 0..GROUPS {
        let first = (file * GROUPS + group) * GROUP_ROWS;
        let draws: Vec<u64> = (first..first + GROUP_ROWS).map(splitmix64).collect();
        let mut group = writer.next_row_group().unwrap();
        let widths: Vec<i32> = draws.iter().map(|draw| (draw % 1024) as i32).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&widths, None, None).unwrap();
        column.close().unwrap();
        let scores: Vec<f32> = draws.iter().map(|draw| (draw >> 20 & 0xffff) as f32 / 65_536.0).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&scores, None, None).unwrap();
        column.close().unwrap();
        let split = |draw: &u64| ByteArray::from(if (draw >> 40).is_multiple_of(10) { "val" } else { "train" });
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&draws.iter().map(split).collect::<Vec<_>>(), None, None).unwrap();
        column.close().unwrap();
        let other = |draw: &u64| {
            let bytes: Vec<u8> =
                (0..OTHER_BYTES as u64 / 8).flat_map(|at| splitmix64(draw ^ at).to_le_bytes()).collect();
            FixedLenByteArray::from(bytes)
        };
        let mut column = group.next_column().unwrap().unwrap();
        let others: Vec<FixedLenByteArray> = draws.iter().map(other).collect();
        column.typed::<FixedLenByteArrayType>().write_batch(&others, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    (0..FILES).for_each(|file| write(folder.path(), file));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let at = DatasetStore::create_with(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    runtime.block_on(async {
        index(&at, &at, &IndexOptions::default(), &|_| ()).await.unwrap();
        let manifest = at.manifest().await.unwrap();
        let bytes: u64 = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        println!("{} rows, {:.0} MB", manifest.samples(), bytes as f64 / 1e6);
        let filter = |text: &str| ViewFile { filter: Some(text.to_owned()), ..ViewFile::default() };
        for (name, view) in [
            ("width < 102", filter("width < 102")),
            ("three columns", filter("width >= 256 and nsfw < 0.3 and split == 'train'")),
            ("fraction = 0.1", ViewFile { fraction: Some(0.1), ..ViewFile::default() }),
            ("unique = \"width\"", ViewFile { unique: Some("width".to_owned()), ..ViewFile::default() }),
        ] {
            let started = Instant::now();
            let found = evaluate(&at, &manifest, &view, 0, &|_| ()).await.unwrap();
            println!(
                "{name}: {:.2} s, {} samples in {} bytes, {:.1} MB read",
                started.elapsed().as_secs_f64(),
                found.set.kept().len(),
                found.set.encode().len(),
                found.bytes as f64 / 1e6
            );
        }
    });
}
