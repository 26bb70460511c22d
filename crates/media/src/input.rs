//! The bytes of a head, of which some may have to be fetched first.

use std::ops::Range;

use crate::MediaError;

/// The place that has been reached in the head, and what is needed to go on.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Length of the file.
    file_bytes: u64,
    at: u64,
    needed: u64,
    /// The bytes that were passed last.
    skipped: u64,
}

/// Bytes of a file from a [`Cursor`] on.
pub(crate) struct Input<'c, 'b> {
    cursor: &'c mut Cursor,
    bytes: &'b [u8],
    /// Place of the first of the bytes in the file.
    start: u64,
}

/// Returns the number in at most eight bytes, of which the first is the highest.
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Cursor {
    /// The beginning of a file, of which so many bytes are needed first.
    pub(crate) const fn new(file_bytes: u64, needed: u64) -> Self {
        Self { file_bytes, at: 0, needed, skipped: 0 }
    }

    /// Returns the range of bytes that is needed next, of at least so many if the file has them.
    pub(crate) fn wants(&self, least: u64) -> Range<u64> {
        let Self { file_bytes, at, needed, .. } = *self;
        at..at.saturating_add(needed.max(least)).min(file_bytes)
    }

    /// Returns the bytes that were passed before what is needed next.
    pub(crate) const fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl<'c, 'b> Input<'c, 'b> {
    /// The bytes from the cursor on.
    pub(crate) const fn new(cursor: &'c mut Cursor, bytes: &'b [u8]) -> Self {
        let start = cursor.at;
        Self { cursor, bytes, start }
    }

    /// Returns the next `count` bytes, without passing them; `None` if they have to be fetched first. Without them, the file
    /// ends within `what`.
    pub(crate) fn peek(&mut self, count: u64, what: &'static str) -> Result<Option<&'b [u8]>, MediaError> {
        let Cursor { file_bytes, at, .. } = *self.cursor;
        if at.checked_add(count).is_none_or(|end| end > file_bytes) {
            return Err(MediaError::Truncated { bytes: file_bytes, what });
        }
        let found = usize::try_from(at - self.start).ok().zip(usize::try_from(count).ok());
        let found = found.and_then(|(from, count)| self.bytes.get(from..)?.get(..count));
        if found.is_none() {
            self.cursor.needed = count;
        }
        Ok(found)
    }

    /// Passes `count` bytes, which need not be there.
    pub(crate) const fn skip(&mut self, count: u64) {
        self.cursor.at = self.cursor.at.saturating_add(count);
        self.cursor.skipped = count;
    }

    /// Returns the place of the next byte in the file.
    pub(crate) const fn at(&self) -> u64 {
        self.cursor.at
    }

    /// Returns the length of the file.
    pub(crate) const fn file_bytes(&self) -> u64 {
        self.cursor.file_bytes
    }

    /// Returns an error about the next byte.
    pub(crate) const fn malformed(&self, problem: &'static str) -> MediaError {
        MediaError::Malformed { byte: self.cursor.at, problem }
    }
}
