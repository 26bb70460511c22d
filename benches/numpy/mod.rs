//! Datasets of long records: `.npy` files of numbers of one byte.

use std::{fs, path::Path};

use spdl_dataset::{IndexOptions, index};
use spdl_shard::{format::format_called, store::DatasetStore};

/// Writes `records` files with an array of so many bytes each, and indexes them.
pub(crate) async fn write(folder: &Path, records: u64, bytes: u64) {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({bytes},), }}");
    let padding = (128 - (10 + header.len() + 1) % 128) % 128;
    let header = format!("{header}{}\n", " ".repeat(padding));
    for record in 0..records {
        let mut file = b"\x93NUMPY\x01\0".to_vec();
        file.extend_from_slice(&(header.len() as u16).to_le_bytes());
        file.extend_from_slice(header.as_bytes());
        file.extend((0..bytes).map(|at| (record * 31 + at * 7 + (at >> 8)) as u8));
        fs::write(folder.join(format!("case_{record:05}.npy")), file).expect("a file");
    }
    let store = DatasetStore::create_with(folder.to_str().expect("UTF-8"), &Default::default()).expect("a folder");
    let options = IndexOptions { format: format_called("files"), ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.expect("files are indexed");
}

/// Returns the column of a job that reads them.
pub(crate) fn column(bytes: u64) -> String {
    format!("[[column]]\nname = \"x\"\nfrom = \"npy\"\ndecode = \"tensor\"\ndtype = \"u8\"\nshape = [{bytes}]\n")
}
