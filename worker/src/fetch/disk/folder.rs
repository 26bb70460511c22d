//! The folder of a disk cache, which several processes share: what it holds, and room for more.
//!
//! The bytes of all blocks are counted in a file. A process that changes the folder holds that file's lock meanwhile,
//! for a moment. A killed process leaves at most counted bytes that are not there, or a file that no process writes any
//! more; the next count of the folder finds both.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    fs::{self, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use spdl_feed::cache::BlockKey;
use spdl_types::Fingerprint;

use super::file::{file_name, is_temporary, marker_name, parse_marker_name, parse_name, temporary_name};

/// Name of the file that counts bytes. Its lock is held while the folder is changed.
const LOCK: &str = "spdl-cache.lock";
/// A full folder is counted anew at most once in this time, for files that other programs deleted and for datasets that are
/// not used any more.
const RECOUNT_PERIOD: Duration = Duration::from_secs(300);

/// A random number that distinguishes this process from an earlier one with the same id: in a container every worker is
/// process 1.
static LIFE: LazyLock<u32> = LazyLock::new(rand::random);

/// The folder. All methods block on disk I/O.
#[derive(Debug)]
pub(super) struct CacheFolder {
    directory: PathBuf,
    budget_bytes: u64,
    /// The latest known number of counted bytes, for calls that find the folder locked.
    known_bytes: AtomicU64,
    /// Number of blocks that were not written because there was no room.
    refused: AtomicU64,
    state: Mutex<FolderState>,
    /// The datasets in use here, each with its readers and its marker once something of it was read or written.
    used: Mutex<HashMap<Fingerprint, UsedDataset>>,
}

#[derive(Debug)]
struct FolderState {
    lock: fs::File,
    temporary: u64,
    counted_at: Option<Instant>,
    /// Blocks of datasets that were in use nowhere when the folder was counted; the last is evicted first.
    unused: Vec<BlockKey>,
    /// Blocks of datasets that have more than their share, evicted for datasets that have less; the last is evicted
    /// first.
    excess: Vec<BlockKey>,
    /// Bytes of each dataset when the folder was counted, and what was added here since.
    dataset_bytes: HashMap<Fingerprint, u64>,
    /// The bytes that each dataset in use may have if others want the rest.
    share_bytes: u64,
}

#[derive(Debug, Default)]
struct UsedDataset {
    readers: u32,
    marker: Option<fs::File>,
}

/// A file that is being written. Its lock is held until it is complete.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    pub(super) file: fs::File,
    path: PathBuf,
    bytes: u64,
}

/// What the folder was found to hold.
#[derive(Default)]
struct FolderContents {
    /// Blocks, their bytes and when they were written.
    blocks: Vec<(BlockKey, u64, SystemTime)>,
    /// Bytes of the files that are being written.
    writing_bytes: u64,
    /// Datasets with a marker.
    marked: Vec<Fingerprint>,
}

/// The folder while no other process or thread changes it.
struct LockedFolder<'f> {
    folder: &'f CacheFolder,
    state: MutexGuard<'f, FolderState>,
}

impl Drop for LockedFolder<'_> {
    fn drop(&mut self) {
        // Closing the file would release the lock, too.
        let _ = self.state.lock.unlock();
    }
}

impl CacheFolder {
    /// Opens the folder, creates it if it does not exist, and counts what it holds.
    pub(super) fn open(directory: &Path, budget_bytes: u64) -> io::Result<Self> {
        let lock = open_lock(directory)?;
        let state = FolderState {
            lock,
            temporary: 0,
            counted_at: None,
            unused: Vec::new(),
            excess: Vec::new(),
            dataset_bytes: HashMap::new(),
            share_bytes: budget_bytes,
        };
        let folder = Self {
            directory: directory.to_owned(),
            budget_bytes,
            known_bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            state: Mutex::new(state),
            used: Mutex::default(),
        };
        let mut locked = folder.lock()?;
        locked.recount()?;
        locked.make_room(None, 0)?;
        drop(locked);
        Ok(folder)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn path(&self, key: &BlockKey) -> PathBuf {
        self.directory.join(file_name(key))
    }

    /// Returns the bytes of the blocks, and the most that they may have.
    pub(super) fn bytes(&self) -> (u64, u64) {
        if let Some(state) = self.state.try_lock()
            && let Ok(bytes) = used_bytes(&state.lock)
        {
            self.known_bytes.store(bytes, Relaxed);
        }
        (self.known_bytes.load(Relaxed), self.budget_bytes)
    }

    /// Returns how many blocks had no room.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Notes that one more rank reads a dataset.
    pub(super) fn enter(&self, dataset: Fingerprint) {
        self.used.lock().entry(dataset).or_default().readers += 1;
    }

    /// Notes that a rank does not read a dataset any more.
    pub(super) fn leave(&self, dataset: Fingerprint) {
        let mut used = self.used.lock();
        let entry = used.get_mut(&dataset).expect("a dataset that is left was entered");
        entry.readers -= 1;
        if entry.readers == 0
            && let Some(UsedDataset { marker: Some(marker), .. }) = used.remove(&dataset)
        {
            let _ = marker.set_modified(SystemTime::now());
        }
    }

    /// Marks a dataset as in use, for other processes to see, if a rank reads it here. When the folder is full, it is
    /// counted anew and shared anew.
    pub(super) fn mark(&self, dataset: Fingerprint) {
        let is_unmarked = || self.used.lock().get(&dataset).is_some_and(|used| used.marker.is_none());
        if !is_unmarked() {
            return;
        }
        // Markers that nobody holds are removed while the folder is locked.
        let Ok(mut folder) = self.lock() else { return };
        let opened = open_for_lock(&self.directory.join(marker_name(dataset)));
        let marker = opened.and_then(|file| file.lock_shared().map(|()| file));
        if let (Ok(marker), Some(used)) = (marker, self.used.lock().get_mut(&dataset)) {
            used.marker = Some(marker);
            folder.state.counted_at = None;
        }
    }

    /// Creates the file for a block of `bytes` bytes; `None` if it is there already or there is no room for it.
    pub(super) fn create(&self, key: &BlockKey, bytes: u64) -> io::Result<Option<TemporaryFile>> {
        let mut folder = self.lock()?;
        if self.path(key).exists() {
            return Ok(None);
        }
        if !folder.make_room(Some(key.dataset), bytes)? {
            self.refused.fetch_add(1, Relaxed);
            return Ok(None);
        }
        folder.state.temporary += 1;
        let path = self.directory.join(temporary_name(key, *LIFE, folder.state.temporary));
        folder.add(key.dataset, bytes)?;
        let create = || {
            let file = fs::File::create_new(&path)?;
            file.try_lock()?;
            // The file has its full length from the beginning, so that a count by another process includes it.
            file.set_len(bytes)?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok(Some(TemporaryFile { file, path, bytes })),
            Err(error) => {
                let _ = fs::remove_file(&path);
                folder.subtract(key.dataset, bytes)?;
                Err(error)
            }
        }
    }

    /// Renames a complete file to that of its block, or removes it if `is_valid` returns false.
    pub(super) fn publish(
        &self,
        key: &BlockKey,
        written: &TemporaryFile,
        is_valid: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let TemporaryFile { path, bytes, .. } = written;
        let mut folder = self.lock()?;
        let before = fs::metadata(self.path(key)).map_or(0, |meta| meta.len());
        if !is_valid() {
            fs::remove_file(path)?;
            return folder.subtract(key.dataset, *bytes);
        }
        fs::rename(path, self.path(key))?;
        folder.subtract(key.dataset, before)
    }

    /// Removes a file that could not be completed.
    pub(super) fn abandon(&self, key: &BlockKey, written: &TemporaryFile) {
        // If this fails, the next count of the folder corrects the sum.
        if let Ok(mut folder) = self.lock()
            && fs::remove_file(&written.path).is_ok()
        {
            let _ = folder.subtract(key.dataset, written.bytes);
        }
    }

    /// Removes the file of a block.
    pub(super) fn remove(&self, key: &BlockKey) -> io::Result<()> {
        self.lock()?.remove(key)
    }

    /// Removes half of the bytes, as other programs need the room: first the blocks of unused datasets, then the newest
    /// blocks.
    pub(super) fn halve(&self) -> io::Result<()> {
        let mut folder = self.lock()?;
        let found = folder.recount()?;
        let half = used_bytes(&folder.state.lock)? / 2;
        let unused = std::mem::take(&mut folder.state.unused);
        let newest = found.blocks.iter().rev().map(|(key, ..)| *key);
        for key in unused.into_iter().rev().chain(newest) {
            if used_bytes(&folder.state.lock)? <= half {
                break;
            }
            folder.remove(&key)?;
        }
        Ok(())
    }

    /// Returns when a dataset was used last; `None` if it is in use here or in another process.
    fn last_use(&self, dataset: Fingerprint) -> Option<SystemTime> {
        if self.used.lock().contains_key(&dataset) {
            return None;
        }
        let path = self.directory.join(marker_name(dataset));
        match is_locked(&path) {
            Ok(true) => None,
            Ok(false) => fs::metadata(path).and_then(|meta| meta.modified()).ok(),
            Err(_) => Some(SystemTime::UNIX_EPOCH),
        }
    }

    /// Counts what the folder holds.
    #[cfg(test)]
    pub(super) fn recount(&self) -> io::Result<()> {
        self.lock()?.recount().map(drop)
    }

    /// Locks the folder. If its lock file is gone, the folder is counted anew.
    fn lock(&self) -> io::Result<LockedFolder<'_>> {
        let mut state = self.state.lock();
        loop {
            lock_file(&state.lock)?;
            let path = self.directory.join(LOCK);
            let is_same =
                fs::metadata(&path).and_then(|there| Ok(there.ino() == state.lock.metadata()?.ino())).unwrap_or(false);
            if is_same {
                return Ok(LockedFolder { folder: self, state });
            }
            state.lock = open_lock(&self.directory)?;
            state.counted_at = None;
            self.used.lock().values_mut().for_each(|used| used.marker = None);
        }
    }
}

impl LockedFolder<'_> {
    fn has_room(&self, bytes: u64) -> io::Result<bool> {
        Ok(used_bytes(&self.state.lock)?.saturating_add(bytes) <= self.folder.budget_bytes)
    }

    /// Evicts blocks of unused datasets, and then, if `dataset` has less than its share, blocks of datasets that have
    /// more, until `bytes` fit; returns `false` if they cannot.
    fn make_room(&mut self, dataset: Option<Fingerprint>, bytes: u64) -> io::Result<bool> {
        if self.has_room(bytes)? {
            return Ok(true);
        }
        if bytes > self.folder.budget_bytes {
            return Ok(false);
        }
        if self.state.counted_at.is_none_or(|at| at.elapsed() > RECOUNT_PERIOD) {
            self.recount()?;
        }
        let mut is_unused = HashMap::new();
        while !self.has_room(bytes)? {
            let Some(key) = self.state.unused.pop() else { break };
            if *is_unused.entry(key.dataset).or_insert_with(|| self.folder.last_use(key.dataset).is_some()) {
                self.remove(&key)?;
            }
        }
        let has_less = dataset.is_some_and(|dataset| {
            let has_bytes = self.state.dataset_bytes.get(&dataset).copied().unwrap_or(0);
            has_bytes + bytes <= self.state.share_bytes
        });
        while has_less && !self.has_room(bytes)? {
            let Some(key) = self.state.excess.pop() else { break };
            self.remove(&key)?;
        }
        self.has_room(bytes)
    }

    /// Counts what the folder holds and removes files that no process writes or uses any more. Returns the blocks, in
    /// the order in which they came.
    fn recount(&mut self) -> io::Result<FolderContents> {
        let found = self.find()?;
        let state = &mut *self.state;
        state.dataset_bytes.clear();
        for (key, bytes, _) in &found.blocks {
            *state.dataset_bytes.entry(key.dataset).or_default() += bytes;
        }
        let bytes = state.dataset_bytes.values().sum::<u64>() + found.writing_bytes;
        state.lock.write_all_at(&bytes.to_le_bytes(), 0)?;
        let datasets: BTreeSet<_> = state.dataset_bytes.keys().chain(&found.marked).map(|dataset| dataset.0).collect();
        let last_uses = datasets.into_iter().map(Fingerprint);
        let last_uses: HashMap<_, _> = last_uses.map(|dataset| (dataset, self.folder.last_use(dataset))).collect();
        for dataset in &found.marked {
            if last_uses[dataset].is_some() && !state.dataset_bytes.contains_key(dataset) {
                let _ = fs::remove_file(self.folder.directory.join(marker_name(*dataset)));
            }
        }
        let used = last_uses.values().filter(|left| left.is_none()).count();
        state.share_bytes = self.folder.budget_bytes / used.max(1) as u64;
        let mut unused = Vec::new();
        let mut kept_bytes = HashMap::<_, u64>::new();
        state.excess.clear();
        for (key, bytes, written) in &found.blocks {
            if let Some(left) = last_uses[&key.dataset] {
                unused.push((left, *written, *key));
                continue;
            }
            let kept = kept_bytes.entry(key.dataset).or_default();
            *kept += bytes;
            if *kept > state.share_bytes {
                state.excess.push(*key);
            }
        }
        // Blocks are evicted from the end: the dataset that was left first goes first, and of its blocks the newest.
        unused.sort_by_key(|(left, written, key)| (Reverse((*left, key.dataset.0)), *written, key.block));
        state.unused = unused.into_iter().map(|(.., key)| key).collect();
        state.counted_at = Some(Instant::now());
        Ok(found)
    }

    /// Looks through the folder and removes files that nobody writes any more.
    fn find(&self) -> io::Result<FolderContents> {
        let mut found = FolderContents::default();
        for entry in fs::read_dir(&self.folder.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(key) = parse_name(name) {
                let meta = entry.metadata()?;
                if meta.is_file() {
                    found.blocks.push((key, meta.len(), meta.modified()?));
                }
            } else if let Some(dataset) = parse_marker_name(name) {
                found.marked.push(dataset);
            } else if is_temporary(name) {
                match is_locked(&entry.path()) {
                    Ok(true) => found.writing_bytes += entry.metadata()?.len(),
                    Ok(false) => drop(fs::remove_file(entry.path())),
                    Err(_) => {}
                }
            }
        }
        // Files that the system's clock cannot tell apart are in the order of their blocks.
        found.blocks.sort_by_key(|(key, _, written)| (*written, key.block));
        Ok(found)
    }

    fn remove(&mut self, key: &BlockKey) -> io::Result<()> {
        let path = self.folder.path(key);
        let removed = fs::metadata(&path).and_then(|meta| fs::remove_file(&path).map(|()| meta.len()));
        match removed {
            Ok(bytes) => self.subtract(key.dataset, bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, dataset: Fingerprint, bytes: u64) -> io::Result<()> {
        *self.state.dataset_bytes.entry(dataset).or_default() += bytes;
        let sum = used_bytes(&self.state.lock)?.saturating_add(bytes);
        self.state.lock.write_all_at(&sum.to_le_bytes(), 0)
    }

    fn subtract(&mut self, dataset: Fingerprint, bytes: u64) -> io::Result<()> {
        if let Some(has_bytes) = self.state.dataset_bytes.get_mut(&dataset) {
            *has_bytes = has_bytes.saturating_sub(bytes);
        }
        let sum = used_bytes(&self.state.lock)?.saturating_sub(bytes);
        self.state.lock.write_all_at(&sum.to_le_bytes(), 0)
    }
}

/// Returns the bytes that are counted in the lock file; 0 if they were never counted.
fn used_bytes(lock: &fs::File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match lock.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(u64::from_le_bytes(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(error),
    }
}

fn open_lock(directory: &Path) -> io::Result<fs::File> {
    fs::create_dir_all(directory)?;
    open_for_lock(&directory.join(LOCK))
}

/// Opens a file, and creates it if it does not exist. Other users cannot open it, so they cannot lock it.
fn open_for_lock(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Locks a file that others hold for a moment only.
fn lock_file(file: &fs::File) -> io::Result<()> {
    spdl_process::lock::lock(file).map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::new(io::ErrorKind::WouldBlock, "another process holds its lock"),
        TryLockError::Error(error) => error,
    })
}

/// Whether some process holds a lock of the file.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
