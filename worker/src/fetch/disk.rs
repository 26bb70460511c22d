//! A folder of blocks with a byte budget. It touches only files that carry its own kind of name, and a disk that is
//! full or broken costs a warning, never a block.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use parking_lot::Mutex;
use spdl_shard::Fingerprint;

use super::{BlockKey, pieces::Pieces};
use crate::budget::DiskBudget;

/// Blocks on disk, by key. All methods block on the disk.
#[derive(Debug)]
pub(crate) struct DiskCache {
    directory: PathBuf,
    budget_bytes: u64,
    files: Mutex<Files>,
    writes: AtomicBool,
    temporary: AtomicU64,
}

#[derive(Debug, Default)]
struct Files {
    known: HashMap<BlockKey, File>,
    by_use: BTreeMap<u64, BlockKey>,
    /// How often a block was found wrong: bytes that were fetched before that do not come back.
    discards: HashMap<BlockKey, u32>,
    used_bytes: u64,
    tick: u64,
}

#[derive(Debug)]
struct File {
    bytes: u64,
    used_at: u64,
}

impl Files {
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
        self.known.insert(key, File { bytes, used_at: self.tick });
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

/// The process that a temporary file `blk-FINGERPRINT-N.PID-COUNT.tmp` belongs to.
fn temporary_owner(name: &str) -> Option<u32> {
    let (block, rest) = name.strip_suffix(".tmp")?.split_once('.')?;
    parse_name(block)?;
    rest.split_once('-')?.0.parse().ok()
}

impl DiskCache {
    /// Opens the folder and learns what is there; a folder that cannot be used gives `None` and a warning.
    pub(crate) fn open(budget: &DiskBudget) -> Option<Self> {
        let cache = Self {
            directory: budget.directory.clone(),
            budget_bytes: budget.bytes,
            files: Mutex::default(),
            writes: AtomicBool::new(true),
            temporary: AtomicU64::new(0),
        };
        match cache.load() {
            Ok(()) => Some(cache),
            Err(error) => {
                let directory = budget.directory.display();
                tracing::warn!("disk cache `{directory}` cannot be used, going on without: {error}");
                None
            }
        }
    }

    fn load(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
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
            } else if temporary_owner(name).is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
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

    /// The block, where it is there and as long as it should be.
    pub(crate) fn read(&self, key: &BlockKey, offset: u64, bytes: u64) -> Option<Pieces> {
        self.known(key)?;
        match fs::read(self.path(key)) {
            Ok(content) if content.len() as u64 == bytes => Some(Pieces::new(vec![(offset, Bytes::from(content))])),
            _ => {
                self.remove(&mut self.files.lock(), key);
                None
            }
        }
    }

    /// Whether the block is there; counts as a use.
    pub(crate) fn known(&self, key: &BlockKey) -> Option<()> {
        let mut files = self.files.lock();
        files.touch(key);
        files.known.contains_key(key).then_some(())
    }

    /// How often the block was thrown out because it was wrong: ask before fetching it.
    pub(crate) fn discards(&self, key: &BlockKey) -> u32 {
        self.files.lock().discards.get(key).copied().unwrap_or(0)
    }

    /// Keeps a block that was fetched after `discards`. After a failure that making room does not mend, nothing more is
    /// written.
    pub(crate) fn write(&self, key: &BlockKey, pieces: &Pieces, discards: u32) {
        let bytes = pieces.bytes();
        if bytes > self.budget_bytes || !self.writes.load(Ordering::Relaxed) || self.known(key).is_some() {
            return;
        }
        self.make_room(&mut self.files.lock(), bytes);
        let written = self.try_write(key, pieces, discards).or_else(|_| {
            let mut files = self.files.lock();
            let halved = files.used_bytes / 2;
            while files.used_bytes > halved {
                self.evict_oldest(&mut files);
            }
            drop(files);
            self.try_write(key, pieces, discards)
        });
        match written {
            Ok(()) => self.files.lock().add(*key, bytes),
            Err(error) => {
                if self.writes.swap(false, Ordering::Relaxed) {
                    let directory = self.directory.display();
                    tracing::warn!(
                        "disk cache `{directory}` takes no more blocks, going on with what is there: {error}"
                    );
                }
            }
        }
    }

    fn try_write(&self, key: &BlockKey, pieces: &Pieces, discards: u32) -> io::Result<()> {
        let count = self.temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{}.{}-{count}.tmp", file_name(key), std::process::id()));
        let write = || {
            let mut file = fs::File::create_new(&temporary)?;
            for bytes in pieces.iter() {
                io::Write::write_all(&mut file, bytes)?;
            }
            drop(file);
            let mut files = self.files.lock();
            if files.discards.get(key).copied().unwrap_or(0) != discards {
                return fs::remove_file(&temporary);
            }
            fs::rename(&temporary, self.path(key))?;
            files.add(*key, pieces.bytes());
            Ok(())
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Throws a block out because it is wrong.
    pub(crate) fn discard(&self, key: &BlockKey) {
        let mut files = self.files.lock();
        *files.discards.entry(*key).or_default() += 1;
        self.remove(&mut files, key);
    }

    fn remove(&self, files: &mut Files, key: &BlockKey) {
        if files.known.contains_key(key) {
            files.forget(key);
            // It is known no more, so whatever is still there is written over.
            let _ = fs::remove_file(self.path(key));
        }
    }

    fn make_room(&self, files: &mut Files, bytes: u64) {
        while files.used_bytes + bytes > self.budget_bytes && !files.known.is_empty() {
            self.evict_oldest(files);
        }
    }

    fn evict_oldest(&self, files: &mut Files) {
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
    use super::*;

    fn key(block: u32) -> BlockKey {
        BlockKey { dataset: Fingerprint(0xabc), block }
    }

    fn pieces(fill: u8) -> Pieces {
        Pieces::new(vec![(5, Bytes::from(vec![fill; 60])), (65, Bytes::from(vec![fill; 40]))])
    }

    fn open(directory: &std::path::Path) -> DiskCache {
        DiskCache::open(&DiskBudget { directory: directory.to_owned(), bytes: 250 }).unwrap()
    }

    #[test]
    fn a_new_process_finds_what_the_last_one_wrote_within_the_budget() {
        let directory = tempfile::tempdir().unwrap();
        let stranger = directory.path().join("blk-notours");
        fs::write(&stranger, vec![0; 1000]).unwrap();
        let leftover = directory.path().join(format!("{}.4294967295-0.tmp", file_name(&key(9))));
        fs::write(&leftover, b"half").unwrap();
        let cache = open(directory.path());
        assert!(!leftover.exists(), "what a dead process left half written goes");
        for block in 0..3 {
            cache.write(&key(block), &pieces(block as u8), 0);
        }
        assert!(cache.read(&key(0), 5, 100).is_none(), "the oldest made room");
        drop(cache);
        let cache = open(directory.path());
        for block in 1..3 {
            let read = cache.read(&key(block), 5, 100).unwrap();
            assert_eq!(read.slice(5..105).unwrap(), vec![block as u8; 100]);
        }
        assert!(stranger.exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_of_the_wrong_length_is_no_block() {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(directory.path());
        cache.write(&key(1), &pieces(1), 0);
        fs::write(cache.path(&key(1)), b"short").unwrap();
        assert!(cache.read(&key(1), 5, 100).is_none());
        assert!(!cache.path(&key(1)).exists());
        cache.write(&key(1), &pieces(1), 0);
        assert!(cache.read(&key(1), 5, 100).is_some());
        cache.discard(&key(1));
        cache.write(&key(1), &pieces(1), 0);
        assert!(cache.read(&key(1), 5, 100).is_none(), "fetched before it was found wrong");
        cache.write(&key(1), &pieces(1), cache.discards(&key(1)));
        assert!(cache.read(&key(1), 5, 100).is_some());
    }

    #[test]
    fn a_folder_that_vanishes_or_never_was_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let cache = open(&directory.path().join("cache"));
        fs::remove_dir_all(directory.path().join("cache")).unwrap();
        cache.write(&key(1), &pieces(1), 0);
        cache.write(&key(2), &pieces(2), 0);
        assert!(cache.read(&key(1), 5, 100).is_none());
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(DiskCache::open(&DiskBudget { directory: file, bytes: 1 }).is_none());
    }
}
