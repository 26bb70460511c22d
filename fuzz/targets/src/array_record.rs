//! ArrayRecord files, and the indexes that are made of them.

use std::ops::Range;

use bytes::Bytes;
use highway::{HighwayHash as _, HighwayHasher, Key};
use spdl_shard::format::{
    MadeIndex,
    array_record::{Footer, LAST_BLOCK_BYTES, RecordFields, fields_of, footer_range},
};

use crate::indexes::{decoded_file, decoded_index, part};

/// Where the first chunk begins in a file.
const FIRST_CHUNK: usize = 64;
const CHUNK_HEADER_BYTES: usize = 40;
const KEY: [u64; 4] = [0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572];

/// Checks that a file whose footer makes an index can be read by it from end to end, whatever its chunks are. The input is the
/// first block of a file; its chunks get the checksums that they need, and the last one is the footer.
pub(crate) fn file(data: &[u8]) {
    let _ = footer_range(&Bytes::copy_from_slice(data), data.len() as u64);
    let Some(file) = completed(data) else { return };
    if let Ok(made) = index_of(&file) {
        decoded_file("array_record", made, &file);
    }
}

/// Checks that an index that opens can be read from end to end.
pub(crate) fn index(data: &[u8]) {
    decoded_index("array_record", data);
}

/// Gives the chunks in the first block of a file right checksums, and the file an end that names the last of them as its
/// footer.
fn completed(data: &[u8]) -> Option<Vec<u8>> {
    let mut file = data.get(..data.len().min(LAST_BLOCK_BYTES as usize))?.to_vec();
    let (mut at, mut footer) = (FIRST_CHUNK, None);
    while let Some(bytes) = file.get(at + 8..at + 16) {
        let bytes = u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
        let end = usize::try_from(bytes).ok().and_then(|bytes| (at + CHUNK_HEADER_BYTES).checked_add(bytes));
        let Some(end) = end.filter(|end| *end <= file.len()) else { break };
        seal(&mut file[at..end]);
        footer = Some(at);
        at = end;
    }
    let mut postscript = vec![0; CHUNK_HEADER_BYTES];
    let message = [&[8], &varint(footer? as u64)[..], &[16], &varint(0x7193_0e70_4fda_e05e)].concat();
    postscript[8..16].copy_from_slice(&(message.len() as u64 + 3).to_le_bytes());
    postscript[24..32].copy_from_slice(&(1_u64 << 8 | u64::from(b'r')).to_le_bytes());
    postscript[32..40].copy_from_slice(&(message.len() as u64).to_le_bytes());
    // No compression, one byte of sizes, and the size.
    postscript.extend([0, 1, message.len() as u8]);
    postscript.extend(message);
    seal(&mut postscript);
    file.resize(LAST_BLOCK_BYTES as usize + 24, 0);
    file.extend(postscript);
    file.resize(2 * LAST_BLOCK_BYTES as usize, 0);
    Some(file)
}

/// Makes the checksums of a chunk right.
fn seal(chunk: &mut [u8]) {
    let hash = |bytes: &[u8]| HighwayHasher::new(Key(KEY)).hash64(bytes).to_le_bytes();
    let data = hash(&chunk[CHUNK_HEADER_BYTES..]);
    chunk[16..24].copy_from_slice(&data);
    let header = hash(&chunk[8..CHUNK_HEADER_BYTES]);
    chunk[..8].copy_from_slice(&header);
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Makes the index of a complete file.
fn index_of(file: &[u8]) -> Result<MadeIndex, String> {
    let part = |range: Range<u64>| part(file, range).expect("a part of the file");
    let bytes = file.len() as u64;
    let range = footer_range(&part(bytes - LAST_BLOCK_BYTES..bytes), bytes).expect("an end of our own");
    let at = range.start;
    let footer = Footer::parse(part(range), at)?;
    let fields = match footer.sampled() {
        Some(range) => fields_of(&footer, &part(range))?,
        None => RecordFields::Whole,
    };
    footer.index(bytes, &fields, "a.array_record/", 1 << 10)
}

/// Returns the first blocks of files that `array_record` wrote.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 4] = [
        include_bytes!("../../../crates/dataset/tests/golden/array_record/single.zst"),
        include_bytes!("../../../crates/dataset/tests/golden/array_record/brotli.zst"),
        include_bytes!("../../../crates/dataset/tests/golden/array_record/snappy.zst"),
        include_bytes!("../../../crates/dataset/tests/golden/array_record/examples.zst"),
    ];
    let first_block = |file: &[u8]| {
        let file = zstd::decode_all(file).expect("a file of ours");
        let block = &file[..LAST_BLOCK_BYTES as usize];
        let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        block[..end].to_vec()
    };
    files.into_iter().map(first_block).collect()
}
