//! A cache of blocks in a folder, with a byte budget. It touches only files that are named like its own. If the disk is
//! full or broken, it logs a warning, and blocks are fetched from the store.
//!
//! Several processes of a machine share a folder. Of each dataset, the blocks that came first stay; blocks of datasets
//! that no process reads any more make room for others, and datasets in use share the room.
//!
//! A file is named after the dataset's fingerprint and the block's number, and ends with a seal: a hash of that name,
//! the block's place in its shard, and its bytes. A file that a crash or another program damaged fails this check.

mod file;
mod folder;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_feed::cache::BlockKey;
use spdl_types::{Fingerprint, backoff::Backoff};

use self::{
    file::{SEAL_BYTES, seal},
    folder::CacheFolder,
};
use super::pieces::Pieces;
use crate::budget::DiskBudget;

/// Nothing is written for this long after a failure of the disk; the pause doubles with each further one.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));

/// The blocks on disk, by key. All methods block on disk I/O.
#[derive(Debug)]
pub(crate) struct DiskCache {
    folder: CacheFolder,
    /// How often each block was discarded as wrong. A block fetched before its last discard is not written.
    discards: Mutex<HashMap<BlockKey, u32>>,
    pause: Mutex<WritePause>,
    faults: AtomicU64,
}

/// The time during which nothing is written.
#[derive(Debug, Default)]
struct WritePause {
    since: Option<Instant>,
    failures: u32,
}

impl WritePause {
    fn is_on(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() < PAUSES.limit(self.failures))
    }

    /// Starts or lengthens the pause, and returns its length.
    fn extend(&mut self) -> Duration {
        self.failures += 1;
        self.since = Some(Instant::now());
        PAUSES.limit(self.failures)
    }
}

impl DiskCache {
    /// Opens the folder. If it cannot be used, logs a warning and returns `None`.
    pub(crate) fn open(budget: &DiskBudget) -> Option<Self> {
        match CacheFolder::open(&budget.directory, budget.bytes) {
            Ok(folder) => {
                Some(Self { folder, discards: Mutex::default(), pause: Mutex::default(), faults: AtomicU64::new(0) })
            }
            Err(error) => {
                let directory = budget.directory.display();
                tracing::warn!("disk cache `{directory}` cannot be used, going on without: {error}");
                None
            }
        }
    }

    /// Notes that one more rank reads a dataset.
    pub(crate) fn enter(&self, dataset: Fingerprint) {
        self.folder.enter(dataset);
    }

    /// Notes that a rank does not read a dataset any more.
    pub(crate) fn leave(&self, dataset: Fingerprint) {
        self.folder.leave(dataset);
    }

    /// Returns the block, which consists of these parts of its shard, if its file is present and its seal is right.
    pub(crate) fn read(&self, key: &BlockKey, parts: &[Range<u64>]) -> Option<Pieces> {
        self.folder.mark(key.dataset);
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        let read = match self.read_file(key, bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read,
        };
        let content = read.ok().filter(|file| {
            let (content, found) = file.split_at(bytes as usize);
            found == seal(key, parts, std::iter::once(content))
        });
        if content.is_none() {
            self.faults.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(file = %self.folder.path(key).display(), "not the block that it should be; fetching it again");
            // If the file cannot be removed, the next read finds it wrong again.
            let _ = self.folder.remove(key);
        }
        let content = Bytes::from(content?).slice(..bytes as usize);
        let mut at = 0;
        let pieces = parts.iter().map(|part| {
            let start = at;
            at += (part.end - part.start) as usize;
            (part.start, content.slice(start..at))
        });
        Some(Pieces::new(pieces.collect()))
    }

    /// Reads the file of a block of `bytes` bytes.
    fn read_file(&self, key: &BlockKey, bytes: u64) -> io::Result<Vec<u8>> {
        let path = self.folder.path(key);
        let length = fs::metadata(&path)?.len();
        if length != bytes + SEAL_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let content = fs::read(path)?;
        if content.len() as u64 == length { Ok(content) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Returns the bytes of the files, and the most that they have.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.folder.bytes()
    }

    /// Returns how many blocks had no room.
    pub(crate) fn refused(&self) -> u64 {
        self.folder.refused()
    }

    /// Whether nothing is written because the disk failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.pause.lock().is_on()
    }

    /// Returns the number of damaged files and of failed writes.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Returns how often the block was discarded as wrong. Must be called before the block is fetched.
    pub(crate) fn discards(&self, key: &BlockKey) -> u32 {
        self.discards.lock().get(key).copied().unwrap_or(0)
    }

    /// Writes a block that consists of these parts of its shard, if there is room for it. `discards` is the number of its
    /// discards before it was fetched. After a failure that making room does not repair, nothing is written for a while.
    pub(crate) fn write(&self, key: &BlockKey, parts: &[Range<u64>], pieces: &Pieces, discards: u32) {
        if self.pause.lock().is_on() {
            return;
        }
        let written = self.try_write(key, parts, pieces, discards).or_else(|error| {
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.folder.halve()?,
                io::ErrorKind::NotFound => fs::create_dir_all(self.folder.directory())?,
                _ => return Err(error),
            }
            self.try_write(key, parts, pieces, discards)
        });
        match written {
            Ok(()) => *self.pause.lock() = WritePause::default(),
            Err(error) => {
                self.faults.fetch_add(1, Ordering::Relaxed);
                let mut pause = self.pause.lock();
                if !pause.is_on() {
                    let (seconds, directory) = (pause.extend().as_secs(), self.folder.directory().display());
                    tracing::warn!(
                        "disk cache `{directory}` takes no blocks; trying again in {seconds} s, till then with what \
                         is there: {error}"
                    );
                }
            }
        }
    }

    fn try_write(&self, key: &BlockKey, parts: &[Range<u64>], pieces: &Pieces, discards: u32) -> io::Result<()> {
        self.folder.mark(key.dataset);
        let Some(mut created) = self.folder.create(key, pieces.bytes() + SEAL_BYTES as u64)? else { return Ok(()) };
        let mut write = || {
            for piece in pieces.iter() {
                created.file.write_all(piece)?;
            }
            created.file.write_all(&seal(key, parts, pieces.iter().map(|piece| &**piece)))
        };
        let written = write().and_then(|()| self.folder.publish(key, &created, || self.discards(key) == discards));
        written.inspect_err(|_| self.folder.abandon(key, &created))
    }

    /// Removes a block whose bytes are wrong.
    pub(crate) fn discard(&self, key: &BlockKey) {
        *self.discards.lock().entry(*key).or_default() += 1;
        // If the file cannot be removed, the block is read and discarded again.
        let _ = self.folder.remove(key);
    }
}
