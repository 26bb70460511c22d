//! The keys of the records that a view keeps, from a file.

use std::{
    collections::HashSet,
    fmt,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
};

use spdl_job::KeyProblem;
use spdl_types::Fingerprint;

/// The most bytes of a list of keys.
const MAX_KEYS_BYTES: u64 = 1 << 30;
/// The most keys of a list, and the most different values of a field that has to be unique: 500 MiB of memory.
pub(super) const MAX_HASHES: usize = 1 << 24;
/// Number of missing keys that are named.
const MISSING_NAMED: usize = 3;

/// Wanted keys that no record has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKeys {
    /// Number of them.
    pub count: u64,
    /// The first few.
    pub first: Vec<String>,
}

impl fmt::Display for MissingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first.iter().map(|key| format!("`{}`", key.escape_debug())).collect::<Vec<_>>().join(", ");
        let more = if self.count > self.first.len() as u64 { ", ..." } else { "" };
        write!(f, "no record has {} of the keys of `view.keys`: {first}{more}", self.count)
    }
}

/// The wanted keys, by their hashes.
pub(super) struct ViewKeys {
    path: String,
    hashes: HashSet<u128>,
}

impl ViewKeys {
    pub(super) fn read(path: &str) -> Result<Self, KeyProblem> {
        let mut keys = Self { path: path.to_owned(), hashes: HashSet::new() };
        let mut hashes = HashSet::new();
        keys.each(|key| {
            hashes.insert(Fingerprint::of(key.as_bytes()).0);
            hashes.len() <= MAX_HASHES
        })?;
        if hashes.is_empty() || hashes.len() > MAX_HASHES {
            return Err(keys.wrong(format!("has no keys, or more than {MAX_HASHES}")));
        }
        keys.hashes = hashes;
        Ok(keys)
    }

    /// Calls `wanted` with each key, until it returns false.
    fn each(&self, mut wanted: impl FnMut(&str) -> bool) -> Result<(), KeyProblem> {
        let unreadable = |error: std::io::Error| self.wrong(format!("cannot be read: {error}"));
        // To open a pipe would wait for somebody to write to it, and a device may have no end.
        let metadata = std::fs::metadata(&self.path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(self.wrong("is no regular file; write the keys into one".to_owned()));
        }
        if metadata.len() > MAX_KEYS_BYTES {
            return Err(self.wrong(format!("has {} bytes; the most is {MAX_KEYS_BYTES}", metadata.len())));
        }
        let file = File::open(&self.path).map_err(unreadable)?;
        for line in BufReader::new(file.take(MAX_KEYS_BYTES)).lines() {
            let line = line.map_err(unreadable)?;
            let key = line.trim();
            if !key.is_empty() && !wanted(key) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the wanted keys that are not among those that were `found`.
    pub(super) fn missing(&self, found: &HashSet<u128>) -> Result<Option<MissingKeys>, KeyProblem> {
        let count = (self.hashes.len() - found.len()) as u64;
        let mut first: Vec<String> = Vec::new();
        if count == 0 {
            return Ok(None);
        }
        self.each(|key| {
            if !found.contains(&Fingerprint::of(key.as_bytes()).0) && !first.iter().any(|other| other == key) {
                first.push(key.to_owned());
            }
            first.len() < MISSING_NAMED
        })?;
        Ok(Some(MissingKeys { count, first }))
    }

    fn wrong(&self, problem: String) -> KeyProblem {
        ("keys", format!("`{}` {problem}", self.path))
    }

    /// Returns the hash of a key if it is wanted.
    pub(super) fn find(&self, key: &str) -> Option<u128> {
        let hash = Fingerprint::of(key.as_bytes()).0;
        self.hashes.contains(&hash).then_some(hash)
    }
}
