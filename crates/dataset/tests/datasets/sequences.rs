//! Documents of several formats, measured and packed into sequences: what is read for that, what is left out, and what is refused.

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use parquet::{
    data_type::Int32Type,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{
    EvaluatedSequences, IndexOptions, LongDocuments, LossRequest, SequencePacking, SequenceRequest, evaluate_pools,
    evaluate_sequences, index,
    tar::{TAR_END, append_member},
};
use spdl_order::view::SampleSetBuilder;
use spdl_sequence::{LongDocument, PackMethod, Pools, SequenceParams};
use spdl_shard::{
    format::{Content, FieldValue},
    manifest::Manifest,
    samples::JobSamples,
    sequences::{LengthsAt, SequenceTable, open_sequences, save_sequences},
    store::DatasetStore,
};
use spdl_testkit::tokens::write_megatron;
use spdl_types::SampleId;

use crate::counting::counted;

use crate::files::at;

const DOCUMENTS: usize = 200;
/// One pool for all documents.
const ONE_POOL: u64 = 1 << 40;

/// Returns the tokens of a document: of some none, and of some more than a sequence has.
fn document(number: usize) -> Vec<u16> {
    (0..(number * number * 31 % 90) * usize::from(!number.is_multiple_of(9)))
        .map(|place| (number + place * 7) as u16)
        .collect()
}

fn lengths() -> Vec<u32> {
    (0..DOCUMENTS).map(|number| document(number).len() as u32).collect()
}

fn npy(tokens: &[u16]) -> Vec<u8> {
    let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({},), }}\n", tokens.len());
    let elements: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &elements].concat()
}

fn write_tar(folder: &Path, document: impl Fn(usize) -> Vec<u8>) {
    let mut tar = Vec::new();
    for number in 0..DOCUMENTS {
        append_member(&mut tar, &format!("{number:04}.npy"), &document(number));
        append_member(&mut tar, &format!("{number:04}.txt"), &[b'x'; 700]);
    }
    tar.extend(TAR_END);
    fs::write(folder.join("0.tar"), tar).unwrap();
}

/// Writes lists of numbers; `None` is a null.
fn write_parquet(folder: &Path, document: impl Fn(usize) -> Option<Vec<u16>>) {
    let schema = "message rows { optional group tokens (LIST) { repeated group list { required int32 element; } } }";
    let (schema, properties) = (parse_message_type(schema).unwrap(), WriterProperties::builder());
    let properties = properties.set_data_page_size_limit(512).set_write_batch_size(8).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
    for rows in [0..DOCUMENTS / 2, DOCUMENTS / 2..DOCUMENTS] {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for tokens in rows.map(&document) {
            let level = if tokens.is_some() { 1 } else { 0 };
            let tokens = tokens.unwrap_or_default();
            let levels = tokens.len().max(1);
            definitions.extend(vec![if tokens.is_empty() { level } else { 2 }; levels]);
            repetitions.extend((0..levels).map(|place| i16::from(place > 0)));
            values.extend(tokens.into_iter().map(i32::from));
        }
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    fs::write(folder.join("a.parquet"), writer.into_inner().unwrap()).unwrap();
}

/// Writes Megatron's pairs: two, with the documents in order.
fn write_pairs(folder: &Path) {
    let documents: Vec<Vec<u16>> = (0..DOCUMENTS).map(document).collect();
    write_megatron(folder, "a", &documents[..70]);
    write_megatron(folder, "b", &documents[70..]);
}

/// Indexes a folder, with new blocks if it was indexed before.
async fn indexed(folder: &Path, block_bytes: u64) -> Manifest {
    let _ = fs::remove_dir_all(folder.join(".spdl"));
    let options =
        IndexOptions { name: Some("texts".into()), block_bytes: Some(block_bytes), ..IndexOptions::default() };
    let report = index(&at(folder), &at(folder), &options, &|_| {}).await.unwrap();
    assert_eq!(report.samples as usize, DOCUMENTS);
    at(folder).manifest().await.unwrap()
}

/// Counts tokens as a worker does.
fn count(value: &FieldValue) -> Result<u64, String> {
    match value {
        FieldValue::One(Content::Array(array)) => Ok(array.shape[0]),
        FieldValue::One(Content::File(file)) if file.starts_with(b"\x93NUMPY") => {
            let elements = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
            Ok((file.len() - elements) as u64 / 2)
        }
        FieldValue::List(files) if files.is_empty() => Ok(0),
        _ => Err("it is no array".to_owned()),
    }
}

fn request(from: &str, long: LongDocument) -> SequenceRequest {
    let method = PackMethod::BestFit { align: 4, max_documents: Some(5), long };
    SequenceRequest {
        from: vec!["other".to_owned(), from.to_owned()],
        params: SequenceParams { version: 1, seq_len: 64, added_tokens: 1, method },
        pool_tokens: ONE_POOL,
        view: None,
        unread_allowed: 0,
        count: Arc::new(count),
        loss: None,
    }
}

async fn evaluated(
    store: &DatasetStore,
    manifest: &Manifest,
    request: SequenceRequest,
) -> Result<EvaluatedSequences, String> {
    evaluate_sequences(store, manifest, request, &|_| ()).await.map_err(|error| error.to_string())
}

/// Returns the lengths of all documents, as they are read from the dataset's folder.
async fn stored_lengths(store: &DatasetStore, manifest: &Manifest, found: &EvaluatedSequences) -> Vec<u32> {
    save_sequences(store, &found.made).await.unwrap();
    let table = open_sequences(store, manifest, found.table.view().cloned(), found.made.fingerprint).await.unwrap();
    let mut lengths = Vec::new();
    for pool in 0..table.pools().sequences().len() as u32 {
        lengths.extend(table.read_pool(store, pool).await.unwrap().lengths);
    }
    lengths
}

#[tokio::test]
async fn documents_of_all_formats_make_the_same_sequences_and_indexes_that_know_lengths_read_none() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    write_pairs(folders[0].path());
    write_parquet(folders[1].path(), |number| Some(document(number)));
    write_tar(folders[2].path(), |number| npy(&document(number)));
    for (folder, field, suffix, has_lengths) in [
        (&folders[0], "tokens", ".bin", true),
        (&folders[1], "tokens", ".parquet", false),
        (&folders[2], "npy", ".tar", false),
    ] {
        let mut fingerprints = Vec::new();
        for block_bytes in [1 << 9, 1 << 12, 1 << 23] {
            let manifest = indexed(folder.path(), block_bytes).await;
            let (store, read) = counted(at(folder.path()), suffix);
            for pool_tokens in [100, 1000, ONE_POOL] {
                let request = SequenceRequest { pool_tokens, ..request(field, LongDocument::Split) };
                let params = request.params;
                let found = evaluated(&store, &manifest, request.clone()).await.unwrap();
                let what = format!("{suffix}, blocks of {block_bytes}, pools of {pool_tokens}");
                assert_eq!((found.unread.records, found.bytes == 0), (0, has_lengths), "{what}");
                assert_eq!(read.load(Relaxed) == 0, has_lengths, "{what}");
                let lengths = lengths();
                assert_eq!(stored_lengths(&store, &manifest, &found).await, lengths, "{what}");
                let mut rest = &lengths[..];
                let blocks = manifest.block_samples();
                let blocks = blocks.iter().map(|samples| rest.split_off(..*samples as usize).unwrap());
                let expected = Pools::of_blocks(&params, pool_tokens, blocks).unwrap();
                assert_eq!(**found.table.pools(), Pools::new(expected_counts(&expected)).unwrap(), "{what}");
                assert_eq!(found.table.fill(), expected.fill(), "{what}");
                let facts = JobSamples::Sequences(found.table.clone()).facts(&manifest);
                assert_eq!((facts.samples, facts.fingerprint), (expected.fill().sequences, manifest.fingerprint()));
                let again = evaluated(&store, &manifest, request).await.unwrap();
                assert_eq!(again.made.fingerprint, found.made.fingerprint, "{what}");
                if pool_tokens == ONE_POOL {
                    assert_eq!(found.table.pools().sequences().len(), 1);
                    fingerprints.push(found.table.fill());
                }
            }
        }
        assert!(fingerprints.iter().all(|fill| *fill == fingerprints[0]), "{fingerprints:?}");
    }
}

/// Returns what a table has of pools: where each ends, and its sequences.
fn expected_counts(pools: &Pools) -> Vec<(u32, spdl_sequence::SequenceFill)> {
    let fill = |sequences: u32| spdl_sequence::SequenceFill { sequences: sequences.into(), ..Default::default() };
    let end = |pool: usize| pools.blocks(pool as u32).unwrap().end;
    pools.sequences().iter().enumerate().map(|(pool, sequences)| (end(pool), fill(*sequences))).collect()
}

#[tokio::test]
async fn documents_that_a_view_leaves_out_are_in_no_sequence_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let is_kept = |number: &usize| number % 5 == 2 || (100..130).contains(number);
    // Those that are left out cannot be read.
    write_tar(folder.path(), |number| if is_kept(&number) { npy(&document(number)) } else { b"damaged".repeat(30) });
    let manifest = indexed(folder.path(), 1 << 12).await;
    let mut builder = SampleSetBuilder::default();
    (0..DOCUMENTS).filter(is_kept).for_each(|number| builder.keep(SampleId(number as u64)).unwrap());
    let view = Arc::new(builder.finish(DOCUMENTS as u64).unwrap());
    let expected: Vec<u32> = (0..DOCUMENTS).filter(is_kept).map(|number| document(number).len() as u32).collect();
    let of_view = SequenceRequest { view: Some(view), pool_tokens: 500, ..request("npy", LongDocument::Split) };
    let store = at(folder.path());
    let found = evaluated(&store, &manifest, of_view.clone()).await.unwrap();
    assert_eq!(stored_lengths(&store, &manifest, &found).await, expected);
    assert_eq!((found.table.fill().documents, found.unread.records), (expected.len() as u64, 0));
    assert!(found.table.pools().sequences().len() > 1);
    let error = open_sequences(&store, &manifest, None, found.made.fingerprint).await.unwrap_err().to_string();
    assert!(error.contains("is of another dataset"), "{error}");
    let all = evaluated(&store, &manifest, SequenceRequest { view: None, ..of_view }).await.unwrap_err();
    assert_eq!(all, "shard `0.tar`, record `0000`: field `npy`: it is no array");
}

#[tokio::test]
async fn documents_that_cannot_be_read_are_empty_as_far_as_that_is_allowed() {
    let bad = [3, 77, 150];
    let [tars, rows] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    write_tar(tars.path(), |number| if bad.contains(&number) { b"damaged".to_vec() } else { npy(&document(number)) });
    write_parquet(rows.path(), |number| (!bad.contains(&number)).then(|| document(number)));
    let expected: Vec<u32> =
        lengths().into_iter().enumerate().map(|(number, length)| length * u32::from(!bad.contains(&number))).collect();
    for (folder, field, first, problem) in [
        (&tars, "npy", "shard `0.tar`, record `0003`: ", "field `npy`: it is no array"),
        (&rows, "tokens", "shard `a.parquet`, record `a/000003`: ", "field `tokens` has no value"),
    ] {
        let (manifest, store) = (indexed(folder.path(), 1 << 10).await, at(folder.path()));
        for allowed in [3, 4] {
            let allowing = SequenceRequest { unread_allowed: allowed, ..request(field, LongDocument::Truncate) };
            let found = evaluated(&store, &manifest, allowing).await.unwrap();
            assert_eq!(found.unread.records, 3);
            assert_eq!(found.unread.first, Some(format!("{first}{problem}")));
            assert_eq!(stored_lengths(&store, &manifest, &found).await, expected);
        }
        let error = evaluated(&store, &manifest, request(field, LongDocument::Truncate)).await.unwrap_err();
        assert_eq!(error, format!("{first}{problem}"));
        let two = SequenceRequest { unread_allowed: 2, ..request(field, LongDocument::Truncate) };
        let error = evaluated(&store, &manifest, two).await.unwrap_err();
        let hint = "; the packing leaves out 2 such records, and no more: `max_bad_fraction` of the job allows others";
        assert!(error.contains("150`: field") && error.ends_with(&format!("{problem}{hint}")), "{error}");
    }
}

#[tokio::test]
async fn a_field_that_no_record_has_and_documents_without_a_sequence_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    write_tar(folder.path(), |number| npy(&document(number)));
    let (manifest, store) = (indexed(folder.path(), 1 << 12).await, at(folder.path()));
    let error = evaluated(&store, &manifest, request("input_ids", LongDocument::Split)).await.unwrap_err();
    let expected = "shard `0.tar`, record `0000`: it has no field `other` or `input_ids`; it has npy, txt";
    assert_eq!(error, expected);

    let folder = tempfile::tempdir().unwrap();
    let documents: Vec<Vec<u16>> = (0..DOCUMENTS).map(|number| vec![7; 70 * usize::from(number % 4 == 1)]).collect();
    write_megatron(folder.path(), "a", &documents);
    let (manifest, store) = (indexed(folder.path(), 1 << 12).await, at(folder.path()));
    let error = evaluated(&store, &manifest, request("tokens", LongDocument::Drop)).await.unwrap_err();
    assert_eq!(
        error,
        "`sequence` makes no sequence of 64 tokens: of 200 documents 150 are empty, and 50 with 3550 tokens are left out; see \
         `seq_len` and `long`"
    );
    let chunk = SequenceRequest {
        params: SequenceParams { version: 1, seq_len: 1 << 20, added_tokens: 0, method: PackMethod::Chunk },
        ..request("tokens", LongDocument::Split)
    };
    let error = evaluated(&store, &manifest, chunk).await.unwrap_err();
    assert!(
        error.contains("makes no sequence of 1048576 tokens: of 200 documents 150 are empty, and 50 with 3500"),
        "{error}"
    );
    let zero = SequenceRequest { pool_tokens: 0, ..request("tokens", LongDocument::Split) };
    assert!(evaluated(&store, &manifest, zero).await.unwrap_err().contains("`pool_tokens` is 0"));
}

/// Returns whether a token is learned; of some documents none is.
fn is_learned(number: usize, place: usize) -> bool {
    !number.is_multiple_of(5) && (place * 7 + number).is_multiple_of(3)
}

/// Counts the ones of a mask, of one byte a token, in each piece of a document.
fn count_ones(mask: &FieldValue, tokens: u32) -> Result<Vec<u32>, String> {
    match mask {
        FieldValue::One(Content::File(mask)) if mask.len() == tokens as usize => {
            Ok(mask.chunks(64).map(|piece| piece.iter().map(|byte| u32::from(*byte)).sum()).collect())
        }
        _ => Err(format!("it has not {tokens} bytes")),
    }
}

#[tokio::test]
async fn masks_are_counted_piece_by_piece_and_documents_with_a_wrong_one_are_left_out() {
    let (folder, short, without) = (tempfile::tempdir().unwrap(), 31, 44);
    let mut tar = Vec::new();
    for number in 0..DOCUMENTS {
        let tokens = document(number).len();
        let mask: Vec<u8> = (0..tokens).map(|place| is_learned(number, place).into()).collect();
        append_member(&mut tar, &format!("{number:04}.npy"), &npy(&document(number)));
        if number != without {
            append_member(&mut tar, &format!("{number:04}.loss"), &mask[usize::from(number == short)..]);
        }
    }
    tar.extend(TAR_END);
    fs::write(folder.path().join("0.tar"), tar).unwrap();
    let store = at(folder.path());
    let loss = LossRequest { from: "loss".to_owned(), count: Arc::new(count_ones) };
    let (mut pieces, mut unlearned) = (Vec::new(), 0);
    for number in (0..DOCUMENTS).filter(|number| ![short, without].contains(number)) {
        let tokens: Vec<usize> = (0..document(number).len()).collect();
        let of_document: Vec<u32> = tokens
            .chunks(64)
            .map(|piece| piece.iter().filter(|place| is_learned(number, **place)).count() as u32)
            .collect();
        unlearned += u64::from(!tokens.is_empty() && of_document.iter().sum::<u32>() == 0);
        pieces.extend(of_document);
    }
    for (block_bytes, pool_tokens) in [(1 << 9, 100), (1 << 12, 1000), (1 << 23, ONE_POOL)] {
        let manifest = indexed(folder.path(), block_bytes).await;
        let masked = SequenceRequest {
            pool_tokens,
            unread_allowed: 2,
            loss: Some(loss.clone()),
            params: SequenceParams { added_tokens: 0, ..request("npy", LongDocument::Split).params },
            ..request("npy", LongDocument::Split)
        };
        let found = evaluated(&store, &manifest, masked.clone()).await.unwrap();
        let first = format!("shard `0.tar`, record `{short:04}`: field `loss`: it has not");
        let unread = (found.unread.records, found.unread.first.unwrap());
        assert!(unread.0 == 2 && unread.1.starts_with(&first), "{unread:?}");
        let error = evaluated(&store, &manifest, SequenceRequest { unread_allowed: 1, ..masked }).await.unwrap_err();
        // Of a block, the first is named.
        if block_bytes == 1 << 9 {
            let expected = format!("record `{without:04}`: it has no field `loss`, which `loss_from` names");
            assert!(error.contains(&expected), "{error}");
        }
        assert_eq!(found.first_unlearned.as_deref(), Some("shard `0.tar`, record `0005`"));
        let readable = (0..DOCUMENTS).filter(|number| ![short, without].contains(number));
        let are_long: Vec<usize> = readable.filter(|number| document(*number).len() > 64).collect();
        let longest = are_long.iter().map(|number| document(*number).len() as u64).max().unwrap();
        let first = format!("shard `0.tar`, record `{:04}`", are_long[0]);
        assert_eq!(found.long, LongDocuments { documents: are_long.len() as u64, longest, first: Some(first) });
        save_sequences(&store, &found.made).await.unwrap();
        let table = open_sequences(&store, &manifest, None, found.made.fingerprint).await.unwrap();
        let learned = table.learned().unwrap();
        let tokens = pieces.iter().copied().map(u64::from).sum();
        assert_eq!((learned.tokens, learned.unlearned_documents), (tokens, unlearned));
        let mut stored = Vec::new();
        for pool in 0..table.pools().sequences().len() as u32 {
            stored.extend(table.read_pool(&store, pool).await.unwrap().learned.unwrap());
        }
        assert_eq!(stored, pieces);
    }
}

#[tokio::test]
async fn a_packing_that_was_kept_is_read_by_who_packs_the_same_and_by_no_other() {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path());
    let (store, manifest) = (at(folder.path()), indexed(folder.path(), 1 << 9).await);
    let request = request("tokens", LongDocument::Split);
    let packing = SequencePacking { manifest: &manifest, view: None, request: &request, loss: "" };
    assert!(packing.kept(&store).await.is_none());
    let found = evaluated(&store, &manifest, request.clone()).await.unwrap();
    packing.made(&found).keep(&store).await.unwrap();
    let kept = packing.kept(&store).await.unwrap();
    assert_eq!((kept.table.fingerprint(), kept.table.fill()), (found.made.fingerprint, found.table.fill()));
    assert_eq!((kept.long, kept.first_unlearned), (found.long.clone(), None));
    assert_eq!(stored_lengths(&store, &manifest, &found).await, lengths());

    let params = SequenceParams { seq_len: 128, ..request.params };
    let [of_longer, of_pools, of_another] = [
        SequenceRequest { params, ..request.clone() },
        SequenceRequest { pool_tokens: 100, ..request.clone() },
        SequenceRequest { from: vec!["tokens".to_owned()], ..request.clone() },
    ];
    for other in [&of_longer, &of_pools, &of_another] {
        assert!(SequencePacking { request: other, ..packing }.kept(&store).await.is_none());
    }
    assert!(SequencePacking { view: Some(found.made.fingerprint), ..packing }.kept(&store).await.is_none());
    assert!(SequencePacking { loss: "masks", ..packing }.kept(&store).await.is_none());
    let other_blocks = indexed(folder.path(), 1 << 12).await;
    packing.made(&found).keep(&store).await.unwrap();
    assert!(SequencePacking { manifest: &other_blocks, ..packing }.kept(&store).await.is_none());

    // A table that is cut off is not used.
    let table = folder.path().join(format!(".spdl/sequences-{}.spdl", found.made.fingerprint));
    let bytes = fs::read(&table).unwrap();
    fs::write(&table, &bytes[..bytes.len() - 1]).unwrap();
    assert!(packing.kept(&store).await.is_none());
    packing.made(&found).keep(&store).await.unwrap();
    assert!(packing.kept(&store).await.is_some());
    // Nor is a note that is damaged, and packing again repairs it.
    let mut names = fs::read_dir(folder.path().join(".spdl")).unwrap().map(|entry| entry.unwrap().path());
    let note = names.find(|path| path.to_str().unwrap().contains("/packing-")).unwrap();
    let text = fs::read_to_string(&note).unwrap();
    let sequences = found.made.fingerprint.to_string();
    for damaged in [
        text[..text.len() - 1].to_owned(),
        String::new(),
        text.replace("\"version\":1", "\"version\":2"),
        text.replace(&sequences, &"0".repeat(sequences.len())),
        text.replace("\"packed\":\"", "\"packed\":\"x"),
    ] {
        assert_ne!(damaged, text);
        fs::write(&note, &damaged).unwrap();
        assert!(packing.kept(&store).await.is_none(), "{damaged}");
        packing.made(&found).keep(&store).await.unwrap();
        assert_eq!(fs::read_to_string(&note).unwrap(), text);
    }
}

#[tokio::test]
async fn lengths_that_indexes_have_are_read_there_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path());
    let (store, manifest) = (at(folder.path()), indexed(folder.path(), 1 << 9).await);
    let request = SequenceRequest {
        from: vec!["tokens".to_owned()],
        pool_tokens: 1000,
        ..request("tokens", LongDocument::Split)
    };
    let whole = evaluated(&store, &manifest, request.clone()).await.unwrap();
    let pools = async |request: &SequenceRequest, manifest: &Manifest, store: &DatasetStore| {
        evaluate_pools(store, manifest, request.clone(), &|_| ()).await.unwrap()
    };
    let found = pools(&request, &manifest, &store).await;
    assert_eq!((found.made.fingerprint, found.made.lengths), (whole.made.fingerprint, LengthsAt::Indexes));
    assert_eq!(found.made.file.len() + 4 * DOCUMENTS, whole.made.file.len());
    assert_eq!(found.table.fill(), whole.table.fill());
    let open = async |view| open_sequences(&store, &manifest, view, found.made.fingerprint).await;
    let name = |kind: &str| format!(".spdl/{kind}-{}.spdl", found.made.fingerprint);
    let missing = open(None).await.unwrap_err().to_string();
    assert!(missing.contains(&name("sequences")), "{missing}");

    let packing = SequencePacking { manifest: &manifest, view: None, request: &request, loss: "" };
    packing.made(&found).keep(&store).await.unwrap();
    let kept = packing.kept(&store).await.unwrap();
    assert_eq!((kept.table.fingerprint(), kept.table.fill()), (found.made.fingerprint, found.table.fill()));
    let in_memory = SequenceTable::of_memory(&found.made, &manifest, None).unwrap();
    for table in [&kept.table, &in_memory] {
        let (mut read, mut sequences) = (Vec::new(), Vec::new());
        for pool in 0..table.pools().sequences().len() as u32 {
            read.extend(table.read_pool(&store, pool).await.unwrap().lengths);
            sequences.push(table.layout(&store, request.params, pool).await.unwrap().0.sequences());
        }
        assert_eq!((read, &sequences[..]), (lengths(), whole.table.pools().sequences()));
        assert!(sequences.len() > 3, "pools of several shards, and shards of several pools");
    }
    // A view of the same number of documents is none of its.
    let mut builder = SampleSetBuilder::default();
    (0..DOCUMENTS).for_each(|number| builder.keep(SampleId(number as u64)).unwrap());
    let view = Some(Arc::new(builder.finish(DOCUMENTS as u64).unwrap()));
    assert!(open(view).await.unwrap_err().to_string().contains(&name("sequences")));

    // A file that is cut off or too long is none, and one whose lengths are others is not believed.
    let path = folder.path().join(name("pools"));
    let file = fs::read(&path).unwrap();
    for wrong in [&file[..file.len() - 1], &[&file[..], b"more"].concat()] {
        fs::write(&path, wrong).unwrap();
        assert!(open(None).await.unwrap_err().to_string().contains(&name("pools")), "{} bytes", wrong.len());
        assert!(packing.kept(&store).await.is_none());
    }
    fs::write(&path, &file).unwrap();
    let others = tempfile::tempdir().unwrap();
    let mut documents: Vec<Vec<u16>> = (0..DOCUMENTS).map(document).collect();
    documents.swap(1, 2);
    write_megatron(others.path(), "a", &documents[..70]);
    write_megatron(others.path(), "b", &documents[70..]);
    let of_others = indexed(others.path(), 1 << 9).await;
    let table = SequenceTable::of_memory(&found.made, &of_others, None).unwrap();
    let error = table.read_pool(&at(others.path()), 0).await.unwrap_err().to_string();
    assert!(error.contains("documents of pool 0 have other lengths"), "{error}");

    // A whole table is read rather than this one.
    save_sequences(&store, &whole.made).await.unwrap();
    fs::write(&path, b"").unwrap();
    assert_eq!(open(None).await.unwrap().fill(), whole.table.fill());

    // Of formats whose indexes do not have them, and of more fields than one, they are kept.
    let rows = tempfile::tempdir().unwrap();
    write_parquet(rows.path(), |number| Some(document(number)));
    let of_rows = indexed(rows.path(), 1 << 9).await;
    assert_eq!(pools(&request, &of_rows, &at(rows.path())).await.made.lengths, LengthsAt::Table);
    let of_fields = SequenceRequest { from: vec!["other".to_owned(), "tokens".to_owned()], ..request };
    let found = pools(&of_fields, &manifest, &store).await;
    assert_eq!((found.made.lengths, found.made.file), (LengthsAt::Table, whole.made.file));
}
