//! Records that are read to be looked at: all, spread ones and single ones, of files in which records have their bytes apart, share them, or are
//! compressed.

use std::{collections::HashMap, fs, path::Path};

use spdl_dataset::{IndexOptions, LookAt, SampleReader, SeenRecord, index};
use spdl_shard::{
    format::{Content, FieldValue},
    store::DatasetStore,
};

use crate::array_record::golden;

const TENSORFLOW: &[u8] = include_bytes!("../golden/tf.tfrecord");
const ZLIB: &[u8] = include_bytes!("../golden/tf.tfrecord.zlib");

async fn reader(folder: &Path, name: &str, file: &[u8]) -> SampleReader {
    fs::write(folder.join(name), file).unwrap();
    let store = DatasetStore::open(folder.to_str().unwrap()).unwrap();
    let options = IndexOptions { block_bytes: Some(512), ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.unwrap();
    SampleReader::open(&store).await.unwrap()
}

async fn read(reader: &SampleReader, which: LookAt) -> Vec<SeenRecord> {
    let mut seen = Vec::new();
    reader.read(which, |record| seen.push(record)).await.unwrap();
    seen
}

#[tokio::test]
async fn records_are_the_same_whether_all_some_or_one_are_read() {
    let files = [
        ("tf.tfrecord", TENSORFLOW.to_vec()),
        ("tf.tfrecord.zlib", ZLIB.to_vec()),
        ("plain.array_record", golden("plain")),
        ("brotli.array_record", golden("brotli")),
    ];
    for (name, file) in files {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), name, &file).await;
        let samples = reader.manifest().samples();
        let all = read(&reader, LookAt::All).await;
        assert_eq!(all.len() as u64, samples, "{name}");
        assert!(all.iter().flat_map(|record| &record.fields).all(|field| field.value.is_ok()), "{name}");
        for (sample, record) in all.iter().enumerate() {
            assert_eq!(reader.sample(sample as u64).await.unwrap(), (record.clone(), 0), "{name}");
        }
        let spread = read(&reader, LookAt::Spread(2)).await;
        assert!(!spread.is_empty() && spread.len() < all.len(), "{name}: {} of {samples}", spread.len());
        let mut rest = all.iter();
        assert!(spread.iter().all(|record| rest.any(|other| other == record)), "{name}");
        assert_eq!(read(&reader, LookAt::Spread(1000)).await, all, "{name}");
        let mut keys = HashMap::new();
        let note = |key: &str, sample| {
            keys.insert(key.to_owned(), sample);
        };
        reader.keys(note).await.unwrap();
        let numbered = all.iter().zip(0..).map(|(record, sample)| (record.key.clone(), sample));
        assert_eq!(keys, numbered.collect(), "{name}");
        if name.starts_with("tf.") {
            let text = |number: usize| FieldValue::One(Content::File(format!("Nümber {number}").into_bytes().into()));
            for (number, record) in all.iter().enumerate() {
                let field = record.fields.iter().find(|field| field.name == "text").unwrap();
                assert_eq!(field.value, Ok(text(number)), "{name}");
            }
        }
    }
}
