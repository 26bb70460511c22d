//! Tables of sizes: what a job reads of the samples that were measured in its dataset.

use bytes::Bytes;
use spdl_shard::{manifest::Manifest, sizes::SizeTable};
use spdl_types::{Fingerprint, SampleId};

use crate::{indexes::with_checksum, input::FuzzInput, sequences::manifest_of};

/// Where the fingerprint of the dataset is: `docs/spec/formats/sizes.md`.
const DATASET_AT: std::ops::Range<usize> = 40..56;

/// Checks that a table that opens has a size for each sample, and is what is written of these. The input is the number of the dataset's blocks,
/// the samples of each, and the file.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let blocks = usize::from(input.byte());
    let blocks: Vec<u32> = (0..blocks).map(|_| 1 + u32::from(input.byte())).collect();
    let manifest = manifest_of(&blocks);
    let open = |file: Vec<u8>| {
        let file = Bytes::from(file);
        SizeTable::open(file.clone(), Fingerprint::of(&file), &manifest)
    };
    let mut file = input.0.to_vec();
    let _ = open(file.clone());
    if let Some(dataset) = file.get_mut(DATASET_AT) {
        dataset.copy_from_slice(&manifest.fingerprint().0.to_le_bytes());
    }
    let Ok(sizes) = open(with_checksum(&file)) else { return };
    let all: Vec<u32> = (0..manifest.samples()).map(|sample| sizes.of(SampleId(sample))).collect();
    assert_eq!(made(&manifest, sizes.measured(), &all).fingerprint(), sizes.fingerprint());
}

fn made(manifest: &Manifest, measured: &str, sizes: &[u32]) -> SizeTable {
    SizeTable::new(manifest, measured, sizes).expect("the sizes of a dataset")
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |blocks: &[u32], measured: &str| {
        let samples = blocks.iter().sum();
        let sizes: Vec<u32> = (0..samples).map(|sample: u32| sample.wrapping_mul(0x9e37_79b9)).collect();
        let counts: Vec<u8> = blocks.iter().map(|samples| (samples - 1) as u8).collect();
        let made = made(&manifest_of(blocks), measured, &sizes);
        [&[blocks.len() as u8], &counts[..], made.file()].concat()
    };
    vec![seed(&[3, 1, 200], "pixels of [\"jpg\"]"), seed(&[1], ""), seed(&[], "1 * \"width\"")]
}
