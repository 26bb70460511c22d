//! An external merge sort: runs that fit into memory are sorted and written to a temporary file, and merged when they are
//! read. What fits into memory as a whole is never written.

use std::{
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use spdl_store::{TemporaryError, TemporaryFolder};

/// Memory in bytes of all buffers that runs are read through, and the limits of each buffer.
const READ_BYTES: usize = 4 << 20;
const MIN_BUFFER_BYTES: usize = 4 << 10;
const MAX_BUFFER_BYTES: usize = 256 << 10;
/// Size of the buffer that a run is written through, in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Collects items and sorts them by their keys. Items with equal keys keep their order.
#[derive(Debug)]
pub(crate) struct Sorter {
    folder: TemporaryFolder,
    memory_bytes: usize,
    run: MemoryRun,
    spilled: Option<RunFile>,
    items: u64,
}

/// Sorted items, which can be read more than once.
#[derive(Debug)]
pub(crate) struct Sorted {
    folder: TemporaryFolder,
    /// All items, unless there are runs in a file.
    run: MemoryRun,
    spilled: Option<RunFile>,
    items: u64,
}

/// An item: it is sorted by its key, and the payload follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SortedItem {
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// The memory of a sorter that is done, for the next one: new memory is slow where its pages are touched first.
#[derive(Debug, Default)]
pub(crate) struct SortMemory(MemoryRun);

#[derive(Debug, Default)]
struct MemoryRun {
    /// Keys and payloads, one after the other.
    bytes: Vec<u8>,
    items: Vec<ItemEntry>,
}

/// The place of an item in a run: its key, and the payload behind it.
#[derive(Clone, Copy, Debug)]
struct ItemEntry {
    at: u32,
    key_bytes: u32,
    payload_bytes: u32,
}

/// Sorted runs, one after the other. An item has the bytes of its key and of its payload as two `u32` before them.
#[derive(Debug)]
struct RunFile {
    file: File,
    ends: Vec<u64>,
}

impl Sorter {
    /// Creates a sorter that takes this much memory, unless one item alone takes more; the rest goes to `folder`.
    pub(crate) fn new(folder: &TemporaryFolder, memory_bytes: usize) -> Self {
        Self::within(SortMemory::default(), folder, memory_bytes)
    }

    /// Creates a sorter as [`new`](Self::new) does, which begins with memory that another one had.
    pub(crate) fn within(memory: SortMemory, folder: &TemporaryFolder, memory_bytes: usize) -> Self {
        Self { folder: folder.clone(), memory_bytes, run: memory.0, spilled: None, items: 0 }
    }

    /// Reserves memory for items of so many bytes together, if it has none: what grows is copied.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        if self.run.bytes.capacity() == 0 {
            self.run.bytes.reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX).min(self.memory_bytes));
        }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    pub(crate) fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<(), TemporaryError> {
        if self.run.memory_bytes() + key.len() + payload.len() > self.memory_bytes && !self.run.items.is_empty() {
            self.spill()?;
        }
        self.run.push(key, payload);
        self.items += 1;
        Ok(())
    }

    /// Sorts the items.
    pub(crate) fn finish(mut self) -> Result<Arc<Sorted>, TemporaryError> {
        if self.spilled.is_some() {
            self.spill()?;
            self.run = MemoryRun::default();
        } else {
            self.run.sort();
        }
        let Self { folder, run, spilled, items, .. } = self;
        Ok(Arc::new(Sorted { folder, run, spilled, items }))
    }

    fn spill(&mut self) -> Result<(), TemporaryError> {
        self.run.sort();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(RunFile { file: self.folder.create()?, ends: Vec::new() }),
        };
        spilled.append(&self.run).map_err(|error| self.folder.error(error))?;
        self.run.clear();
        Ok(())
    }
}

impl Sorted {
    /// Returns the number of items.
    pub(crate) const fn len(&self) -> u64 {
        self.items
    }

    /// Returns whether all items are in memory, and none in a file.
    pub(crate) const fn is_in_memory(&self) -> bool {
        self.spilled.is_none()
    }

    /// Returns the memory that the items in memory take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.run.memory_bytes() as u64
    }

    /// Returns an item in memory, from 0 in the order of their keys: its key and its payload.
    ///
    /// # Panics
    /// If there is no such item, or the items are in a file.
    pub(crate) fn item(&self, number: usize) -> (&[u8], &[u8]) {
        let (entry, bytes) = (&self.run.items[number], &self.run.bytes);
        (entry.key(bytes), entry.payload(bytes))
    }

    /// Returns its memory, empty. It has none if the items are still in use elsewhere, or were written to a file.
    pub(crate) fn into_memory(self: Arc<Self>) -> SortMemory {
        let mut run = Arc::into_inner(self).map(|sorted| sorted.run).unwrap_or_default();
        run.clear();
        SortMemory(run)
    }

    /// Iterates over the items in the order of their keys.
    pub(crate) fn iter(self: &Arc<Self>) -> Result<SortedItems, TemporaryError> {
        let mut runs = Vec::new();
        match &self.spilled {
            None => runs.push(RunReader::Memory { sorted: Arc::clone(self), next: 0 }),
            Some(RunFile { ends, .. }) => {
                let buffer = (READ_BYTES / ends.len()).clamp(MIN_BUFFER_BYTES, MAX_BUFFER_BYTES);
                let starts = std::iter::once(0).chain(ends.iter().copied());
                for (place, end) in starts.zip(ends.iter().copied()) {
                    let run = FileRun { sorted: Arc::clone(self), place, end };
                    runs.push(RunReader::File(BufReader::with_capacity(buffer, run)));
                }
            }
        }
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (number, mut run) in runs.into_iter().enumerate() {
            let mut item = SortedItem::default();
            if run.next(&mut item).map_err(|error| self.folder.error(error))? {
                heads.push(RunHead { item, number, run });
            }
        }
        Ok(SortedItems { folder: self.folder.clone(), heads })
    }
}

impl MemoryRun {
    fn memory_bytes(&self) -> usize {
        self.bytes.len() + (self.items.len() + 1) * size_of::<ItemEntry>()
    }

    fn push(&mut self, key: &[u8], payload: &[u8]) {
        let [at, key_bytes, payload_bytes] = [self.bytes.len(), key.len(), payload.len()]
            .map(|bytes| u32::try_from(bytes).expect("a run and an item have less than 4 GiB"));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        self.items.push(ItemEntry { at, key_bytes, payload_bytes });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.items.sort_by(|a, b| a.key(bytes).cmp(b.key(bytes)));
    }
}

impl ItemEntry {
    fn key<'r>(&self, bytes: &'r [u8]) -> &'r [u8] {
        &bytes[self.at as usize..][..self.key_bytes as usize]
    }

    fn payload<'r>(&self, bytes: &'r [u8]) -> &'r [u8] {
        &bytes[self.at as usize + self.key_bytes as usize..][..self.payload_bytes as usize]
    }
}

impl RunFile {
    fn append(&mut self, run: &MemoryRun) -> io::Result<()> {
        let mut writer = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        let mut end = self.ends.last().copied().unwrap_or(0);
        for entry in &run.items {
            let (key, payload) = (entry.key(&run.bytes), entry.payload(&run.bytes));
            writer.write_all(&entry.key_bytes.to_le_bytes())?;
            writer.write_all(&entry.payload_bytes.to_le_bytes())?;
            writer.write_all(key)?;
            writer.write_all(payload)?;
            end += 8 + (key.len() + payload.len()) as u64;
        }
        writer.flush()?;
        self.ends.push(end);
        Ok(())
    }
}

/// Merges sorted runs.
pub(crate) struct SortedItems {
    folder: TemporaryFolder,
    heads: BinaryHeap<RunHead>,
}

impl SortedItems {
    /// Puts the next item in the place of `item`, whose memory is used again; returns whether there is one.
    pub(crate) fn next_into(&mut self, item: &mut SortedItem) -> Result<bool, TemporaryError> {
        let Some(mut head) = self.heads.peek_mut() else { return Ok(false) };
        let more = head.run.next(item);
        std::mem::swap(item, &mut head.item);
        match more {
            Ok(true) => {}
            Ok(false) => drop(PeekMut::pop(head)),
            Err(error) => return Err(self.folder.error(error)),
        }
        Ok(true)
    }
}

impl Iterator for SortedItems {
    type Item = Result<SortedItem, TemporaryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut item = SortedItem::default();
        match self.next_into(&mut item) {
            Ok(is_there) => is_there.then_some(Ok(item)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A run and its first item that was not returned so far.
struct RunHead {
    item: SortedItem,
    number: usize,
    run: RunReader,
}

impl Ord for RunHead {
    /// The greatest comes first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&other.item.key, other.number).cmp(&(&self.item.key, self.number))
    }
}

impl PartialOrd for RunHead {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunHead {}

enum RunReader {
    Memory { sorted: Arc<Sorted>, next: usize },
    File(BufReader<FileRun>),
}

impl RunReader {
    /// Reads the next item; returns whether there is one.
    fn next(&mut self, into: &mut SortedItem) -> io::Result<bool> {
        match self {
            Self::Memory { sorted, next } => {
                let run = &sorted.run;
                let Some(entry) = run.items.get(*next) else { return Ok(false) };
                *next += 1;
                entry.key(&run.bytes).clone_into(&mut into.key);
                entry.payload(&run.bytes).clone_into(&mut into.payload);
            }
            Self::File(reader) => {
                if reader.buffer().is_empty() && reader.get_ref().is_over() {
                    return Ok(false);
                }
                let [mut key_bytes, mut payload_bytes] = [[0; 4]; 2];
                reader.read_exact(&mut key_bytes)?;
                reader.read_exact(&mut payload_bytes)?;
                into.key.resize(u32::from_le_bytes(key_bytes) as usize, 0);
                into.payload.resize(u32::from_le_bytes(payload_bytes) as usize, 0);
                reader.read_exact(&mut into.key)?;
                reader.read_exact(&mut into.payload)?;
            }
        }
        Ok(true)
    }
}

/// The bytes of one run in the file.
struct FileRun {
    sorted: Arc<Sorted>,
    place: u64,
    end: u64,
}

impl FileRun {
    const fn is_over(&self) -> bool {
        self.place == self.end
    }
}

impl Read for FileRun {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let spilled = self.sorted.spilled.as_ref().expect("a run in a file");
        let room = into.len().min(usize::try_from(self.end - self.place).unwrap_or(usize::MAX));
        let read = spilled.file.read_at(&mut into[..room], self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(items: &[(Vec<u8>, Vec<u8>)], memory_bytes: usize) -> Arc<Sorted> {
        let mut sorter = Sorter::new(&TemporaryFolder::new(std::env::temp_dir()), memory_bytes);
        items.iter().for_each(|(key, payload)| sorter.push(key, payload).unwrap());
        sorter.finish().unwrap()
    }

    proptest! {
        #[test]
        fn items_come_in_the_order_of_their_keys_and_then_as_they_were_added(
            items in proptest::collection::vec(
                (proptest::collection::vec(0..3_u8, 0..3), proptest::collection::vec(any::<u8>(), 0..5)), 0..200),
            memory_bytes in prop_oneof![Just(0), 40..400_usize, Just(1 << 20)],
        ) {
            let sorted = sorted(&items, memory_bytes);
            let mut expected = items.clone();
            expected.sort_by(|(a, _), (b, _)| a.cmp(b));
            for _ in 0..2 {
                let found: Vec<_> =
                    sorted.iter().unwrap().map(|item| item.map(|item| (item.key, item.payload)).unwrap()).collect();
                prop_assert_eq!(&found, &expected);
            }
            prop_assert_eq!(sorted.len(), items.len() as u64);
            let mut next = Sorter::within(sorted.into_memory(), &TemporaryFolder::new(std::env::temp_dir()), 1 << 20);
            next.push(b"b", &[]).unwrap();
            let found: Vec<_> = next.finish().unwrap().iter().unwrap().map(|item| item.unwrap().key).collect();
            prop_assert_eq!(found, [b"b"]);
        }
    }

    #[test]
    fn what_fits_into_memory_is_not_written() {
        let missing = TemporaryFolder::new("/nonexistent/folder".into());
        let mut sorter = Sorter::new(&missing, 100);
        sorter.push(b"b", &[]).unwrap();
        sorter.push(b"a", &[]).unwrap();
        let keys: Vec<_> = sorter.finish().unwrap().iter().unwrap().map(|item| item.unwrap().key).collect();
        assert_eq!(keys, [b"a", b"b"]);
        let mut sorter = Sorter::new(&missing, 0);
        sorter.push(b"b", &[]).unwrap();
        let error = sorter.push(b"a", &[]).unwrap_err().to_string();
        assert!(error.starts_with("a temporary file in `/nonexistent/folder` cannot be used: "), "{error}");
    }
}
