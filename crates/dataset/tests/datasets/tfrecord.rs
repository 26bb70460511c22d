//! TFRecord files: those that TensorFlow 2.21 wrote, with `tf.io.TFRecordWriter`, and damaged ones. `tests/interop` compares
//! others with the parser of Protocol Buffers.

use std::{fs, path::Path};

use bytes::Bytes;
use spdl_dataset::{DatasetError, DatasetReport, IndexOptions, Overwrite, index, unpack};
use spdl_shard::format::format_called;

use crate::files::{at, problems};

/// Eight examples, as they are, with gzip and with zlib.
const GOLDEN: [(&str, &[u8]); 3] = [
    ("tf.tfrecord", include_bytes!("../golden/tf.tfrecord")),
    ("tf.tfrecord.gz", include_bytes!("../golden/tf.tfrecord.gz")),
    ("tf.tfrecord.zlib", include_bytes!("../golden/tf.tfrecord.zlib")),
];

async fn indexed(folder: &Path) -> Result<DatasetReport, DatasetError> {
    let options = IndexOptions { overwrite: Overwrite::Replace, block_bytes: Some(512), ..Default::default() };
    index(&at(folder), &at(folder), &options, &|_| {}).await
}

/// Returns the elements of a `.npy` file with this type and shape.
fn elements<'f>(file: &'f [u8], descr: &str, shape: &str) -> &'f [u8] {
    let end = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let header = std::str::from_utf8(&file[10..end]).unwrap();
    assert!(
        header.contains(&format!("'descr': '{descr}'")) && header.contains(&format!("'shape': {shape}")),
        "{header}"
    );
    &file[end..]
}

#[tokio::test]
async fn files_of_tensorflow_are_read_in_all_three_forms() {
    for (name, file) in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        let (dataset, unpacked) = (folder.path().join("dataset"), folder.path().join("unpacked"));
        fs::create_dir(&dataset).unwrap();
        fs::write(dataset.join(name), file).unwrap();
        let report = indexed(&dataset).await.unwrap();
        assert_eq!((report.records, report.shards, report.fields.len()), (8, 1, 7), "{name}");
        let manifest = at(&dataset).manifest().await.unwrap();
        assert_eq!(manifest.format().name(), "tfrecord");
        assert_eq!(manifest.block_count() == 1, name != "tf.tfrecord", "{name}");
        assert_eq!(manifest.shard(0).bytes, GOLDEN[0].1.len() as u64);
        assert_eq!(problems(&dataset).await, Vec::<String>::new());
        unpack(&at(&dataset), &unpacked, &|_| {}).await.unwrap();
        for number in 0..8_i64 {
            let field = |field: &str| fs::read(unpacked.join(format!("{name}/{number:06}.{field}"))).unwrap();
            assert_eq!(field("image.encoded"), vec![number as u8; number as usize * 9]);
            assert_eq!(field("text"), format!("Nümber {number}").into_bytes());
            assert_eq!(elements(&field("label"), "<i8", "(1,)"), (number * 3 - 5).to_le_bytes());
            let extremes = [i64::MIN, i64::MAX, number].map(i64::to_le_bytes);
            assert_eq!(elements(&field("extremes"), "<i8", "(3,)"), extremes.as_flattened());
            let floats = [number as f32 / 4.0, -1e30, f32::INFINITY].map(f32::to_le_bytes);
            assert_eq!(elements(&field("floats"), "<f4", "(3,)"), floats.as_flattened());
            assert_eq!(elements(&field("none"), "<f4", "(0,)"), b"");
            let unset = unpacked.join(format!("{name}/{number:06}.unset"));
            assert!(!unset.exists(), "it is an empty list");
        }
    }
}

#[tokio::test]
async fn lists_of_features_are_fields_beside_the_context() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, unpacked) = (folder.path().join("dataset"), folder.path().join("unpacked"));
    fs::create_dir(&dataset).unwrap();
    fs::write(dataset.join("a.tfrecord"), include_bytes!("../golden/sequences.tfrecord")).unwrap();
    let fields = indexed(&dataset).await.unwrap().fields;
    let names = ["feature_lists.frames", "feature_lists.label", "feature_lists.pose", "label"];
    assert_eq!(fields, names.map(|name| (name.to_owned(), 5)).into());
    assert_eq!(problems(&dataset).await, Vec::<String>::new());
    unpack(&at(&dataset), &unpacked, &|_| {}).await.unwrap();
    for number in 0..5_i64 {
        let file = |field: &str| fs::read(unpacked.join(format!("a.tfrecord/{number:06}.{field}")));
        let label = file("label").unwrap();
        assert_eq!(elements(&label, "<i8", "(1,)"), (number - 2).to_le_bytes());
        if number == 0 {
            assert!(names[..3].iter().all(|name| file(name).is_err()), "they are empty lists");
            continue;
        }
        let labels = (0..number).flat_map(|step| (number * 10 + step).to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(elements(&file(names[1]).unwrap(), "<i8", &format!("({number},)")), labels);
        let pose = |step: i64| [step as f32, -0.5, number as f32 / 4.0].map(f32::to_le_bytes).concat();
        let poses: Vec<u8> = (0..number).flat_map(pose).collect();
        assert_eq!(elements(&file(names[2]).unwrap(), "<f4", &format!("({number}, 3)")), poses);
        for step in 0..number {
            let frame = file(&format!("{}.{step}", names[0])).unwrap();
            assert_eq!(frame, vec![step as u8; step as usize + 2]);
        }
    }
}

#[tokio::test]
async fn files_of_any_name_are_read_where_the_format_is_given_and_others_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-00000-of-00002"), GOLDEN[0].1).unwrap();
    fs::write(folder.path().join("train-00001-of-00002"), GOLDEN[2].1).unwrap();
    assert!(indexed(folder.path()).await.is_err(), "nothing says what these are");
    let options = IndexOptions { format: format_called("tfrecord"), ..Default::default() };
    let store = at(folder.path());
    let report = index(&store, &store, &options, &|_| {}).await.unwrap();
    assert_eq!((report.records, report.shards), (16, 2));
    // What a first command wrote is in no dataset.
    let again = IndexOptions { overwrite: Overwrite::Replace, ..options.clone() };
    assert_eq!(index(&store, &store, &again, &|_| {}).await.unwrap().shards, 2);
    fs::write(folder.path().join("notes.txt"), "what this is about").unwrap();
    let error = index(&store, &store, &again, &|_| {}).await.unwrap_err().to_string();
    assert!(
        error.contains("`notes.txt` is not read: record 0 at byte 0") && error.contains("no TFRecord file"),
        "{error}"
    );
}

#[tokio::test]
async fn every_cut_and_every_damaged_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (name, file) = GOLDEN[0];
    let path = folder.path().join(name);
    for at in (0..file.len()).step_by(37) {
        let mut damaged = file.to_vec();
        damaged[at] ^= 0x20;
        fs::write(&path, &damaged).unwrap();
        let error = indexed(folder.path()).await.unwrap_err().to_string();
        assert!(error.contains("`tf.tfrecord` is not read: record "), "{error}");
    }
    fs::write(&path, &file[..file.len() - 1]).unwrap();
    let error = indexed(folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("is not read: record 7 at byte ") && error.contains("is cut off after"), "{error}");
    // After it was indexed, `verify` finds other bytes of fields.
    fs::write(&path, file).unwrap();
    indexed(folder.path()).await.unwrap();
    let mut damaged = file.to_vec();
    let middle = file.windows(7).position(|bytes| bytes == [6; 7]).unwrap();
    damaged[middle] = 7;
    fs::write(&path, &damaged).unwrap();
    let faults = problems(folder.path()).await;
    assert!(
        matches!(&faults[..], [fault] if fault.contains("`image/encoded`") && fault.contains("other bytes")),
        "{faults:?}"
    );
}

#[tokio::test]
async fn random_damage_of_compressed_files_does_not_panic() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    for round in 0..60 {
        let (name, file) = GOLDEN[1 + round % 2];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, file).unwrap();
        indexed(folder.path()).await.unwrap();
        let mut damaged = file.to_vec();
        match below(3) {
            0 => damaged.truncate(below(file.len())),
            _ => {
                let at = below(file.len());
                damaged[at] ^= 1 << below(8);
            }
        }
        fs::write(&path, &damaged).unwrap();
        let found = problems(folder.path()).await;
        let _ = indexed(folder.path()).await;
        // A bit of the head, such as the time of a gzip file, may not matter.
        assert!(damaged.len() == file.len() || !found.is_empty());
    }
}

#[test]
fn messages_of_any_bytes_do_not_panic() {
    use spdl_shard::format::tfrecord::{features, value};
    let example = &GOLDEN[0].1[12..];
    for at in 0..200.min(example.len()) {
        for byte in [0, 1, 0x0a, 0x7f, 0x80, 0xff] {
            let mut damaged = example[..400.min(example.len())].to_vec();
            damaged[at] = byte;
            for (name, range) in features(&damaged).unwrap_or_default() {
                let _ = value(&name, &Bytes::copy_from_slice(&damaged[range]));
            }
        }
    }
}
