//! A Parquet file whose columns are read side by side, each through a window that moves forward.

use std::{
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use bytes::{Buf, Bytes};
use parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};
use spdl_dataset::DatasetError;
use spdl_store::StoreError;

use super::file::{FileReader, TextFile};

/// Bytes of all windows together.
const WINDOWS_BYTES: u64 = 8 << 20;
/// The fewest bytes of a window.
const MIN_WINDOW_BYTES: u64 = 256 << 10;
/// The fewest bytes that are taken of a window at once.
const MIN_PIECE_BYTES: usize = 4 << 10;

/// A file whose parts are read through windows.
#[derive(Clone)]
pub(super) struct ColumnWindows(Arc<OpenColumnWindows>);

struct OpenColumnWindows {
    reader: FileReader,
    /// Windows, the last used at the end.
    read: Mutex<WindowsRead>,
}

struct WindowsRead {
    /// The most windows at a time.
    count: usize,
    windows: Vec<ColumnWindow>,
}

struct ColumnWindow {
    start: u64,
    bytes: Bytes,
}

/// The bytes of a file from a place on.
pub(super) struct WindowBytes {
    windows: ColumnWindows,
    at: u64,
    piece: Bytes,
}

impl ColumnWindow {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ColumnWindows {
    /// Begins with one window.
    pub(super) fn new(reader: FileReader) -> Self {
        let read = Mutex::new(WindowsRead { count: 1, windows: Vec::new() });
        Self(Arc::new(OpenColumnWindows { reader, read }))
    }

    /// Reads through so many windows from now on, one for each column that is read side by side with others.
    pub(super) fn set_count(&self, count: usize) {
        let mut read = self.0.read.lock().expect("nothing panics with it");
        read.count = count.max(1);
        read.windows.clear();
    }

    fn part(&self, first: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let mut read = self.0.read.lock().expect("nothing panics with it");
        let WindowsRead { count, windows } = &mut *read;
        let is_inside = |window: &ColumnWindow| window.start <= first && first + bytes <= window.end();
        if let Some(found) = windows.iter().position(is_inside) {
            let window = windows.remove(found);
            windows.push(window);
        } else {
            // The window that ends here moves on; of others, the one goes that was not used for the longest time.
            let moving = windows.iter().position(|window| (window.start..=window.end()).contains(&first));
            if let Some(gone) = moving.or((windows.len() >= *count).then_some(0)) {
                windows.remove(gone);
            }
            let room = (WINDOWS_BYTES / *count as u64).max(MIN_WINDOW_BYTES);
            windows.push(ColumnWindow { start: first, bytes: self.0.reader.range(first, bytes.max(room))? });
        }
        let window = windows.last().expect("it was just put there");
        let from = (first - window.start) as usize;
        Ok(window.bytes.slice(from..(from + bytes as usize).min(window.bytes.len())))
    }
}

impl Length for ColumnWindows {
    fn len(&self) -> u64 {
        self.0.reader.file_bytes()
    }
}

impl ChunkReader for ColumnWindows {
    type T = WindowBytes;

    fn get_read(&self, start: u64) -> Result<WindowBytes, ParquetError> {
        Ok(WindowBytes { windows: self.clone(), at: start, piece: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} of {}", self.len())));
        }
        self.part(start, length as u64).map_err(|error| ParquetError::External(error.into()))
    }
}

impl Read for WindowBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.windows.len().saturating_sub(self.at);
        if self.piece.is_empty() && left > 0 {
            let bytes = left.min(into.len().max(MIN_PIECE_BYTES) as u64);
            self.piece = self.windows.part(self.at, bytes).map_err(io::Error::other)?;
            self.at += self.piece.len() as u64;
        }
        let bytes = self.piece.len().min(into.len());
        self.piece.copy_to_slice(&mut into[..bytes]);
        Ok(bytes)
    }
}

/// Calls `work`, and returns an error if it panics, as the crate does for some damaged files.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(ParquetError::General("it is damaged".to_owned())))
}

/// Returns the error for a file that cannot be read as Parquet.
pub(super) fn unusable(file: &TextFile, error: ParquetError) -> DatasetError {
    match error {
        ParquetError::External(error) => {
            let error = match error.downcast::<StoreError>() {
                Ok(error) => return (*error).into(),
                Err(error) => error,
            };
            match error.downcast::<io::Error>() {
                Ok(error) => file.unreadable(*error),
                Err(error) => file.wrong(format!("cannot be read as Parquet: {error}")),
            }
        }
        error => file.wrong(format!("cannot be read as Parquet: {error}")),
    }
}
