//! Files of tokens: the `.idx` of Megatron, and the indexes that are made of runs of documents.

use bytes::Bytes;
use spdl_shard::format::{
    OpenError, ShardIndex, format_called,
    megatron::{IdxDocuments, IdxHeader, IdxReader, IdxSequences, IdxWants},
    token_files::{DsEnds, EndToken, EndTokenReader},
    token_index::TokenRun,
};
use spdl_types::{DType, Fingerprint};

use crate::{
    indexes::{check_plan, manifest_of, opened},
    input::FuzzInput,
};

/// Checks that an `.idx` reads the same in pieces of any size, and that the indexes of its shards can be read from end to end. The
/// input is the size of the `.bin`, the size of pieces, and the `.idx`.
pub(crate) fn megatron(data: &[u8]) {
    let mut input = FuzzInput(data);
    let bin_bytes = (0..6).fold(0, |bytes, _| bytes << 8 | u64::from(input.byte()));
    let piece = 1 + u64::from(input.byte());
    let idx = Bytes::copy_from_slice(input.0);
    let Ok(header) = IdxHeader::read(&idx, idx.len() as u64) else { return };
    let whole = parts(&idx, header, bin_bytes, u64::MAX);
    let pieces = parts(&idx, header, bin_bytes, piece);
    assert_eq!(whole.as_ref().err(), pieces.as_ref().err());
    let (Ok(whole), Ok(pieces)) = (whole, pieces) else { return };
    assert_eq!(whole.iter().map(|part| u64::from(part.documents())).sum::<u64>(), header.entries - 1);
    assert_eq!(whole.len(), pieces.len());
    for (part, other) in whole.iter().zip(&pieces) {
        let facts = part.facts(header.dtype, bin_bytes, "a/");
        let (index, hash) = facts.index().expect("documents that were read make an index");
        assert_eq!(other.facts(header.dtype, bin_bytes, "a/").index().expect("the same").1, hash);
        let index = format_called("megatron").expect("a format").open_index(index, hash);
        read(&*index.expect("an index that was made can be opened"));
    }
}

/// Reads the documents of an `.idx` in pieces of at most so many elements.
fn parts(idx: &Bytes, header: IdxHeader, bin_bytes: u64, piece: u64) -> Result<Vec<TokenRun>, String> {
    let (mut reader, mut found) = (IdxReader::new(header, bin_bytes), Vec::new());
    let (mut sequences, mut entries) = (IdxSequences::default(), IdxDocuments::default());
    let (mut sequence, mut entry) = (0, 0);
    let slice = |range: std::ops::Range<u64>| idx.slice(range.start as usize..range.end as usize);
    loop {
        match reader.read(&mut sequences, &mut entries, &mut found)? {
            IdxWants::Sequences if sequence < header.sequences => {
                let some = sequence..sequence.saturating_add(piece).min(header.sequences);
                let [lengths, pointers, modes] =
                    [header.lengths(&some), header.pointers(&some), header.modes(&some)].map(slice);
                (sequences, sequence) = (IdxSequences::new(lengths, pointers, modes), some.end);
            }
            IdxWants::Documents if entry < header.entries => {
                let some = entry..entry.saturating_add(piece).min(header.entries);
                (entries, entry) = (IdxDocuments::new(slice(header.document_index(&some))), some.end);
            }
            _ => break,
        }
    }
    found.extend(reader.finish()?.0);
    Ok(found)
}

/// Checks that ends of datatrove and tokens alone read the same in chunks of any size, and that tokens alone are all in documents.
/// The input is the size of chunks, an end token, and the file.
pub(crate) fn token_files(data: &[u8]) {
    let mut input = FuzzInput(data);
    let (chunk, token) = (1 + usize::from(input.byte()), i64::from(input.byte()));
    let file = input.0;
    let limit = file.len() as u64;
    let ends = |chunk: usize| {
        let (mut reader, mut runs) = (DsEnds::new(DType::U16, limit), Vec::new());
        for ends in file.chunks(8 * chunk) {
            reader.read(ends, &mut runs)?;
        }
        runs.extend(reader.finish());
        Ok::<_, String>(hashes(&runs, DType::U16, 2 * limit))
    };
    assert_eq!(ends(chunk), ends(file.len().max(1)));
    for dtype in [DType::U8, DType::U16, DType::U32, DType::I64] {
        let end = EndToken::new(dtype, token & 0x7f).expect("a token of any type");
        let raw = |chunk: usize| {
            let (mut reader, mut runs) = (EndTokenReader::new(end), Vec::new());
            for bytes in file.chunks(chunk) {
                reader.read(bytes, &mut runs)?;
            }
            reader.finish(&mut runs)?;
            let tokens = runs.iter().filter_map(|run| run.facts(dtype, limit, "").ends.last().copied());
            assert_eq!(tokens.map(u64::from).sum::<u64>() * dtype.bytes() as u64, limit);
            Ok::<_, String>(hashes(&runs, dtype, limit))
        };
        // In chunks of a few bytes, a header is not recognised.
        assert_eq!(raw(chunk.max(6)), raw(file.len().max(6)));
    }
}

/// Returns the hash of the index of each run.
fn hashes(runs: &[TokenRun], dtype: DType, file_bytes: u64) -> Vec<Fingerprint> {
    let index = |run: &TokenRun| run.facts(dtype, file_bytes, "a/").index();
    runs.iter().map(|run| index(run).expect("documents that were found make an index").1).collect()
}

pub(crate) fn token_files_seeds() -> Vec<Vec<u8>> {
    let ends: Vec<u8> = [0_u64, 3, 3, 20].iter().flat_map(|end| end.to_le_bytes()).collect();
    vec![
        [&[0, 3], &ends[..]].concat(),
        [&[6, 9], &[9_u8, 0, 1, 0, 9, 0, 0, 0][..]].concat(),
        b"\x05\x07\x93NUMPY\x01\x00".to_vec(),
    ]
}

/// Checks that an index that opens can be read from end to end.
pub(crate) fn index(data: &[u8]) {
    if let Some(index) = opened("megatron", data) {
        read(&*index);
    }
}

/// Reads the fields of all records of an index, with bytes of their size, and plans the reading of the whole shard.
fn read(index: &dyn ShardIndex) {
    let manifest = manifest_of("megatron", index);
    check_plan(index, &manifest, &(0..index.shard_bytes()));
    let mut end = 0;
    for record in index.records() {
        for field in record.fields() {
            assert_eq!(record.field(field.name), Some(field), "{record:?}");
            if let Some(range) = field.range() {
                check_plan(index, &manifest, &range);
            }
            if field.bytes < 1 << 16 {
                let bytes = Bytes::from(vec![0; field.bytes as usize]);
                let value = index.open(&field, &|_| Some(bytes.clone())).expect("all bytes are there");
                assert_eq!(value.size(), field.bytes as usize);
            }
            if field.value.is_none() && field.bytes > 0 {
                let cut = index.open(&field, &|_| Some(Bytes::new()));
                assert!(matches!(cut, Err(OpenError::Malformed(_))), "{record:?}");
            }
        }
        let tokens = record.field("tokens").and_then(|field| field.range()).expect("a document has tokens");
        assert!(tokens.start >= end, "{record:?}");
        end = tokens.end;
    }
    let last = index.sample_count().checked_sub(1);
    assert!(last.is_none_or(|last| index.locate(last) == (last, 0)));
}

/// Makes an `.idx` of these lengths of sequences, in documents that end at these sequences, with an input's first bytes.
fn idx(dtype: u8, lengths: &[i32], ends: &[i64], modes: &[u8]) -> Vec<u8> {
    const WIDTHS: [i64; 8] = [1, 1, 2, 4, 8, 8, 4, 2];
    let width = WIDTHS[usize::from(dtype) - 1];
    let mut file = vec![0, 0, 0, 0, 1, 0, 1];
    file.extend(b"MMIDIDX\0\0");
    file.extend(1_u64.to_le_bytes());
    file.push(dtype);
    file.extend((lengths.len() as u64).to_le_bytes());
    file.extend((ends.len() as u64 + 1).to_le_bytes());
    lengths.iter().for_each(|length| file.extend(length.to_le_bytes()));
    let mut at = 0_i64;
    for length in lengths {
        file.extend(at.to_le_bytes());
        at += i64::from(*length) * width;
    }
    file.extend(0_i64.to_le_bytes());
    ends.iter().for_each(|end| file.extend(end.to_le_bytes()));
    file.extend(modes);
    file
}

pub(crate) fn megatron_seeds() -> Vec<Vec<u8>> {
    vec![idx(8, &[4, 0, 3, 20], &[1, 1, 3, 4], &[]), idx(4, &[4, 0, 3], &[1, 2, 3], &[0, 1, 0]), idx(1, &[], &[], &[])]
}
