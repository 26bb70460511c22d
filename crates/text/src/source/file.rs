//! Reads files of a source as streams, on disk and in stores, decompressed. Reading blocks the thread.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::{Buf, Bytes};
use object_store::ObjectMeta;
use spdl_dataset::DatasetError;
use spdl_shard::store::DatasetStore;
use spdl_store::{RANGE_BYTES, StoreError};
use tokio::runtime::Handle;

/// Bytes that are read at once from a file on disk, which are then still in the processor's cache when they are used.
const LOCAL_RANGE_BYTES: u64 = 2 << 20;
/// Bytes that are read at once behind the end of a range, to complete its last line.
const BEHIND_BYTES: u64 = 256 << 10;

/// Bytes that are decompressed at once.
const BUFFER_BYTES: usize = 256 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextCompression {
    None,
    Gzip,
    Zstd,
}

/// A file of a source.
#[derive(Clone, Debug)]
pub(super) struct TextFile {
    pub(super) store: DatasetStore,
    /// Its path in the folder of the store.
    pub(super) name: String,
    /// Its size when it was listed.
    pub(super) bytes: u64,
}

impl TextFile {
    pub(super) fn url(&self) -> String {
        self.store.url_of(&self.name)
    }

    /// Returns an error about the file.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> DatasetError {
        DatasetError::Source { path: self.url(), problem: problem.into() }
    }

    /// Returns an error about a line of the file, counted from 1.
    pub(super) fn wrong_at(&self, line: u64, problem: impl Into<String>) -> DatasetError {
        DatasetError::Source { path: format!("{}:{line}", self.url()), problem: problem.into() }
    }

    /// Returns an error about a row of the file, counted from 0.
    pub(super) fn wrong_in_row(&self, row: u64, problem: String) -> DatasetError {
        DatasetError::Source { path: format!("{}, row {row}", self.url()), problem }
    }

    /// Returns the error for a stream of the file that failed.
    pub(super) fn unreadable(&self, error: io::Error) -> DatasetError {
        match error.downcast::<StoreError>() {
            Ok(error) => error.into(),
            Err(error) => self.wrong(format!("cannot be decompressed: {error}")),
        }
    }

    /// Opens the file, whose bytes are mostly read from `first` to `end`; what is read is added to `read_bytes`.
    pub(super) fn open(
        self: &Arc<Self>,
        runtime: &Handle,
        (first, end): (u64, u64),
        read_bytes: &Arc<AtomicU64>,
    ) -> Result<FileReader, DatasetError> {
        let meta = runtime.block_on(self.store.meta(&self.name))?;
        if meta.size != self.bytes {
            return Err(
                self.wrong(format!("changed: it had {} bytes when it was listed, and has {}", self.bytes, meta.size))
            );
        }
        Ok(FileReader {
            file: Arc::clone(self),
            meta,
            runtime: runtime.clone(),
            at: first,
            end,
            chunk: Bytes::new(),
            read_bytes: Arc::clone(read_bytes),
        })
    }
}

/// Reads a file in ranges, one after the other.
pub(super) struct FileReader {
    file: Arc<TextFile>,
    meta: ObjectMeta,
    runtime: Handle,
    /// Where the next range begins.
    at: u64,
    /// Where reading mostly ends.
    end: u64,
    /// What was read and not taken.
    chunk: Bytes,
    read_bytes: Arc<AtomicU64>,
}

impl FileReader {
    /// Returns the file's size in bytes.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.meta.size
    }

    /// Reads a range of the file.
    pub(super) fn range(&self, first: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let part = first..(first + bytes).min(self.meta.size);
        let read = self.runtime.block_on(self.file.store.read_part(&self.file.name, &self.meta, part))?;
        self.read_bytes.fetch_add(read.len() as u64, Relaxed);
        Ok(read)
    }

    /// Returns the stream of the file's content.
    pub(super) fn decompressed(self, compression: TextCompression) -> io::Result<Box<dyn BufRead>> {
        let buffered = |reader: Box<dyn Read>| Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
        Ok(match compression {
            TextCompression::None => Box::new(self),
            TextCompression::Gzip => buffered(Box::new(flate2::bufread::MultiGzDecoder::new(self))),
            TextCompression::Zstd => buffered(Box::new(zstd::stream::read::Decoder::with_buffer(self)?)),
        })
    }
}

impl BufRead for FileReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() && self.at < self.meta.size {
            let most = if self.file.store.local_folder().is_some() { LOCAL_RANGE_BYTES } else { RANGE_BYTES };
            let bytes = if self.at < self.end { most.min(self.end - self.at) } else { BEHIND_BYTES };
            self.chunk = self.range(self.at, bytes).map_err(io::Error::other)?;
            self.at += self.chunk.len() as u64;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, bytes: usize) {
        self.chunk.advance(bytes);
    }
}

impl Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(into)?;
        self.consume(bytes);
        Ok(bytes)
    }
}
