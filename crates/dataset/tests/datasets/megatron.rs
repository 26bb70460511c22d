//! Megatron's `.bin` and `.idx`: what is read of them, golden files and changes. `tests/python` reads what megatron-core writes.

use std::{fs, ops::Range, path::Path};

use bytes::Bytes;
use proptest::prelude::*;
use spdl_dataset::{
    DatasetError, DatasetReport, IndexOptions, Overwrite, ShardList, VerifyOptions, index, unpack, verify,
};
use spdl_shard::{
    format::{Content, FieldValue, ShardIndex, format_called, token_index::MAX_SHARD_DOCUMENTS},
    manifest::Manifest,
};
use spdl_types::{DType, Fingerprint};

use crate::files::{at, faults};

/// The types of tokens, by their codes from 1.
const DTYPES: [DType; 8] =
    [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::F32, DType::U16];

/// The content of a pair of files.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    /// The code of the type of the tokens.
    pub(crate) dtype: u8,
    /// The lengths of the sequences of each document.
    pub(crate) documents: Vec<Vec<u32>>,
    pub(crate) has_modes: bool,
}

impl Corpus {
    pub(crate) fn of(dtype: u8, documents: &[&[u32]]) -> Self {
        Self { dtype, documents: documents.iter().map(|lengths| lengths.to_vec()).collect(), has_modes: false }
    }

    fn width(&self) -> usize {
        DTYPES[usize::from(self.dtype) - 1].bytes()
    }

    /// Returns the bytes of the tokens.
    pub(crate) fn bin(&self) -> Vec<u8> {
        let tokens: u32 = self.documents.iter().flatten().sum();
        (0..tokens as usize * self.width()).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    pub(crate) fn idx(&self) -> Vec<u8> {
        let lengths: Vec<i32> = self.documents.iter().flatten().map(|length| *length as i32).collect();
        let mut idx = [b"MMIDIDX\0\0", &1_u64.to_le_bytes()[..], &[self.dtype]].concat();
        idx.extend((lengths.len() as u64).to_le_bytes());
        idx.extend((self.documents.len() as u64 + 1).to_le_bytes());
        lengths.iter().for_each(|length| idx.extend(length.to_le_bytes()));
        let mut at = 0_i64;
        for length in &lengths {
            idx.extend(at.to_le_bytes());
            at += i64::from(*length) * self.width() as i64;
        }
        let mut end = 0_i64;
        idx.extend(end.to_le_bytes());
        for document in &self.documents {
            end += document.len() as i64;
            idx.extend(end.to_le_bytes());
        }
        if self.has_modes {
            idx.extend((0..lengths.len()).map(|sequence| sequence as u8 % 3));
        }
        idx
    }

    pub(crate) fn write(&self, folder: &Path, stem: &str) {
        fs::write(folder.join(format!("{stem}.bin")), self.bin()).unwrap();
        fs::write(folder.join(format!("{stem}.idx")), self.idx()).unwrap();
    }

    /// Returns the tokens of each document, and its modes.
    fn expected(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (bin, mut at, mut sequence) = (self.bin(), 0, 0);
        let document = |lengths: &Vec<u32>| {
            let bytes = lengths.iter().sum::<u32>() as usize * self.width();
            let modes = sequence..sequence + lengths.len();
            (at, sequence) = (at + bytes, modes.end);
            (bin[at - bytes..at].to_vec(), modes.map(|sequence| sequence as u8 % 3).collect())
        };
        self.documents.iter().map(document).collect()
    }
}

pub(crate) fn options() -> IndexOptions {
    IndexOptions {
        overwrite: Overwrite::Replace,
        name: Some("tokens".into()),
        block_bytes: Some(64),
        ..IndexOptions::default()
    }
}

pub(crate) async fn indexed(folder: &Path) -> Result<DatasetReport, DatasetError> {
    index(&at(folder), &at(folder), &options(), &|_| {}).await
}

pub(crate) async fn refused(folder: &Path) -> String {
    indexed(folder).await.unwrap_err().to_string()
}

/// Reads a field of a record with the plan of its shard.
async fn read(
    folder: &Path,
    manifest: &Manifest,
    (shard, record): (u32, u32),
    index: &dyn ShardIndex,
    name: &str,
) -> FieldValue {
    let field = index.record(record).field(name).unwrap();
    let (shard, mut bytes) = (manifest.shard(shard), Vec::new());
    if let Some(range) = field.range().filter(|range| !range.is_empty()) {
        for part in index.plan(&shard, &[range]) {
            bytes.extend(at(folder).read_range(&part).await.unwrap());
        }
    }
    index.open(&field, &|_| Some(Bytes::from(bytes.clone()))).unwrap()
}

fn elements(value: FieldValue) -> (DType, Vec<u64>, Vec<u8>) {
    match value {
        FieldValue::One(Content::Array(array)) => (array.dtype, array.shape, array.elements.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Checks that each document of a dataset of this pair is read as it was written.
async fn check(folder: &Path, corpus: &Corpus, stem: &str) {
    let store = at(folder);
    let manifest = store.manifest().await.unwrap();
    let (expected, mut number) = (corpus.expected(), 0);
    // The modes of no sequences are no bytes, as those of files without modes.
    let has_modes = corpus.has_modes && corpus.documents.iter().any(|document| !document.is_empty());
    for (shard_number, shard) in (0..).zip(manifest.shards()) {
        let index = store.index(&shard).await.unwrap();
        assert_eq!(shard.url, format!("{stem}.bin/{shard_number:06}"));
        for record in 0..index.record_count() {
            assert_eq!(index.record(record).key, format!("{stem}/{number:06}").as_str());
            let place = (shard_number, record);
            let (dtype, shape, tokens) = elements(read(folder, &manifest, place, &*index, "tokens").await);
            assert_eq!(
                (dtype, shape),
                (DTYPES[usize::from(corpus.dtype) - 1], vec![(tokens.len() / corpus.width()) as u64])
            );
            assert_eq!(tokens, expected[number].0, "document {number}");
            assert_eq!(index.record(record).field("modes").is_some(), has_modes);
            if has_modes {
                let (dtype, _, modes) = elements(read(folder, &manifest, place, &*index, "modes").await);
                assert_eq!((dtype, modes), (DType::I8, expected[number].1.clone()), "document {number}");
            }
            number += 1;
        }
    }
    assert_eq!(number, expected.len());
}

#[tokio::test]
async fn documents_of_all_types_are_read_as_they_lie() {
    for dtype in 1..=8 {
        for has_modes in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let documents: &[&[u32]] = &[&[5], &[0], &[], &[3, 0, 4], &[1], &[40], &[], &[2]];
            let corpus = Corpus { has_modes, ..Corpus::of(dtype, documents) };
            corpus.write(folder.path(), "web_text");
            let report = indexed(folder.path()).await.unwrap();
            assert_eq!((report.shards, report.samples, report.empty_fields), (1, 8, 3));
            assert_eq!(report.fields.get("tokens"), Some(&8));
            assert_eq!(report.fields.contains_key("modes"), has_modes);
            assert_eq!(at(folder.path()).manifest().await.unwrap().format().name(), "megatron");
            check(folder.path(), &corpus, "web_text").await;
            assert_eq!(faults(folder.path()).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn documents_unpack_to_arrays_and_an_empty_file_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Corpus { has_modes: true, ..Corpus::of(8, &[&[5], &[2, 3], &[]]) };
    fs::create_dir(folder.path().join("a")).unwrap();
    corpus.write(folder.path(), "a/b");
    Corpus::of(8, &[]).write(folder.path(), "nothing");
    let report = indexed(folder.path()).await.unwrap();
    assert_eq!((report.shards, report.samples), (2, 3));
    let unpacked = tempfile::tempdir().unwrap();
    let files = unpacked.path().join("files");
    unpack(&at(folder.path()), &files, &|_| {}).await.unwrap();
    let read = |name: &str| fs::read(files.join(name)).unwrap();
    for (number, (tokens, modes)) in corpus.expected().iter().enumerate() {
        let [found, found_modes] = ["tokens", "modes"].map(|field| read(&format!("a/b/{number:06}.{field}")));
        assert!(found.starts_with(b"\x93NUMPY") && &found[128..] == tokens, "{number}");
        assert_eq!(&found_modes[128..], modes, "{number}");
    }
}

#[tokio::test]
async fn a_long_file_is_many_shards_that_are_parts_of_it() {
    let folder = tempfile::tempdir().unwrap();
    // More documents than a shard has, and than are read at once.
    let mut corpus = Corpus { has_modes: true, ..Corpus::of(1, &[]) };
    corpus.documents = (0..MAX_SHARD_DOCUMENTS as u32 + 5).map(|number| vec![number % 3]).collect();
    corpus.write(folder.path(), "many");
    let options = IndexOptions { block_bytes: Some(1 << 18), ..options() };
    let report = index(&at(folder.path()), &at(folder.path()), &options, &|_| {}).await.unwrap();
    assert_eq!((report.shards, report.samples), (2, MAX_SHARD_DOCUMENTS as u64 + 5));
    let (store, expected) = (at(folder.path()), corpus.expected());
    let manifest = store.manifest().await.unwrap();
    assert_eq!(manifest.shards().map(|shard| shard.bytes).sum::<u64>(), corpus.bin().len() as u64);
    for (place, number) in
        [((0, 0), 0), ((0, 524_288), 524_288), ((1, 0), MAX_SHARD_DOCUMENTS), ((1, 4), MAX_SHARD_DOCUMENTS + 4)]
    {
        let index = store.index(&manifest.shard(place.0)).await.unwrap();
        assert_eq!(index.record(place.1).key, format!("many/{number:06}").as_str());
        let (_, _, tokens) = elements(read(folder.path(), &manifest, place, &*index, "tokens").await);
        assert_eq!(tokens, expected[number].0);
    }
    assert_eq!(manifest.shards().map(|shard| shard.index_bytes).sum::<u64>(), {
        let documents = report.samples;
        // Of each document its end, the end of its modes, and a mode.
        2 * (88 + "many/".len() as u64) + documents * 9
    });

    // A `.bin` that has no bytes on disk.
    let sparse = tempfile::tempdir().unwrap();
    let lengths: Vec<&[u32]> = vec![&[30 << 20], &[30 << 20], &[10], &[90 << 20], &[1]];
    let corpus = Corpus::of(4, &lengths);
    fs::write(sparse.path().join("a.idx"), corpus.idx()).unwrap();
    let bin = fs::File::create(sparse.path().join("a.bin")).unwrap();
    bin.set_len(4 * ((150 << 20) + 11) + 3).unwrap();
    let report = indexed(sparse.path()).await.unwrap();
    let note = "`a.bin` has 3 bytes after its last document, which are not read";
    assert_eq!((report.shards, report.samples, &report.notes[..]), (3, 5, &[note.to_owned()][..]));
    let manifest = at(sparse.path()).manifest().await.unwrap();
    let shards: Vec<_> = manifest.shards().map(|shard| (shard.url.to_owned(), shard.records, shard.bytes)).collect();
    let mib = |tokens: u64| 4 * (tokens << 20);
    assert_eq!(
        shards,
        [
            ("a.bin/000000".to_owned(), 3, mib(60) + 40),
            ("a.bin/000001".to_owned(), 1, mib(90)),
            ("a.bin/000002".to_owned(), 1, 4),
        ]
    );
    let last = at(sparse.path()).index(&manifest.shard(2)).await.unwrap();
    let plan = last.plan(&manifest.shard(2), std::slice::from_ref(&(0..4)));
    assert_eq!(plan[0].range, mib(150) + 40..mib(150) + 44);
    assert_eq!((&plan[0].object.url[..], plan[0].object.bytes), ("a.bin", mib(150) + 47));
}

#[tokio::test]
async fn modes_are_found_wherever_a_long_shard_is_cut_for_reading() {
    let folder = tempfile::tempdir().unwrap();
    let corpus =
        Corpus { has_modes: true, ..Corpus::of(8, &[&[3 << 20], &[2 << 20, 1 << 20], &[], &[1, 2, 3], &[5 << 20]]) };
    corpus.write(folder.path(), "a");
    indexed(folder.path()).await.unwrap();
    let report = verify(&at(folder.path()), &VerifyOptions::default(), &|_| {}).await.unwrap();
    assert_eq!((report.faults, report.fields, report.records), (vec![], 10, 5));
    let unpacked = folder.path().join("unpacked");
    unpack(&at(folder.path()), &unpacked, &|_| {}).await.unwrap();
    for (number, (tokens, modes)) in corpus.expected().iter().enumerate() {
        let [found, found_modes] =
            ["tokens", "modes"].map(|field| fs::read(unpacked.join(format!("a/{number:06}.{field}"))).unwrap());
        assert!(&found[128..] == tokens && &found_modes[128..] == modes, "{number}");
    }
}

#[tokio::test]
async fn an_index_that_is_made_again_is_the_same_and_a_change_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Corpus::of(8, &[&[5], &[70], &[9]]);
    corpus.write(folder.path(), "a");
    let report = indexed(folder.path()).await.unwrap();
    assert_eq!(indexed(folder.path()).await.unwrap().fingerprint, report.fingerprint);
    let copy = tempfile::tempdir().unwrap();
    corpus.write(copy.path(), "a");
    assert_eq!(indexed(copy.path()).await.unwrap().fingerprint, report.fingerprint, "wherever it lies");
    let bin = corpus.bin();
    fs::write(copy.path().join("a.bin"), [&bin[..], &[7; 9]].concat()).unwrap();
    assert_eq!(indexed(copy.path()).await.unwrap().notes.len(), 1);
    assert_eq!(faults(copy.path()).await, Vec::<String>::new(), "of bytes behind the documents");
    fs::write(folder.path().join("a.bin"), &bin[..bin.len() - 2]).unwrap();
    let found = faults(folder.path()).await;
    assert!(found[0].ends_with("the shard changed: the manifest has 168 bytes, the store has 166 bytes"), "{found:?}");
    assert!(found[1].contains("a/000002") && found[1].contains("is cut off"), "{found:?}");
    assert_eq!(found.len(), 2);
    let manifest = at(folder.path()).manifest().await.unwrap();
    let index = at(folder.path()).index(&manifest.shard(0)).await.unwrap();
    let part = &index.plan(&manifest.shard(0), std::slice::from_ref(&(0..4)))[0];
    let error = at(folder.path()).read_range(part).await.unwrap_err().to_string();
    assert!(error.contains("168 bytes when it was indexed, 166 bytes in the store"), "{error}");
}

#[tokio::test]
async fn pairs_are_found_by_their_names_and_chosen_by_either() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Corpus::of(8, &[&[5], &[70]]);
    for stem in ["train_text", "valid_text", "_hidden"] {
        corpus.write(folder.path(), stem);
    }
    let error = refused(folder.path()).await;
    assert!(error.contains("`train` (1 shard)") || error.contains("train"), "{error}");
    for (shards, expected) in [(vec!["valid_text.bin"], 2), (vec!["valid_text.idx"], 2), (vec!["*_text.*"], 4)] {
        let names: Vec<String> = shards.iter().map(|name| (*name).to_owned()).collect();
        let options = IndexOptions { shards: ShardList::of_texts(&names), ..options() };
        let report = index(&at(folder.path()), &at(folder.path()), &options, &|_| {}).await.unwrap();
        assert_eq!(report.samples, expected, "{shards:?}");
    }
    fs::remove_file(folder.path().join("valid_text.bin")).unwrap();
    let all = IndexOptions { splits: spdl_dataset::Splits::All, ..options() };
    let error = index(&at(folder.path()), &at(folder.path()), &all, &|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("valid_text.idx` has no `valid_text.bin` beside it"), "{error}");
    let skipping = IndexOptions { skip_bad_shards: 1, ..all };
    let report = index(&at(folder.path()), &at(folder.path()), &skipping, &|_| {}).await.unwrap();
    assert_eq!((report.samples, &report.bad_shards[0].shard[..]), (2, "valid_text.bin"));
    fs::remove_file(folder.path().join("valid_text.idx")).unwrap();
    fs::remove_file(folder.path().join("train_text.idx")).unwrap();
    let error = refused(folder.path()).await;
    assert!(error.contains("train_text.bin` has no `train_text.idx` beside it"), "{error}");
}

/// The index that version 1 makes of a pair. A test run with `SPDL_WRITE_GOLDEN` set writes it if it is not there; never replace it.
const GOLDEN: &str = "tests/golden/tokens-v1.idx";

#[tokio::test]
async fn the_index_of_a_run_of_documents_is_made_and_read_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    Corpus { has_modes: true, ..Corpus::of(8, &[&[5], &[0], &[3, 4], &[]]) }.write(folder.path(), "set");
    indexed(folder.path()).await.unwrap();
    let made = fs::read(folder.path().join(".spdl/set.bin/000000.idx")).unwrap();
    if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !Path::new(GOLDEN).exists() {
        fs::write(GOLDEN, &made).unwrap();
    }
    let stored = fs::read(GOLDEN).unwrap();
    assert!(made == stored, "another index is made of the same files");
    let format = format_called("megatron").unwrap();
    let index = format.open_index(stored.clone().into(), Fingerprint::of(&stored)).unwrap();
    assert_eq!((&*index.record(2).key.text(), index.shard_bytes()), ("set/000002", 24));
    for at in 0..stored.len() {
        let mut other = stored.clone();
        other[at] ^= 1;
        assert!(format.open_index(other.into(), Fingerprint::of(&stored)).is_err(), "byte {at}");
    }
}

fn corpora() -> impl Strategy<Value = Corpus> {
    let lengths = prop_oneof![Just(0), Just(1), 0..20_u32, 0..400_u32];
    let document =
        prop_oneof![4 => prop::collection::vec(lengths.clone(), 1), 1 => prop::collection::vec(lengths, 0..5)];
    let documents = prop::collection::vec(document, 0..40);
    (1..=8_u8, documents, any::<bool>()).prop_map(|(dtype, documents, has_modes)| Corpus {
        dtype,
        documents,
        has_modes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_files_are_read_back_document_by_document(corpus in corpora(), block_bytes in 1..5000_u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            corpus.write(folder.path(), "set");
            let options = IndexOptions { block_bytes: Some(block_bytes), ..options() };
            index(&at(folder.path()), &at(folder.path()), &options, &|_| {}).await.unwrap();
            check(folder.path(), &corpus, "set").await;
            assert_eq!(faults(folder.path()).await, Vec::<String>::new());
            let manifest = at(folder.path()).manifest().await.unwrap();
            let blocks: Vec<Range<u32>> = (0..manifest.block_count())
                .map(|block| manifest.block(block))
                .map(|block| block.first_record..block.first_record + block.records)
                .collect();
            assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!(blocks.iter().map(|records| records.end - records.start).sum::<u32>() as usize, corpus.documents.len());
        });
    }
}
