//! Tokens packed as Megatron's files: the bytes of these, where pairs end, their order, and what an interruption leaves.

use std::sync::Arc;

use proptest::prelude::*;
use spdl_dataset::{
    DatasetDocuments, DocumentSource, PackPart, ReadTokens, TokenEncoding, TokenPackOptions, TokenShardWriter,
    build_token_part, merge_tokens, pack_tokens, pack_tokens_until,
};
use spdl_shard::format::{Content, FieldValue};
use spdl_store::StoreLayer;
use spdl_testkit::tokens::write_megatron;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    interrupted::{Interrupted, Interruption, Writes},
    *,
};

/// Reads tokens of 16 bits, as a worker reads those of all types.
fn read(value: FieldValue) -> Result<Vec<u32>, String> {
    let FieldValue::One(Content::Array(array)) = value else { return Err("is no array".to_owned()) };
    Ok(array.elements.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect())
}

fn options(order: PackOrder) -> TokenPackOptions {
    let (reader, encoding): (ReadTokens, _) = (Arc::new(read), TokenEncoding::of_vocab(60_000).unwrap());
    let options = TokenPackOptions::new(vec!["other".to_owned(), "tokens".to_owned()], reader, encoding);
    TokenPackOptions { order, name: Some("corpus".into()), ..options }
}

/// Writes documents of these lengths as a dataset of two pairs, and returns them.
async fn corpus(folder: &Path, lengths: &[u16]) -> Vec<Vec<u16>> {
    let document = |(number, length): (usize, &u16)| (0..*length).map(|place| number as u16 * 3 + place).collect();
    let documents: Vec<Vec<u16>> = lengths.iter().enumerate().map(document).collect();
    fs::create_dir_all(folder).unwrap();
    let (first, second) = documents.split_at(documents.len() / 2);
    write_megatron(folder, "a", first);
    write_megatron(folder, "b", second);
    let options = IndexOptions { block_bytes: Some(100), ..IndexOptions::default() };
    index(&at(folder), &at(folder), &options, &quiet).await.unwrap();
    documents
}

/// Divides documents into pairs of at most so many bytes and documents, and writes these as a reference.
fn expected_pairs(folder: &Path, documents: &[Vec<u16>], bytes: u64, most: usize) {
    let mut pairs: Vec<Vec<Vec<u16>>> = Vec::new();
    for document in documents {
        let size = |pair: &[Vec<u16>]| pair.iter().map(|document| 2 * document.len() as u64).sum::<u64>();
        match pairs.last_mut() {
            Some(pair) if size(pair) + 2 * document.len() as u64 <= bytes && pair.len() < most => {
                pair.push(document.clone());
            }
            _ => pairs.push(vec![document.clone()]),
        }
    }
    fs::create_dir_all(folder).unwrap();
    pairs.iter().enumerate().for_each(|(number, pair)| write_megatron(folder, &format!("shard-{number:06}"), pair));
}

/// Returns the files of a folder that are data.
fn data(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    files(folder).into_iter().filter(|(name, _)| !name.starts_with(".spdl/")).collect()
}

/// Waits until uploads that were cancelled have removed their temporary files.
fn settled(folder: &Path) {
    let is_temporary =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().contains('#');
    while fs::read_dir(folder).is_ok_and(|mut entries| entries.any(is_temporary)) {
        std::thread::yield_now();
    }
}

fn shuffled(documents: &[Vec<u16>], seed: u64) -> Vec<Vec<u16>> {
    let mut numbers: Vec<u64> = (0..documents.len() as u64).collect();
    numbers.sort_by_key(|number| (xxh3_64_with_seed(&number.to_le_bytes(), seed), *number));
    numbers.iter().map(|number| documents[*number as usize].clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn pairs_are_those_of_megatron_and_a_dataset(
        lengths in proptest::collection::vec(prop_oneof![Just(0), 1..40_u16, Just(300)], 1..30),
        shard_bytes in prop_oneof![1..700_u64, Just(1 << 20)],
        shard_records in proptest::option::of(1..9_u32),
        seed in proptest::option::of(any::<u64>()),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let mut documents = corpus(&path("source"), &lengths).await;
            let order = seed.map_or(PackOrder::AsListed, |seed| PackOrder::Shuffled { seed });
            let options = TokenPackOptions { shard_bytes, shard_records, ..options(order) };
            let report = pack_tokens(&at(&path("source")), &at(&path("set")), &options, &quiet).await.unwrap();
            if let Some(seed) = seed {
                documents = shuffled(&documents, seed);
            }
            expected_pairs(&path("expected"), &documents, shard_bytes, shard_records.map_or(usize::MAX, |most| most as usize));
            assert_eq!(data(&path("set")), data(&path("expected")));
            assert_eq!(report.records as usize, documents.len());

            // Indexing the files again makes the same dataset.
            let indexing = IndexOptions { name: Some("corpus".into()), ..IndexOptions::default() };
            let again = index(&at(&path("expected")), &at(&path("expected")), &indexing, &quiet).await.unwrap();
            assert_eq!((report.fingerprint, &report.fields), (again.fingerprint, &again.fields));
            assert_eq!(files(&path("set")), files(&path("expected")));
            assert_eq!(verified(&path("set")).await.faults, []);
        });
    }
}

#[tokio::test]
async fn a_packing_of_tokens_that_is_interrupted_at_any_write_leaves_nothing_or_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    corpus(&path("source"), &[3, 0, 40, 7, 9, 100, 1, 0]).await;
    let once = TokenPackOptions { shard_records: Some(3), ..options(PackOrder::Shuffled { seed: 3 }) };
    pack_tokens(&at(&path("source")), &at(&path("expected")), &once, &quiet).await.unwrap();
    let expected = files(&path("expected"));
    let force = TokenPackOptions { overwrite: Overwrite::Replace, ..once.clone() };
    let source = at(&path("source"));
    for how in [Interruption::Kill, Interruption::FullDisk, Interruption::Once] {
        for write in 0.. {
            let to = path(&format!("{how:?}-{write}"));
            let writes = Writes::interrupted(how, write);
            let store = at(&to).through(|inner| Arc::new(Interrupted { inner, writes: Arc::clone(&writes) }).layered());
            let failed = tokio::select! {
                packed = pack_tokens(&source, &store, &once, &quiet) => packed.is_err(),
                () = writes.killed() => true,
            };
            settled(&to);
            let left = files(&to);
            let is_dataset = left.contains_key(".spdl/manifest.spdl");
            for (name, bytes) in left.iter().filter(|(name, _)| name.ends_with(".idx") && !name.starts_with(".spdl")) {
                assert_eq!(bytes, &expected[name], "{how:?} at write {write}");
                let bin = name.replace(".idx", ".bin");
                assert_eq!(left[&bin], expected[&bin], "{how:?} at write {write}: an index comes after its tokens");
            }
            if is_dataset {
                assert_eq!(verified(&to).await.faults, []);
                assert_eq!(data(&to), data(&path("expected")));
            } else {
                assert!(failed, "{how:?} at write {write} said nothing");
                assert!(
                    how == Interruption::Kill || left.is_empty(),
                    "{how:?} at write {write} left {:?}",
                    left.keys()
                );
                let begun = pack_tokens(&source, &at(&to), &once, &quiet).await;
                match begun {
                    Err(DatasetError::Unfinished { .. }) => {
                        pack_tokens(&source, &at(&to), &force, &quiet).await.unwrap();
                    }
                    begun => drop(begun.unwrap()),
                }
                assert_eq!(files(&to), expected, "{how:?} at write {write}");
            }
            if !writes.were_interrupted() {
                assert!(write > 10, "only {write} writes were interrupted");
                break;
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_overwritten_and_a_stopped_packing_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    corpus(&path("source"), &[3, 4]).await;
    let options = options(PackOrder::AsListed);
    let force = TokenPackOptions { overwrite: Overwrite::Replace, ..options.clone() };
    let packed = async |to: &Path, options: &TokenPackOptions| {
        pack_tokens(&at(&path("source")), &at(to), options, &quiet).await.map(drop)
    };
    packed(&path("set"), &options).await.unwrap();
    let before = files(&path("set"));
    assert!(matches!(packed(&path("set"), &options).await, Err(DatasetError::InUse { .. })));
    let refused = packed(&path("set"), &force).await.unwrap_err().to_string();
    assert!(refused.contains("does not replace a dataset by files of tokens"), "{refused}");
    assert_eq!(files(&path("set")), before);

    // Files of someone else.
    write(path("theirs/model.bin"), "weights");
    for options in [&options, &force] {
        assert!(matches!(packed(&path("theirs"), options).await, Err(DatasetError::InUse { .. })));
    }
    assert_eq!(files(&path("theirs")).len(), 1);

    let stop = std::future::ready(());
    let stopped = pack_tokens_until(&at(&path("source")), &at(&path("stopped")), &options, &quiet, stop).await;
    assert!(matches!(stopped, Err(DatasetError::Stopped { .. })));
    assert!(files(&path("stopped")).is_empty());
}

#[tokio::test]
async fn a_document_that_does_not_fit_is_named_and_nothing_of_it_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    corpus(&path("source"), &[3, 4, 200, 0]).await;
    let refused = async |options: &TokenPackOptions| {
        let packed = pack_tokens(&at(&path("source")), &at(&path("set")), options, &quiet).await;
        assert!(files(&path("set")).is_empty());
        packed.unwrap_err().to_string()
    };
    for order in [PackOrder::AsListed, PackOrder::Shuffled { seed: 0 }] {
        let small = TokenPackOptions { encoding: TokenEncoding::of_vocab(205).unwrap(), ..options(order) };
        assert_eq!(
            refused(&small).await,
            "shard `b.bin/000000`, document `b/000000`: field `tokens` has id 205 at place 199, from 0; `vocab` is 205, so ids are \
             from 0 to 204"
        );
        let other = TokenPackOptions { from: vec!["text".into(), "ids".into()], ..options(order) };
        assert_eq!(
            refused(&other).await,
            "shard `a.bin/000000`, document `a/000000`: it has no field `text` or `ids`; it has tokens: choose with --from"
        );
    }
    corpus(&path("empty"), &[]).await;
    let packed = pack_tokens(&at(&path("empty")), &at(&path("set")), &options(PackOrder::AsListed), &quiet).await;
    assert!(matches!(packed, Err(DatasetError::Nothing { .. })));
    assert!(files(&path("set")).is_empty());
}

#[tokio::test]
async fn a_writer_takes_documents_one_by_one_and_gives_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(folder.path());
    let wide = TokenEncoding::of_vocab(100_000).unwrap();
    let mut writer = TokenShardWriter::new(&store, wide, 7, 1 << 20, Some(2)).unwrap();
    let mut documents = wide.documents();
    [&[1, 99_999][..], &[], &[5]].into_iter().for_each(|ids| documents.push(ids).unwrap());
    for document in documents.iter() {
        writer.add(document).await.unwrap();
    }
    assert_eq!(writer.shards().len(), 1);
    writer.finish().await.unwrap();
    let found: Vec<_> = writer.shards().iter().map(|pair| (pair.name.as_str(), pair.documents, pair.tokens)).collect();
    assert_eq!(found, [("shard-000007.bin", 2, 2), ("shard-000008.bin", 1, 1)]);
    assert_eq!(fs::read(folder.path().join("shard-000007.bin")).unwrap(), [1, 0, 0, 0, 0x9f, 0x86, 1, 0]);
    writer.add(documents.iter().next().unwrap()).await.unwrap();
    writer.abort().await.unwrap();
    assert_eq!(names(folder.path()).len(), 4, "the pairs that were complete stay");
}

const EOS: u32 = 59_999;

/// Makes a part of a dataset, and returns the number of its documents.
async fn part(source: &Path, to: &Path, options: &TokenPackOptions, part: PackPart) -> Result<u64, DatasetError> {
    let documents: Arc<dyn DocumentSource> = Arc::new(DatasetDocuments::open(&at(source), options).await?);
    let (to, building, never) = (at(to), options.building(2), std::future::pending());
    Ok(build_token_part(&to, &documents, &building, part, &|_| (), never).await?.documents)
}

/// Returns the tokens of all files of a folder, in their order.
fn tokens(folder: &Path) -> Vec<u16> {
    let bins = data(folder).into_iter().filter(|(name, _)| name.ends_with(".bin"));
    bins.flat_map(|(_, bytes)| bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id)).collect::<Vec<_>>())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_dataset_have_the_documents_that_it_has_at_once_each_with_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let documents = corpus(&path("source"), &[3, 0, 40, 7, 9, 100, 1, 0]).await;
    let ended = documents
        .iter()
        .filter(|document| !document.is_empty())
        .map(|document| [&document[..], &[EOS as u16]].concat());
    let in_order: Vec<u16> = ended.clone().flatten().collect();
    let options = TokenPackOptions { eos: Some(EOS), ..options(PackOrder::AsListed) };
    pack_tokens(&at(&path("source")), &at(&path("once")), &options, &quiet).await.unwrap();
    assert_eq!(tokens(&path("once")), in_order);

    let mut made = 0;
    for number in 0..3 {
        made += part(&path("source"), &path("parts"), &options, PackPart::new(number, 3).unwrap()).await.unwrap();
    }
    assert_eq!(made, 6);
    let merged = merge_tokens(&at(&path("parts")), 2).await.unwrap().unwrap();
    assert_eq!((merged.dataset.records, merged.empty_documents, merged.tokens), (6, 2, in_order.len() as u64));
    assert_eq!(tokens(&path("parts")), in_order);
    assert_eq!(verified(&path("parts")).await.faults, []);

    let shuffled = TokenPackOptions { order: PackOrder::Shuffled { seed: 1 }, ..options };
    for count in [1, 2] {
        let to = path(&format!("shuffled-{count}"));
        for number in 0..count {
            part(&path("source"), &to, &shuffled, PackPart::new(number, count).unwrap()).await.unwrap();
        }
        merge_tokens(&at(&to), 1).await.unwrap().unwrap();
    }
    assert_eq!(data(&path("shuffled-1")), data(&path("shuffled-2")));
    let mut found: Vec<_> =
        tokens(&path("shuffled-1")).split_inclusive(|id| u32::from(*id) == EOS).map(<[u16]>::to_vec).collect();
    let mut expected: Vec<_> = ended.collect();
    assert_ne!(found, expected);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn wrong_ends_and_ids_and_other_options_of_a_part_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    corpus(&path("source"), &[5, 4]).await;
    let first = PackPart::new(0, 2).unwrap();
    let error = async |to: &str, options: TokenPackOptions| {
        part(&path("source"), &path(to), &options, first).await.unwrap_err().to_string()
    };
    let with_end = || TokenPackOptions { eos: Some(EOS), ..options(PackOrder::AsListed) };
    let beyond = TokenPackOptions { eos: Some(60_000), ..with_end() };
    assert_eq!(error("to", beyond).await, "`eos` is 60000, and `vocab` is 60000: ids are below that");
    let counted = TokenPackOptions { shard_records: Some(3), ..with_end() };
    assert!(error("to", counted).await.starts_with("`records-per-shard` is for a dataset that is packed at once"));
    let narrow = TokenPackOptions { encoding: TokenEncoding::of_vocab(4).unwrap(), ..options(PackOrder::AsListed) };
    let refused = error("narrow", narrow).await;
    assert!(refused.starts_with("shard `a.bin/000000`, document `a/000000`: field `tokens` "), "{refused}");

    part(&path("source"), &path("to"), &with_end(), first).await.unwrap();
    let other = error("to", options(PackOrder::AsListed)).await;
    assert!(other.contains("the appended token was `59999`, and is `none`"), "{other}");
}
