//! An `.idx` of Megatron in which a number is a lie, or that is cut off: each is named.

use std::fs;

use crate::megatron::{Corpus, indexed, refused};

/// The arrays of an `.idx` of three sequences in two documents of 16-bit tokens: lengths 4, 0, 3; pointers 0, 8, 8; documents 0, 1, 3.
const LENGTHS: usize = 34;
const POINTERS: usize = 34 + 12;
const DOCUMENTS: usize = 34 + 36;

#[tokio::test]
async fn every_number_that_is_a_lie_is_named() {
    let corpus = Corpus::of(8, &[&[4], &[0, 3]]);
    let folder = tempfile::tempdir().unwrap();
    corpus.write(folder.path(), "a");
    let lie = async |at: usize, value: &[u8]| {
        let mut idx = corpus.idx();
        idx[at..at + value.len()].copy_from_slice(value);
        fs::write(folder.path().join("a.idx"), idx).unwrap();
        let error = refused(folder.path()).await;
        assert!(error.contains("a.idx` has "), "{error}");
        error.split_once("a.idx` ").unwrap().1.to_owned()
    };
    let number = |value: i64| value.to_le_bytes();
    let cases: [(usize, Vec<u8>, &str); 18] = [
        (LENGTHS, (-5_i32).to_le_bytes().into(), "has the length -5 for sequence 0"),
        (
            LENGTHS + 8,
            i32::MAX.to_le_bytes().into(),
            "has the pointer 8 for sequence 2 of 2147483647 tokens, which ends at byte 4294967302, and its `.bin` has 14 bytes",
        ),
        (
            LENGTHS,
            3_i32.to_le_bytes().into(),
            "has the pointer 8 for sequence 1 of 0 tokens, and the sequence before it ends at byte 6: it leaves a gap",
        ),
        (
            LENGTHS,
            5_i32.to_le_bytes().into(),
            "has the pointer 8 for sequence 1 of 0 tokens, and the sequence before it ends at byte 10: it begins before",
        ),
        (POINTERS, number(-1).into(), "has the pointer -1 for sequence 0 of 4 tokens, before the start of its `.bin`"),
        (POINTERS + 16, number(i64::MIN).into(), "has the pointer -9223372036854775808 for sequence 2"),
        (
            POINTERS + 16,
            number(15).into(),
            "has the pointer 15 for sequence 2 of 3 tokens, past the end of its `.bin` of 14",
        ),
        (
            POINTERS + 16,
            number(i64::MAX).into(),
            "has the pointer 9223372036854775807 for sequence 2 of 3 tokens, past",
        ),
        (
            POINTERS + 16,
            number(0).into(),
            "has the pointer 0 for sequence 2 of 3 tokens, and the sequence before it ends at byte 8",
        ),
        (
            POINTERS,
            number(8).into(),
            "has the pointer 8 for sequence 0 of 4 tokens, and the sequence before it ends at byte 0",
        ),
        (DOCUMENTS, number(1).into(), "has 1 in entry 0 of its document index, which begins with 0"),
        (
            DOCUMENTS,
            number(-1).into(),
            "has -1 in entry 0 of its document index, and its sequences have the numbers 0 to 3",
        ),
        (DOCUMENTS + 8, number(4).into(), "has 4 in entry 1 of its document index, and its sequences have the numbers"),
        (DOCUMENTS + 8, number(i64::MAX).into(), "has 9223372036854775807 in entry 1 of its document index"),
        (
            DOCUMENTS + 16,
            number(2).into(),
            "has 2 in entry 2 of its document index, which is the last one, and there are 3",
        ),
        (
            DOCUMENTS + 16,
            number(0).into(),
            "has 0 in entry 2 of its document index, after 1: documents follow each other",
        ),
        (9, vec![3], "has the version 3, and 1 is read"),
        (17, vec![77], "has the type of tokens (dtype) 77, and 1 to 8 are known"),
    ];
    for (place, value, expected) in cases {
        let problem = lie(place, &value).await;
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[tokio::test]
async fn counts_of_any_size_and_files_that_are_cut_off_anywhere_are_refused() {
    let corpus = Corpus { has_modes: true, ..Corpus::of(8, &[&[4], &[0, 3]]) };
    let folder = tempfile::tempdir().unwrap();
    corpus.write(folder.path(), "a");
    indexed(folder.path()).await.unwrap();
    let (idx, bin) = (corpus.idx(), corpus.bin());
    for at in [18, 26] {
        for count in [1 << 63, u64::MAX, u64::MAX / 12, 1 << 32, 0, 2, 4] {
            let mut lie = idx.clone();
            lie[at..at + 8].copy_from_slice(&u64::to_le_bytes(count));
            fs::write(folder.path().join("a.idx"), lie).unwrap();
            let error = refused(folder.path()).await;
            assert!(error.contains("a.idx` "), "{error}");
        }
    }
    for length in 0..idx.len() {
        // Without its modes, an `.idx` is complete.
        if length != idx.len() - 3 {
            fs::write(folder.path().join("a.idx"), &idx[..length]).unwrap();
            let error = refused(folder.path()).await;
            assert!(error.contains("a.idx` is cut off: it has ") || error.contains("than its counts"), "{error}");
        }
    }
    fs::write(folder.path().join("a.idx"), b"\x00\x01 something else").unwrap();
    assert!(refused(folder.path()).await.contains("a.idx` is no `.idx` of Megatron"));
    fs::write(folder.path().join("a.idx"), &idx).unwrap();
    for length in 0..bin.len() {
        fs::write(folder.path().join("a.bin"), &bin[..length]).unwrap();
        let error = refused(folder.path()).await;
        let sizes = format!("its `.bin` has {length} bytes");
        assert!(error.contains(&sizes) || error.contains(&format!("of its `.bin` of {length} bytes")), "{error}");
    }
}
