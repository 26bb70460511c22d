//! Files of tokens of datatrove, and tokens alone: what is read of them, damage and hostile numbers.

use std::{fs, path::Path};

use bytes::Bytes;
use proptest::prelude::*;
use spdl_dataset::{DatasetError, DatasetReport, IndexOptions, index, unpack};
use spdl_shard::format::{Content, FieldValue, format_called};
use spdl_types::{DType, Fingerprint};

use crate::files::{at, faults};
use crate::megatron::options;

/// Documents, and the size of a token in bytes.
#[derive(Clone, Debug)]
struct Documents {
    lengths: Vec<u32>,
    width: usize,
    has_loss: bool,
}

impl Documents {
    fn total(&self) -> usize {
        self.lengths.iter().sum::<u32>() as usize
    }

    fn tokens(&self) -> Vec<u8> {
        (0..self.total() * self.width).map(|at| (at * 5 + at / 251) as u8).collect()
    }

    fn loss(&self) -> Vec<u8> {
        (0..self.total()).map(|at| u8::from(at % 7 > 2)).collect()
    }

    fn ends(&self) -> Vec<u64> {
        let mut end = 0;
        let next = |length: &u32| {
            end += u64::from(*length);
            end
        };
        self.lengths.iter().map(next).collect()
    }

    fn write(&self, folder: &Path, name: &str) {
        fs::write(folder.join(format!("{name}.ds")), self.tokens()).unwrap();
        fs::write(folder.join(format!("{name}.ds.metadata")), "gpt2|2\n1\n1 T").unwrap();
        write_ends(folder, name, &self.ends());
        if self.has_loss {
            fs::write(folder.join(format!("{name}.ds.loss")), self.loss()).unwrap();
        }
    }
}

fn write_ends(folder: &Path, name: &str, ends: &[u64]) {
    let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
    fs::write(folder.join(format!("{name}.ds.index")), ends).unwrap();
}

async fn indexed(folder: &Path, options: &IndexOptions) -> Result<DatasetReport, DatasetError> {
    index(&at(folder), &at(folder), options, &|_| {}).await
}

async fn refused(folder: &Path, options: &IndexOptions) -> String {
    indexed(folder, options).await.unwrap_err().to_string()
}

/// Reads all documents of a dataset of one shard in whole blocks, as workers do; returns type, tokens and mask of each.
async fn documents(folder: &Path) -> Vec<(DType, Vec<u8>, Option<Vec<u8>>)> {
    let manifest = at(folder).manifest().await.unwrap();
    assert_eq!(manifest.shard_count(), 1);
    let (shard, mut found) = (manifest.shard(0), Vec::new());
    let index = at(folder).index(&shard).await.unwrap();
    for block in manifest.shard_blocks(0).map(|block| manifest.block(block)) {
        let mut bytes = vec![0; block.bytes as usize];
        let range = block.offset..block.offset + block.bytes;
        for part in index.plan(&shard, std::slice::from_ref(&range)) {
            let read = at(folder).read_range(&part).await.unwrap();
            let start = (part.at - block.offset) as usize;
            bytes[start..start + read.len()].copy_from_slice(&read);
        }
        let bytes = Bytes::from(bytes);
        let slice = |range: std::ops::Range<u64>| {
            Some(bytes.slice((range.start - block.offset) as usize..(range.end - block.offset) as usize))
        };
        for number in block.first_record..block.first_record + block.records {
            let record = index.record(number);
            assert_eq!(record.key, format!("set/{number:06}").as_str());
            let open = |name: &str| record.field(name).map(|field| array(index.open(&field, &slice).unwrap()));
            let (dtype, tokens) = open("tokens").unwrap();
            found.push((dtype, tokens, open("loss").map(|(_, loss)| loss)));
        }
    }
    found
}

fn array(value: FieldValue) -> (DType, Vec<u8>) {
    match value {
        FieldValue::One(Content::Array(array)) => {
            assert_eq!(array.shape[0] as usize * array.dtype.bytes(), array.elements.len());
            (array.dtype, array.elements.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that each document is read as it was written.
async fn check(folder: &Path, written: &Documents, dtype: DType) {
    let (tokens, loss, found) = (written.tokens(), written.loss(), documents(folder).await);
    assert_eq!(found.len(), written.lengths.len());
    let mut start = 0;
    for (number, (end, found)) in written.ends().into_iter().zip(found).enumerate() {
        let (first, last) = (start * written.width, end as usize * written.width);
        let expected =
            (dtype, tokens[first..last].to_vec(), written.has_loss.then(|| loss[start..end as usize].to_vec()));
        assert_eq!(found, expected, "document {number}");
        start = end as usize;
    }
}

#[tokio::test]
async fn documents_of_datatrove_are_read_as_they_lie_with_their_masks() {
    for (width, dtype) in [(2, DType::U16), (4, DType::U32)] {
        for has_loss in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let written = Documents { lengths: vec![5, 0, 30, 1, 64, 2, 0], width, has_loss };
            written.write(folder.path(), "set");
            let report = indexed(folder.path(), &options()).await.unwrap();
            assert_eq!((report.shards, report.samples, report.empty_fields), (1, 7, 2));
            assert_eq!(report.fields.contains_key("loss"), has_loss);
            assert_eq!(at(folder.path()).manifest().await.unwrap().format().name(), "datatrove");
            check(folder.path(), &written, dtype).await;
            assert_eq!(faults(folder.path()).await, Vec::<String>::new());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let written = Documents { lengths: vec![5, 3], width: 2, has_loss: true };
    written.write(folder.path(), "set");
    indexed(folder.path(), &options()).await.unwrap();
    let unpacked = folder.path().join("unpacked");
    unpack(&at(folder.path()), &unpacked, &|_| {}).await.unwrap();
    let read = |name: &str| fs::read(unpacked.join(name)).unwrap();
    assert_eq!(read("set/000001.tokens")[128..], written.tokens()[10..]);
    assert_eq!(read("set/000001.loss")[128..], written.loss()[5..]);
}

#[tokio::test]
async fn ends_that_are_lies_and_files_that_are_cut_off_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let written = Documents { lengths: vec![5, 6, 7], width: 2, has_loss: true };
    let refused_with = async |ends: &[u64]| {
        written.write(folder.path(), "set");
        write_ends(folder.path(), "set", ends);
        refused(folder.path(), &options()).await
    };
    let error = refused_with(&[5, 4, 18]).await;
    assert!(error.contains("set.ds.index` has 4 as end of document 1, which begins at 5, of 18 tokens"), "{error}");
    let error = refused_with(&[1 << 63, 18]).await;
    assert!(error.contains("has 9223372036854775808 as end of document 0"), "{error}");
    let error = refused_with(&[5, 11, 17]).await;
    assert!(error.contains("set.ds` has 36 bytes, and the last document of its index ends at token 17"), "{error}");
    assert!(refused_with(&[5, 11, u64::MAX]).await.contains("ends at token 18446744073709551615"));
    written.write(folder.path(), "set");
    let ends = fs::read(folder.path().join("set.ds.index")).unwrap();
    fs::write(folder.path().join("set.ds.index"), &ends[..ends.len() - 1]).unwrap();
    assert!(refused(folder.path(), &options()).await.contains("set.ds.index` has 23 bytes, and each end has 8"));
    written.write(folder.path(), "set");
    fs::write(folder.path().join("set.ds.loss"), [1; 17]).unwrap();
    let error = refused(folder.path(), &options()).await;
    assert!(error.contains("set.ds.loss` has 17 bytes, one for each token, and `set.ds` has 18 tokens"), "{error}");
    fs::remove_file(folder.path().join("set.ds")).unwrap();
    assert!(refused(folder.path(), &options()).await.contains("has no `set.ds` beside it"));
    written.write(folder.path(), "set");
    indexed(folder.path(), &options()).await.unwrap();
    fs::write(folder.path().join("set.ds"), &written.tokens()[..34]).unwrap();
    fs::write(folder.path().join("set.ds.loss"), [1; 17]).unwrap();
    let found = faults(folder.path()).await;
    assert!(
        found.iter().any(|fault| fault.contains("36 bytes when it was indexed, 34 bytes in the store")),
        "{found:?}"
    );
}

#[tokio::test]
async fn tokens_alone_are_documents_by_their_end_token() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = [7_u16, 8, 9, 9, 1, 9, 4, 4];
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    fs::write(folder.path().join("set.npy"), &bytes).unwrap();
    fs::write(folder.path().join("set.csv.gz"), "no tokens").unwrap();
    let raw = IndexOptions { dtype: Some(DType::U16), end_token: Some(9), ..options() };
    let report = indexed(folder.path(), &raw).await.unwrap();
    let note = "`set.npy` does not end with the end token: what follows the last one is a document";
    assert_eq!((report.samples, &report.notes[..]), (4, &[note.to_owned()][..]));
    assert_eq!(at(folder.path()).manifest().await.unwrap().format().name(), "raw_tokens");
    let found: Vec<_> = documents(folder.path()).await.into_iter().map(|(_, tokens, _)| tokens).collect();
    assert_eq!(found, [&bytes[..6], &bytes[6..8], &bytes[8..12], &bytes[12..]]);
    assert_eq!(faults(folder.path()).await, Vec::<String>::new());
    // Another token, or the wrong type: no document of all tokens.
    for (token, dtype) in [(6, DType::U16), (9, DType::U32)] {
        let other = IndexOptions { dtype: Some(dtype), end_token: Some(token), ..options() };
        let error = refused(folder.path(), &other).await;
        let part =
            format!("set.npy` has no end token {token} in its {} tokens of type {}", 16 / dtype.bytes(), dtype.name());
        assert!(error.contains(&part), "{error}");
    }
}

#[tokio::test]
async fn what_tokens_alone_do_not_state_has_to_be_given() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.u32"), [0; 8]).unwrap();
    let error = refused(folder.path(), &options()).await;
    assert!(error.starts_with("`end_token` is not given, and `a.u32` does not state which token ends"), "{error}");
    let ended = IndexOptions { end_token: Some(0), ..options() };
    assert_eq!(indexed(folder.path(), &ended).await.unwrap().samples, 2);
    fs::write(folder.path().join("b.bin"), [0; 8]).unwrap();
    let error = refused(folder.path(), &ended).await;
    assert!(error.starts_with("`dtype` is not given, and `b.bin` does not state the type of its tokens"), "{error}");
    let wide = IndexOptions { dtype: Some(DType::U16), end_token: Some(70_000), ..options() };
    assert_eq!(refused(folder.path(), &wide).await, "`end_token` 70000 is no token of type u16");
    fs::write(folder.path().join("b.bin"), [0; 7]).unwrap();
    let both = IndexOptions { dtype: Some(DType::U32), ..ended.clone() };
    assert!(refused(folder.path(), &both).await.contains("b.bin` has 7 bytes, and tokens of type u32 have 4"));
    let other = IndexOptions { format: format_called("mds"), ..both };
    let error = refused(folder.path(), &other).await;
    assert_eq!(error, "`dtype` is for files of tokens alone (`--format raw_tokens`), and not for mds");
}

/// The index that version 1 makes of documents with masks. A test run with `SPDL_WRITE_GOLDEN` set writes it if it is not there; never
/// replace it.
const GOLDEN: &str = "tests/golden/tokens-loss-v1.idx";

#[tokio::test]
async fn the_index_of_documents_with_masks_is_made_and_read_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    Documents { lengths: vec![9, 0, 30, 7], width: 2, has_loss: true }.write(folder.path(), "set");
    indexed(folder.path(), &options()).await.unwrap();
    let made = fs::read(folder.path().join(".spdl/set.ds/000000.idx")).unwrap();
    if std::env::var_os("SPDL_WRITE_GOLDEN").is_some() && !Path::new(GOLDEN).exists() {
        fs::write(GOLDEN, &made).unwrap();
    }
    let stored = fs::read(GOLDEN).unwrap();
    assert!(made == stored, "another index is made of the same files");
    let index =
        format_called("datatrove").unwrap().open_index(stored.clone().into(), Fingerprint::of(&stored)).unwrap();
    let manifest = at(folder.path()).manifest().await.unwrap();
    assert_eq!((index.shard_bytes(), index.object(&manifest.shard(0))), (46 * 3, None), "it lies in two files");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_files_are_read_back_document_by_document(
        lengths in prop::collection::vec(prop_oneof![Just(0), 0..20_u32, 0..300_u32], 0..40),
        is_wide in any::<bool>(),
        has_loss in any::<bool>(),
        block_bytes in 1..3000_u64,
    ) {
        // Of no tokens, the size of one is not known.
        let is_wide = is_wide && lengths.iter().any(|length| *length > 0);
        let (width, dtype) = if is_wide { (4, DType::U32) } else { (2, DType::U16) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let written = Documents { lengths, width, has_loss };
            written.write(folder.path(), "set");
            let options = IndexOptions { block_bytes: Some(block_bytes), ..options() };
            indexed(folder.path(), &options).await.unwrap();
            check(folder.path(), &written, dtype).await;
            assert_eq!(faults(folder.path()).await, Vec::<String>::new());
        });
    }
}
