//! MDS datasets: what is read of them, golden files, damage and hostile bytes. `tests/interop` reads what the format's own
//! library writes.

use std::{fs, io::Write as _, path::Path};

use bytes::Bytes;
use serde_json::{Value, json};
use spdl_dataset::{DatasetError, DatasetReport, IndexOptions, Overwrite, VerifyOptions, index, verify};
use spdl_shard::format::{OpenError, ShardIndex, format_called};
use spdl_types::Fingerprint;

use crate::files::{at, problems, reseal};

const GOLDEN_INDEX: &[u8] = include_bytes!("../golden/mds-v1.idx");
const GOLDEN_COMPRESSED: &[u8] = include_bytes!("../golden/mds-compressed-v1.idx");
/// The columns of the test's samples: an `int`, and two of any length.
const COLUMNS: [(&str, &str, Option<u32>); 3] =
    [("cls", "int", Some(8)), ("raw", "bytes", None), ("text", "str", None)];

fn sample(number: i64) -> Vec<u8> {
    let (raw, text) = (vec![number as u8; number as usize * 13 % 200], format!("sample {number}"));
    let sizes = [raw.len() as u32, text.len() as u32].map(u32::to_le_bytes);
    [sizes.as_flattened(), &number.to_le_bytes(), &raw, text.as_bytes()].concat()
}

fn shard(numbers: std::ops::Range<i64>) -> Vec<u8> {
    let samples: Vec<Vec<u8>> = numbers.map(sample).collect();
    let config = b"{}";
    let mut at = (4 * (samples.len() + 2) + config.len()) as u32;
    let mut bytes = (samples.len() as u32).to_le_bytes().to_vec();
    bytes.extend(at.to_le_bytes());
    for sample in &samples {
        at += sample.len() as u32;
        bytes.extend(at.to_le_bytes());
    }
    [bytes, config.to_vec(), samples.concat()].concat()
}

/// Writes a dataset of two shards, compressed with gzip or not.
fn write(folder: &Path, is_compressed: bool) {
    let shards = [(0, 0..30), (1, 30..50)].map(|(number, samples)| {
        let (name, count) = (format!("shard.{number:05}.mds"), samples.end - samples.start);
        let raw = shard(samples);
        let mut facts = json!({
            "format": "mds", "version": 2, "samples": count, "hashes": [], "size_limit": null, "compression": null,
            "column_names": COLUMNS.map(|(name, ..)| name), "column_encodings": COLUMNS.map(|(_, encoding, _)| encoding),
            "column_sizes": COLUMNS.map(|(.., bytes)| bytes),
            "raw_data": {"basename": name, "bytes": raw.len(), "hashes": {}}, "zip_data": null,
        });
        if is_compressed {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&raw).unwrap();
            let zip = encoder.finish().unwrap();
            facts["compression"] = "gz:1".into();
            facts["zip_data"] = json!({"basename": format!("{name}.gz"), "bytes": zip.len(), "hashes": {}});
            fs::write(folder.join(format!("{name}.gz")), zip).unwrap();
        } else {
            fs::write(folder.join(&name), raw).unwrap();
        }
        facts
    });
    write_index(folder, &json!({"version": 2, "shards": shards}));
}

fn write_index(folder: &Path, index: &Value) {
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
}

async fn indexed(folder: &Path) -> Result<DatasetReport, DatasetError> {
    let options = IndexOptions {
        overwrite: Overwrite::Replace,
        name: Some("mds".into()),
        block_bytes: Some(1024),
        ..Default::default()
    };
    index(&at(folder), &at(folder), &options, &|_| {}).await
}

async fn refused(folder: &Path) -> String {
    indexed(folder).await.unwrap_err().to_string()
}

#[tokio::test]
async fn samples_are_found_by_the_tables_alone_and_fields_are_made_of_their_values() {
    for is_compressed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), is_compressed);
        let report = indexed(folder.path()).await.unwrap();
        assert_eq!((report.shards, report.samples), (2, 50));
        assert_eq!(report.fields.get("text"), Some(&50));
        assert_eq!(problems(folder.path()).await, Vec::<String>::new());
        let manifest = at(folder.path()).manifest().await.unwrap();
        assert_eq!(manifest.format().name(), "mds");
        assert_eq!(manifest.block_count() == 2, is_compressed);
        let index = at(folder.path()).index(&manifest.shard(1)).await.unwrap();
        let whole: Bytes = shard(30..50).into();
        let record = index.record(7);
        assert_eq!(record.key, "shard.00001/000007");
        let open = |name: &str| {
            let field = record.field(name).unwrap();
            index
                .open(&field, &|range| Some(whole.slice(range.start as usize..range.end as usize)))
                .map(|value| value.into_one().unwrap().into_file())
        };
        assert_eq!(open("text").unwrap(), "sample 37");
        assert_eq!(open("raw").unwrap(), vec![37; 37 * 13 % 200]);
        let number = open("cls").unwrap();
        assert!(number.starts_with(b"\x93NUMPY") && number.ends_with(&37_i64.to_le_bytes()), "{number:?}");
        let short = index.open(&record.field("text").unwrap(), &|_| Some(Bytes::from_static(&[9; 20])));
        assert!(matches!(short, Err(OpenError::Malformed(problem)) if problem.contains("a sample of 20 bytes")));
    }
}

#[tokio::test]
async fn indexes_are_written_and_read_as_ever() {
    for (is_compressed, name, golden) in
        [(false, "shard.00001.mds.idx", GOLDEN_INDEX), (true, "shard.00001.mds.gz.idx", GOLDEN_COMPRESSED)]
    {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), is_compressed);
        indexed(folder.path()).await.unwrap();
        let written = fs::read(folder.path().join(".spdl").join(name)).unwrap();
        // The size of the object depends on the compressor.
        let compared = |file: &[u8]| if is_compressed { file[48..].to_vec() } else { file.to_vec() };
        assert_eq!(compared(&written), compared(golden));
    }
}

#[tokio::test]
async fn lists_of_shards_that_are_wrong_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), false);
    let good: Value = serde_json::from_slice(&fs::read(folder.path().join("index.json")).unwrap()).unwrap();
    for (pointer, value, expected) in [
        ("/version", json!(3), "has version 3 of MDS; version 2 is read"),
        ("/shards/0/format", json!("xsv"), "it has the format `xsv`, version 2; `mds`, version 2, is read"),
        ("/shards/1/raw_data/basename", json!("../x.mds"), "shard 1 (`../x.mds`): its file is not a path inside"),
        ("/shards/1/raw_data/basename", json!("y.mds"), "lists `y.mds`, which is not there"),
        ("/shards/1/raw_data/bytes", json!(7), "has 7 bytes for `shard.00001.mds`"),
        ("/shards/0/samples", json!(31), "has 30 samples, and `index.json` lists 31"),
        ("/shards/0/samples", json!(4_000_000_000_u32), "is shorter than its table of samples"),
        ("/shards/0/column_sizes", json!([]), "other numbers of names, encodings and sizes"),
        ("/shards/0/column_encodings/2", json!("utf16"), "column `text` has the encoding `utf16`, which is unknown"),
        ("/shards/0/column_names/2", json!("raw"), "it has the column `raw` twice"),
        ("/shards/1/raw_data/basename", json!("shard.00000.mds"), "lists the shard `shard.00000.mds` twice"),
        ("/shards", json!([]), "`index.json` lists no shard with samples"),
        ("/shards", json!(1), "is no index of MDS: "),
    ] {
        let mut index = good.clone();
        *index.pointer_mut(pointer).unwrap() = value;
        write_index(folder.path(), &index);
        let problem = refused(folder.path()).await;
        assert!(problem.contains(expected), "{pointer}: {problem}");
    }
    let lit_data = json!({ "chunks": [{ "filename": "chunk-0-0.bin" }], "config": { "data_format": ["int"] } });
    for (text, expected) in [
        (String::new(), "is empty: it was not written to its end"),
        (lit_data.to_string(), "is LitData's, whose chunks are not read: write its samples with `spdl_cluster.Writer`"),
    ] {
        fs::write(folder.path().join("index.json"), text).unwrap();
        let problem = refused(folder.path()).await;
        assert!(problem.contains(expected), "{problem}");
    }
    let chunks = tempfile::tempdir().unwrap();
    fs::write(chunks.path().join("chunk-0-0.bin"), "chunk").unwrap();
    write_index(chunks.path(), &lit_data);
    assert!(refused(chunks.path()).await.contains("is LitData's"));

    let outer = tempfile::tempdir().unwrap();
    for split in ["train", "val"] {
        fs::create_dir(outer.path().join(split)).unwrap();
        write(&outer.path().join(split), false);
    }
    let problem = refused(outer.path()).await;
    assert!(problem.contains("index one of these folders in it: `train`, `val`"), "{problem}");
}

#[tokio::test]
async fn a_shard_that_is_not_there_is_left_out_if_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), false);
    fs::remove_file(folder.path().join("shard.00000.mds")).unwrap();
    let options = IndexOptions { skip_bad_shards: 1, ..IndexOptions::default() };
    let report = index(&at(folder.path()), &at(folder.path()), &options, &|_| {}).await.unwrap();
    assert_eq!((report.samples, report.bad_shards.len()), (20, 1));
    assert!(report.bad_shards[0].problem.contains("lists `shard.00000.mds`, which is not there"), "{report:?}");
}

/// A generator of numbers for damage.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[tokio::test]
async fn random_damage_neither_panics_nor_passes_for_another_number_of_bytes() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), round % 2 == 0);
        let is_indexed_first = round % 4 < 2;
        if is_indexed_first {
            indexed(folder.path()).await.unwrap();
        }
        let mut files: Vec<_> = crate::dataset::files(folder.path()).into_iter().collect();
        let (victim, mut bytes) = files.swap_remove(random.below(files.len()));
        match random.below(3) {
            0 => bytes.truncate(random.below(bytes.len())),
            _ => (0..=random.below(4)).for_each(|_| {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }),
        }
        fs::write(folder.path().join(victim), bytes).unwrap();
        if !is_indexed_first {
            let _ = indexed(folder.path()).await;
        }
        let _ = verify(&at(folder.path()), &VerifyOptions::default(), &|_| {}).await;
    }
}

#[test]
fn hostile_bytes_of_an_index_neither_panic_nor_slip_through() {
    let format = format_called("mds").unwrap();
    let open_all = |index: &dyn ShardIndex| {
        let bytes = Bytes::from(vec![1; 300]);
        for record in index.records() {
            for field in record.fields() {
                let range = field.range().unwrap();
                assert!(range.end <= index.shard_bytes());
                let length = (range.end - range.start).min(300) as usize;
                let _ = index.open(&field, &|_| Some(bytes.slice(..length)));
            }
        }
    };
    for golden in [GOLDEN_INDEX, GOLDEN_COMPRESSED] {
        for at in 40..golden.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                for width in [1, 2, 4, 8] {
                    let mut bytes = golden.to_vec();
                    let end = (at + width).min(bytes.len());
                    bytes[at..end].fill(value);
                    reseal(&mut bytes);
                    let hash = Fingerprint::of(&bytes);
                    if let Ok(index) = format.open_index(bytes.into(), hash) {
                        open_all(&*index);
                    }
                }
            }
        }
        for length in 0..golden.len() {
            let bytes = golden[..length].to_vec();
            let hash = Fingerprint::of(&bytes);
            assert!(format.open_index(bytes.into(), hash).is_err(), "{length}");
        }
    }
}
