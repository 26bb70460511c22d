//! The files of a disk cache: their names, and the seal at their end.

use std::ops::Range;

use spdl_feed::cache::BlockKey;
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of the seal at the end of a file.
pub(super) const SEAL_BYTES: usize = 16;

/// Returns the name of the file of a block.
pub(super) fn file_name(key: &BlockKey) -> String {
    format!("blk-{}-{}", key.dataset, key.block)
}

/// Returns the block whose file has this name; `None` if it is none of ours.
pub(super) fn parse_name(name: &str) -> Option<BlockKey> {
    let (fingerprint, block) = name.strip_prefix("blk-")?.split_once('-')?;
    let dataset = Fingerprint(u128::from_str_radix(fingerprint, 16).ok()?);
    let key = BlockKey { dataset, block: block.parse().ok()? };
    (file_name(&key) == name).then_some(key)
}

/// Returns the name of a file that is being written: `blk-FINGERPRINT-N.PID-LIFE-COUNT.tmp`.
pub(super) fn temporary_name(key: &BlockKey, life: u32, count: u64) -> String {
    format!("{}.{}-{life}-{count}.tmp", file_name(key), std::process::id())
}

/// Whether a file with this name is being written, or was being written by a process that is gone.
pub(super) fn is_temporary(name: &str) -> bool {
    let parts = || {
        let (block, rest) = name.strip_suffix(".tmp")?.split_once('.')?;
        parse_name(block)?;
        let (pid, life) = rest.split_once('-')?;
        Some((pid.parse::<u32>().ok()?, life.split_once('-').map_or(life, |(life, _)| life).parse::<u32>().ok()?))
    };
    parts().is_some()
}

/// Returns the name of a dataset's marker: a file that the dataset's readers hold a lock on, which shows that the
/// dataset is in use.
pub(super) fn marker_name(dataset: Fingerprint) -> String {
    format!("spdl-cache-{dataset}.lock")
}

/// Returns the dataset whose marker has this name; `None` if it is none of ours.
pub(super) fn parse_marker_name(name: &str) -> Option<Fingerprint> {
    let fingerprint = name.strip_prefix("spdl-cache-")?.strip_suffix(".lock")?;
    let dataset = Fingerprint(u128::from_str_radix(fingerprint, 16).ok()?);
    (marker_name(dataset) == name).then_some(dataset)
}

/// The seal that a block's file must have, while its bytes come in.
pub(super) struct Seal(Xxh3);

impl Seal {
    /// Begins the seal of a block that consists of these parts of its shard.
    pub(super) fn new(key: &BlockKey, parts: &[Range<u64>]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(file_name(key).as_bytes());
        for part in parts {
            hash.update(&part.start.to_le_bytes());
            hash.update(&(part.end - part.start).to_le_bytes());
        }
        Self(hash)
    }

    /// Adds the bytes that follow.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; SEAL_BYTES] {
        self.0.digest128().to_le_bytes()
    }
}
