//! A cache of blocks in a folder, with a byte budget. It touches only files that are named like its own. If the disk is
//! full or broken, it logs a warning, and blocks are fetched from the store.
//!
//! A file is named after the dataset's fingerprint and the block's number, and ends with a seal: a hash of that name,
//! the block's place in its shard, and its bytes. A file that a crash or another program damaged fails this check.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Write},
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_core::{Fingerprint, backoff::Backoff};
use xxhash_rust::xxh3::Xxh3;

use super::{BlockKey, pieces::Pieces};
use crate::budget::DiskBudget;

/// Name of the lock file; the worker that uses the folder holds its lock.
const LOCK: &str = "spdl-cache.lock";
/// Bytes of the seal at the end of a file.
const SEAL_BYTES: usize = 16;
/// Nothing is written for this long after a failure of the disk; the pause doubles with each further one.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
/// No write takes this long: an older temporary file is a leftover.
const MAX_WRITE: Duration = Duration::from_secs(3600);

/// A random number that distinguishes this process from an earlier one with the same id: in a container every worker is
/// process 1.
static LIFE: LazyLock<u32> = LazyLock::new(rand::random);

/// The blocks on disk, by key. All methods block on disk I/O.
#[derive(Debug)]
pub(crate) struct DiskCache {
    _lock: fs::File,
    directory: PathBuf,
    budget_bytes: u64,
    files: Mutex<CacheFiles>,
    pause: Mutex<Pause>,
    temporary: AtomicU64,
    faults: AtomicU64,
}

/// The time during which nothing is written.
#[derive(Debug, Default)]
struct Pause {
    since: Option<Instant>,
    failures: u32,
}

impl Pause {
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

#[derive(Debug, Default)]
struct CacheFiles {
    known: HashMap<BlockKey, CacheFile>,
    by_use: BTreeMap<u64, BlockKey>,
    /// How often each block was discarded as wrong. A block fetched before its last discard is not written.
    discards: HashMap<BlockKey, u32>,
    used_bytes: u64,
    /// Bytes of the files that are being written.
    writing_bytes: u64,
    tick: u64,
}

#[derive(Debug)]
struct CacheFile {
    bytes: u64,
    used_at: u64,
}

impl CacheFiles {
    fn touch(&mut self, key: &BlockKey) {
        self.tick += 1;
        let tick = self.tick;
        if let Some(file) = self.known.get_mut(key) {
            self.by_use.remove(&file.used_at);
            file.used_at = tick;
            self.by_use.insert(tick, *key);
        }
    }

    fn add(&mut self, key: BlockKey, bytes: u64) {
        self.forget(&key);
        self.tick += 1;
        self.used_bytes += bytes;
        self.by_use.insert(self.tick, key);
        self.known.insert(key, CacheFile { bytes, used_at: self.tick });
    }

    fn forget(&mut self, key: &BlockKey) {
        if let Some(file) = self.known.remove(key) {
            self.by_use.remove(&file.used_at);
            self.used_bytes -= file.bytes;
        }
    }
}

fn file_name(key: &BlockKey) -> String {
    format!("blk-{}-{}", key.dataset, key.block)
}

fn parse_name(name: &str) -> Option<BlockKey> {
    let (fingerprint, block) = name.strip_prefix("blk-")?.split_once('-')?;
    let dataset = Fingerprint(u128::from_str_radix(fingerprint, 16).ok()?);
    let key = BlockKey { dataset, block: block.parse().ok()? };
    (file_name(&key) == name).then_some(key)
}

/// Returns the seal that a block's file must have.
fn seal<'a>(key: &BlockKey, parts: &[Range<u64>], content: impl Iterator<Item = &'a [u8]>) -> [u8; SEAL_BYTES] {
    let mut hash = Xxh3::new();
    hash.update(file_name(key).as_bytes());
    for part in parts {
        hash.update(&part.start.to_le_bytes());
        hash.update(&(part.end - part.start).to_le_bytes());
    }
    content.for_each(|piece| hash.update(piece));
    hash.digest128().to_le_bytes()
}

/// Returns whether a file is `blk-FINGERPRINT-N.PID-LIFE-COUNT.tmp`, a partly written file of a process that is gone.
fn is_leftover(name: &str, modified: Option<SystemTime>) -> bool {
    let parts = || {
        let (block, rest) = name.strip_suffix(".tmp")?.split_once('.')?;
        parse_name(block)?;
        let (pid, life) = rest.split_once('-')?;
        Some((pid.parse::<u32>().ok()?, life.split_once('-').map_or(life, |(life, _)| life).parse::<u32>().ok()?))
    };
    let Some((pid, life)) = parts() else { return false };
    let is_old = modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > MAX_WRITE);
    let is_alive =
        if pid == std::process::id() { life == *LIFE } else { PathBuf::from(format!("/proc/{pid}")).exists() };
    is_old || !is_alive
}

/// The error of a folder that another worker uses: both would fill it to their budgets, and each would evict the
/// other's files.
#[derive(Debug, thiserror::Error)]
#[error("disk cache `{}` is in use by another worker: give each worker its own folder", directory.display())]
pub struct CacheInUse {
    /// The folder of the cache.
    pub directory: PathBuf,
}

/// Locks the folder for as long as the file is open; `None` if another worker has locked it and does not end. Other
/// users cannot open the file, so they cannot lock it.
fn take(directory: &Path) -> io::Result<Option<fs::File>> {
    fs::create_dir_all(directory)?;
    let path = directory.join(LOCK);
    let lock = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match crate::lock::lock(&lock) {
        Ok(()) => Ok(Some(lock)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

impl DiskCache {
    /// Opens the folder and indexes the files in it. If the folder cannot be used, logs a warning and returns `None`.
    ///
    /// # Errors
    /// [`CacheInUse`] if another worker uses the folder.
    pub(crate) fn open(budget: &DiskBudget) -> Result<Option<Self>, CacheInUse> {
        let directory = budget.directory.display();
        let lock = match take(&budget.directory) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(CacheInUse { directory: budget.directory.clone() }),
            Err(error) => {
                tracing::warn!("disk cache `{directory}` cannot be used, going on without: {error}");
                return Ok(None);
            }
        };
        let cache = Self {
            _lock: lock,
            directory: budget.directory.clone(),
            budget_bytes: budget.bytes,
            files: Mutex::default(),
            pause: Mutex::default(),
            temporary: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        };
        match cache.load() {
            Ok(()) => Ok(Some(cache)),
            Err(error) => {
                tracing::warn!("disk cache `{directory}` cannot be used, going on without: {error}");
                Ok(None)
            }
        }
    }

    fn load(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(key) = parse_name(name) {
                let meta = entry.metadata()?;
                if meta.is_file() {
                    found.push((meta.modified().ok(), key, meta.len()));
                }
            } else if is_leftover(name, entry.metadata().and_then(|meta| meta.modified()).ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        found.sort_by_key(|(modified, ..)| *modified);
        let mut files = self.files.lock();
        for (_, key, bytes) in found {
            files.add(key, bytes);
        }
        self.make_room(&mut files, 0);
        Ok(())
    }

    /// Returns the block, which consists of these parts of its shard, if its file is present and its seal is right.
    pub(crate) fn read(&self, key: &BlockKey, parts: &[Range<u64>]) -> Option<Pieces> {
        self.known(key)?;
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        let content = self.read_file(key, bytes).ok().filter(|file| {
            let (content, found) = file.split_at(bytes as usize);
            found == seal(key, parts, std::iter::once(content))
        });
        if content.is_none() {
            self.faults.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(file = %self.path(key).display(), "not the block that it should be; fetching it again");
            self.remove(&mut self.files.lock(), key);
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
        let path = self.path(key);
        let length = fs::metadata(&path)?.len();
        if length != bytes + SEAL_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let content = fs::read(path)?;
        if content.len() as u64 == length { Ok(content) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Returns the bytes of the files, and the most that they have.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.files.lock().used_bytes, self.budget_bytes)
    }

    /// Returns the number of damaged files and of failed writes.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Returns `Some` if the block is present, and counts this as a use.
    pub(crate) fn known(&self, key: &BlockKey) -> Option<()> {
        let mut files = self.files.lock();
        files.touch(key);
        files.known.contains_key(key).then_some(())
    }

    /// Returns how often the block was discarded as wrong. Must be called before the block is fetched.
    pub(crate) fn discards(&self, key: &BlockKey) -> u32 {
        self.files.lock().discards.get(key).copied().unwrap_or(0)
    }

    /// Writes a block that consists of these parts of its shard. `discards` is the number of its discards before it was
    /// fetched. After a failure that making room does not repair, nothing is written for a while.
    pub(crate) fn write(&self, key: &BlockKey, parts: &[Range<u64>], pieces: &Pieces, discards: u32) {
        let bytes = pieces.bytes() + SEAL_BYTES as u64;
        if self.pause.lock().is_on() || self.known(key).is_some() {
            return;
        }
        {
            let mut files = self.files.lock();
            if !self.make_room(&mut files, bytes) {
                return;
            }
            files.writing_bytes += bytes;
        }
        let written = self.try_write(key, parts, pieces, discards).or_else(|error| {
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.halve(),
                io::ErrorKind::NotFound => fs::create_dir_all(&self.directory)?,
                _ => return Err(error),
            }
            self.try_write(key, parts, pieces, discards)
        });
        self.files.lock().writing_bytes -= bytes;
        match written {
            Ok(()) => *self.pause.lock() = Pause::default(),
            Err(error) => {
                self.faults.fetch_add(1, Ordering::Relaxed);
                let mut pause = self.pause.lock();
                if !pause.is_on() {
                    let (seconds, directory) = (pause.extend().as_secs(), self.directory.display());
                    tracing::warn!(
                        "disk cache `{directory}` takes no blocks; trying again in {seconds} s, till then with what \
                         is there: {error}"
                    );
                }
            }
        }
    }

    fn try_write(&self, key: &BlockKey, parts: &[Range<u64>], pieces: &Pieces, discards: u32) -> io::Result<()> {
        let count = self.temporary.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{}-{}-{count}.tmp", file_name(key), std::process::id(), *LIFE);
        let temporary = self.directory.join(name);
        let bytes = pieces.bytes();
        let write = || {
            let mut file = fs::File::create_new(&temporary)?;
            for piece in pieces.iter() {
                file.write_all(piece)?;
            }
            file.write_all(&seal(key, parts, pieces.iter().map(|piece| &**piece)))?;
            drop(file);
            let mut files = self.files.lock();
            if files.discards.get(key).copied().unwrap_or(0) != discards {
                return fs::remove_file(&temporary);
            }
            fs::rename(&temporary, self.path(key))?;
            files.add(*key, bytes + SEAL_BYTES as u64);
            Ok(())
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Evicts half of the bytes, as other programs need the room.
    fn halve(&self) {
        let mut files = self.files.lock();
        let halved = files.used_bytes / 2;
        while files.used_bytes > halved {
            self.evict_oldest(&mut files);
        }
    }

    /// Removes a block whose bytes are wrong.
    pub(crate) fn discard(&self, key: &BlockKey) {
        let mut files = self.files.lock();
        *files.discards.entry(*key).or_default() += 1;
        self.remove(&mut files, key);
    }

    fn remove(&self, files: &mut CacheFiles, key: &BlockKey) {
        if files.known.contains_key(key) {
            files.forget(key);
            // The block is not known any more, so a file that cannot be removed is overwritten later.
            let _ = fs::remove_file(self.path(key));
        }
    }

    /// Evicts the oldest blocks until `bytes` fit beside the files that are being written; `false` if they cannot.
    fn make_room(&self, files: &mut CacheFiles, bytes: u64) -> bool {
        let Some(room) = self.budget_bytes.checked_sub(files.writing_bytes + bytes) else { return false };
        while files.used_bytes > room {
            self.evict_oldest(files);
        }
        true
    }

    fn evict_oldest(&self, files: &mut CacheFiles) {
        if let Some((_, key)) = files.by_use.first_key_value() {
            let key = *key;
            self.remove(files, &key);
        }
    }

    fn path(&self, key: &BlockKey) -> PathBuf {
        self.directory.join(file_name(key))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    const PLACE: &[Range<u64>] = slice::from_ref(&(5..105));

    fn key(block: u32) -> BlockKey {
        BlockKey { dataset: Fingerprint(0xabc), block }
    }

    fn pieces(fill: u8) -> Pieces {
        Pieces::new(vec![(5, Bytes::from(vec![fill; 60])), (65, Bytes::from(vec![fill; 40]))])
    }

    fn open(directory: &std::path::Path) -> DiskCache {
        DiskCache::open(&DiskBudget { directory: directory.to_owned(), bytes: 250 }).unwrap().unwrap()
    }

    #[test]
    fn a_new_process_finds_what_the_last_one_wrote_within_the_budget() {
        let directory = tempfile::tempdir().unwrap();
        let stranger = directory.path().join("blk-notours");
        fs::write(&stranger, vec![0; 1000]).unwrap();
        let pid = std::process::id();
        let leftovers = [("4294967295", "7"), (&pid.to_string(), &(*LIFE ^ 1).to_string())]
            .map(|(pid, life)| directory.path().join(format!("{}.{pid}-{life}-0.tmp", file_name(&key(9)))));
        let being_written = directory.path().join(format!("{}.{pid}-{}-0.tmp", file_name(&key(8)), *LIFE));
        leftovers.iter().chain([&being_written]).for_each(|file| fs::write(file, b"half").unwrap());
        let cache = open(directory.path());
        assert!(leftovers.iter().all(|file| !file.exists()), "what dead processes left half written goes");
        assert!(being_written.exists(), "another cache of this process may be writing it");
        fs::remove_file(being_written).unwrap();
        for block in 0..3 {
            cache.write(&key(block), PLACE, &pieces(block as u8), 0);
        }
        assert!(cache.read(&key(0), PLACE).is_none(), "the oldest made room");
        drop(cache);
        let cache = open(directory.path());
        for block in 1..3 {
            let read = cache.read(&key(block), PLACE).unwrap();
            assert_eq!(read.slice(5..105).unwrap(), vec![block as u8; 100]);
        }
        assert!(stranger.exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "two blocks, a stranger's file and the lock");
    }

    #[test]
    fn a_block_of_several_parts_comes_back_as_these_parts_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(directory.path());
        let parts = [5..65, 1000..1040];
        let pieces = Pieces::new(vec![(5, Bytes::from_static(&[1; 60])), (1000, Bytes::from_static(&[2; 40]))]);
        cache.write(&key(1), &parts, &pieces, 0);
        let read = cache.read(&key(1), &parts).unwrap();
        assert_eq!(
            (read.slice(5..65).unwrap(), read.slice(1000..1040).unwrap()),
            (vec![1; 60].into(), vec![2; 40].into())
        );
        assert!(read.slice(60..70).is_none());
        assert!(cache.read(&key(1), &[5..65, 1001..1041]).is_none(), "the same bytes of other parts");
    }

    #[test]
    fn a_folder_that_another_worker_has_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let first = open(directory.path());
        let budget = DiskBudget { directory: directory.path().to_owned(), bytes: 250 };
        let error = DiskCache::open(&budget).unwrap_err().to_string();
        assert!(error.contains(directory.path().to_str().unwrap()) && error.contains("another worker"), "{error}");
        drop(first);
        assert!(DiskCache::open(&budget).unwrap().is_some());
    }

    #[test]
    fn writers_at_the_same_time_stay_within_the_budget_together() {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(directory.path());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for block in (0..400).filter(|block| block % 4 == writer) {
                        cache.write(&key(block), PLACE, &pieces(block as u8), 0);
                        let files = cache.files.lock();
                        assert!(files.used_bytes <= 250, "{} bytes in {} files", files.used_bytes, files.known.len());
                    }
                });
            }
        });
        assert_eq!(cache.files.lock().writing_bytes, 0);
        cache.write(&key(1_000), PLACE, &pieces(7), 0);
        assert!(cache.read(&key(1_000), PLACE).is_some(), "and the next block finds room");
    }

    #[test]
    fn what_a_crash_or_another_version_left_is_no_block() {
        let directory = tempfile::tempdir().unwrap();
        type Damage = fn(&mut Vec<u8>);
        let garbage: [(&str, Damage); 4] = [
            ("short", |file| file.truncate(5)),
            ("longer", |file| file.push(0)),
            ("zeros, as a power cut leaves them", |file| file.fill(0)),
            ("one bit", |file| file[50] ^= 4),
        ];
        for (faults, (what, hurt)) in (1..).zip(garbage) {
            let cache = open(directory.path());
            cache.write(&key(1), PLACE, &pieces(1), 0);
            let mut file = fs::read(cache.path(&key(1))).unwrap();
            hurt(&mut file);
            fs::write(cache.path(&key(1)), file).unwrap();
            assert!(cache.read(&key(1), PLACE).is_none(), "{what}");
            assert!(!cache.path(&key(1)).exists(), "{what}");
            assert_eq!(cache.faults(), 1, "fault {faults}");
        }
        let cache = open(directory.path());
        cache.write(&key(1), PLACE, &pieces(1), 0);
        assert!(
            cache.read(&key(1), slice::from_ref(&(6..106))).is_none(),
            "the same bytes at another place are another block"
        );
        let other = BlockKey { dataset: Fingerprint(0xdef), block: 1 };
        cache.write(&key(1), PLACE, &pieces(1), 0);
        fs::copy(cache.path(&key(1)), cache.path(&other)).unwrap();
        drop(cache);
        assert!(open(directory.path()).read(&other, PLACE).is_none(), "and so are those of another version");
        assert!(open(directory.path()).read(&key(1), PLACE).is_some());
    }

    #[test]
    fn a_block_that_was_found_wrong_does_not_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(directory.path());
        cache.write(&key(1), PLACE, &pieces(1), 0);
        cache.discard(&key(1));
        cache.write(&key(1), PLACE, &pieces(1), 0);
        assert!(cache.read(&key(1), PLACE).is_none(), "fetched before it was found wrong");
        cache.write(&key(1), PLACE, &pieces(1), cache.discards(&key(1)));
        assert!(cache.read(&key(1), PLACE).is_some());
    }

    #[test]
    fn a_folder_that_vanishes_comes_back_and_one_that_cannot_be_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("cache");
        let cache = open(&folder);
        fs::remove_dir_all(&folder).unwrap();
        cache.write(&key(1), PLACE, &pieces(1), 0);
        assert!(cache.read(&key(1), PLACE).is_some());
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, b"a file in its place").unwrap();
        assert!(cache.read(&key(1), PLACE).is_none());
        cache.write(&key(2), PLACE, &pieces(2), 0);
        assert!(cache.pause.lock().is_on() && cache.faults() > 0);
        fs::remove_file(&folder).unwrap();
        cache.write(&key(2), PLACE, &pieces(2), 0);
        assert!(!folder.exists(), "nothing is tried until the pause is over");
        *cache.pause.lock() = Pause::default();
        cache.write(&key(2), PLACE, &pieces(2), 0);
        assert!(cache.read(&key(2), PLACE).is_some());
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(DiskCache::open(&DiskBudget { directory: file, bytes: 1 }).unwrap().is_none());
    }
}
