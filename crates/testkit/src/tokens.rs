//! Files of tokens as Megatron writes them.

use std::{fs, path::Path};

/// The code of `u16` among the types of tokens.
const U16: u8 = 8;

/// Writes `STEM.bin` and `STEM.idx` into a folder: each document is one sequence of 16-bit tokens.
///
/// # Panics
/// If the files cannot be written, or a document has more tokens than the format holds.
pub fn write_megatron(folder: &Path, stem: &str, documents: &[Vec<u16>]) {
    let count = documents.len() as u64;
    let mut idx = [b"MMIDIDX\0\0", &1_u64.to_le_bytes()[..], &[U16]].concat();
    idx.extend(count.to_le_bytes());
    idx.extend((count + 1).to_le_bytes());
    for document in documents {
        idx.extend(i32::try_from(document.len()).expect("a document of Megatron is shorter").to_le_bytes());
    }
    let mut at = 0;
    for document in documents {
        idx.extend(u64::to_le_bytes(at));
        at += 2 * document.len() as u64;
    }
    (0..=count).for_each(|end| idx.extend(end.to_le_bytes()));
    let bin: Vec<u8> = documents.iter().flatten().flat_map(|token| token.to_le_bytes()).collect();
    fs::write(folder.join(format!("{stem}.bin")), bin).expect("the tokens are written");
    fs::write(folder.join(format!("{stem}.idx")), idx).expect("the index is written");
}
