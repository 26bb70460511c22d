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
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_feed::cache::BlockKey;
use spdl_types::{Fingerprint, backoff::Backoff};

use self::{
    file::{SEAL_BYTES, Seal},
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
    /// The files whose seal was right when parts of them were read.
    sealed: Mutex<HashMap<BlockKey, SealedFile>>,
    pause: Mutex<WritePause>,
    faults: AtomicU64,
}

/// Bytes of a file that are read at once to compare it with its seal.
const SEAL_READ_BYTES: usize = 1 << 20;

/// What tells a file from another that takes its place.
#[derive(Debug, PartialEq, Eq)]
struct SealedFile {
    number: u64,
    modified: (i64, i64),
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
                let (discards, sealed, pause) = Default::default();
                Some(Self { folder, discards, sealed, pause, faults: AtomicU64::new(0) })
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
        let content = self.read_file(key, |file| {
            let mut content = vec![0; total_bytes(parts) as usize];
            Ok(is_sealed(key, parts, file, &mut content)?.then_some(content))
        })?;
        let (content, mut at) = (Bytes::from(content), 0);
        let pieces = parts.iter().map(|part| {
            let start = at;
            at += (part.end - part.start) as usize;
            (part.start, content.slice(start..at))
        });
        Some(Pieces::new(pieces.collect()))
    }

    /// Returns ranges of the block, which consists of these parts of its shard, as [`read`](Self::read) does, without reading the rest of
    /// the file: it is compared with its seal before the first ranges of it are read, and then if it is another file. The
    /// [places](places_in_file) of the ranges are known.
    pub(crate) fn read_ranges(
        &self,
        key: &BlockKey,
        parts: &[Range<u64>],
        wanted: &[(Range<u64>, u64)],
    ) -> Option<Pieces> {
        let pieces = self.read_file(key, |file| {
            if !self.is_known_or_sealed(key, parts, file)? {
                return Ok(None);
            }
            let pieces = wanted.iter().map(|(range, place)| {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, *place)?;
                Ok((range.start, Bytes::from(bytes)))
            });
            pieces.collect::<io::Result<Vec<_>>>().map(Some)
        });
        pieces.map(Pieces::new)
    }

    /// Returns what `read` makes of the file of a block, if there is one. If `read` fails or returns `None`, the file is not the block that
    /// it should be, and is removed.
    fn read_file<T>(&self, key: &BlockKey, read: impl FnOnce(&mut fs::File) -> io::Result<Option<T>>) -> Option<T> {
        self.folder.mark(key.dataset);
        let opened = match fs::File::open(self.folder.path(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            opened => opened,
        };
        let read = opened.and_then(|mut file| read(&mut file)).ok().flatten();
        if read.is_none() {
            self.remove_damaged(key);
        }
        read
    }

    /// Returns whether an open file is the block that it should be. Reads it if that is not known.
    fn is_known_or_sealed(&self, key: &BlockKey, parts: &[Range<u64>], file: &mut fs::File) -> io::Result<bool> {
        let facts = file.metadata()?;
        let this = SealedFile { number: facts.ino(), modified: (facts.mtime(), facts.mtime_nsec()) };
        if self.sealed.lock().get(key) == Some(&this) {
            return Ok(true);
        }
        let is_right = is_sealed(key, parts, file, &mut vec![0; SEAL_READ_BYTES])?;
        if is_right {
            self.sealed.lock().insert(*key, this);
        }
        Ok(is_right)
    }

    /// Removes a file that is not the block that it should be.
    fn remove_damaged(&self, key: &BlockKey) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(file = %self.folder.path(key).display(), "not the block that it should be; fetching it again");
        // If the file cannot be removed, the next read finds it wrong again.
        let _ = self.folder.remove(key);
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
            let mut seal = Seal::new(key, parts);
            for piece in pieces.iter() {
                seal.update(piece);
                created.file.write_all(piece)?;
            }
            created.file.write_all(&seal.finish())
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

/// Returns whether an open file is the block that it should be, which consists of these parts of its shard. Its bytes are read into
/// `buffer`, one after the other if that is shorter.
fn is_sealed(key: &BlockKey, parts: &[Range<u64>], file: &mut fs::File, buffer: &mut [u8]) -> io::Result<bool> {
    let mut left = total_bytes(parts);
    if file.metadata()?.len() != left + SEAL_BYTES as u64 {
        return Ok(false);
    }
    let mut seal = Seal::new(key, parts);
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..most])?;
        seal.update(&buffer[..most]);
        left -= most as u64;
    }
    let mut found = [0; SEAL_BYTES];
    file.read_exact(&mut found)?;
    Ok(found == seal.finish())
}

/// Returns each range of a shard with its place in the file of a block that consists of these parts; `None` if one is not in the block,
/// as the videos of its records may be.
pub(crate) fn places_in_file(parts: &[Range<u64>], wanted: Vec<Range<u64>>) -> Option<Vec<(Range<u64>, u64)>> {
    let place = |range: &Range<u64>| {
        let nth = parts.iter().position(|part| part.start <= range.start && range.end <= part.end)?;
        Some(total_bytes(&parts[..nth]) + range.start - parts[nth].start)
    };
    wanted.into_iter().map(|range| place(&range).map(|place| (range, place))).collect()
}

fn total_bytes(parts: &[Range<u64>]) -> u64 {
    parts.iter().map(|part| part.end - part.start).sum()
}
