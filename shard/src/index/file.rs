//! The index of a shard as it is going to be stored: in memory, or in temporary files if it is long.

use bytes::Bytes;
use spdl_store::TemporaryError;
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    envelope::{FileKind, HEAD_BYTES, head},
    index::Spool,
};

/// The bytes of an index.
#[derive(Debug)]
pub struct IndexFile {
    /// Its parts, one after the other.
    parts: Vec<Spool>,
    bytes: u64,
    hash: Fingerprint,
}

impl IndexFile {
    /// Returns the index of these bytes, which have this hash.
    #[must_use]
    pub fn of(bytes: Bytes, hash: Fingerprint) -> Self {
        Self { bytes: bytes.len() as u64, parts: vec![Vec::from(bytes).into()], hash }
    }

    /// Puts the head of an envelope before the parts of its content.
    pub(crate) fn sealed(
        kind: &'static FileKind,
        version: u32,
        mut content: Vec<Spool>,
    ) -> Result<Self, TemporaryError> {
        let bytes = HEAD_BYTES as u64 + content.iter().map(Spool::len).sum::<u64>();
        let head = head(kind, version, bytes, hash(&content)?);
        content.insert(0, head.to_vec().into());
        Ok(Self { hash: Fingerprint(hash(&content)?), parts: content, bytes })
    }

    /// Wraps this index into a file of another kind, after `content`.
    pub(crate) fn enclosed(self, kind: &'static FileKind, content: Vec<u8>) -> Result<Self, TemporaryError> {
        Self::sealed(kind, kind.version, std::iter::once(content.into()).chain(self.parts).collect())
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the hash of all bytes.
    #[must_use]
    pub const fn hash(&self) -> Fingerprint {
        self.hash
    }

    /// Iterates over the bytes, in pieces of at most one MiB.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>, TemporaryError>> + Send + '_ {
        self.parts.iter().flat_map(Spool::pieces)
    }

    /// Reads all of it into memory.
    ///
    /// # Errors
    /// If its temporary file cannot be read.
    pub fn read(&self) -> Result<Bytes, TemporaryError> {
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        for piece in self.pieces() {
            bytes.extend(piece?);
        }
        Ok(bytes.into())
    }
}

/// Returns the XXH3-128 of parts that follow each other.
fn hash(parts: &[Spool]) -> Result<u128, TemporaryError> {
    let mut hasher = Xxh3::new();
    for piece in parts.iter().flat_map(Spool::pieces) {
        hasher.update(&piece?);
    }
    Ok(hasher.digest128())
}
