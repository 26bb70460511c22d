//! Reads the head of a sound file from ranges of its bytes, in whatever way these are fetched.

use std::ops::Range;

use crate::{MediaError, Track, flac::FlacHead, wav::WavHead};

/// The bytes that a first request asks for: enough for all of the heads that most programs write.
const REQUEST_BYTES: u64 = 4096;

/// Reads the head of a file. [`wants`](Self::wants) is the range of bytes that it needs next, and [`read`](Self::read)
/// takes them, until that returns a track. What lies between the parts of a head, such as pictures, is not asked for.
///
/// ```
/// # fn main() -> Result<(), spdl_media::MediaError> {
/// # let file = *b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x02\0\0\0\0\0";
/// let mut reader = spdl_media::HeadReader::new(file.len() as u64);
/// let track = loop {
///     let wanted = reader.wants();
///     if let Some(track) = reader.read(&file[wanted.start as usize..wanted.end as usize])? {
///         break track;
///     }
/// };
/// assert_eq!((track.rate, track.channels, track.frames), (16_000, 1, Some(1)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeadReader {
    format: HeadFormat,
    cursor: Cursor,
}

#[derive(Clone, Debug)]
enum HeadFormat {
    Unknown,
    Wav(WavHead),
    Flac(FlacHead),
}

/// The place that has been reached in the head, and what is needed to go on.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Length of the file.
    file_bytes: u64,
    at: u64,
    needed: u64,
}

/// Bytes of a file from a [`Cursor`] on.
pub(crate) struct Input<'c, 'b> {
    cursor: &'c mut Cursor,
    bytes: &'b [u8],
    /// Place of the first of the bytes in the file.
    start: u64,
}

impl HeadReader {
    /// Begins to read the head of a file of `file_bytes` bytes.
    #[must_use]
    pub const fn new(file_bytes: u64) -> Self {
        Self { format: HeadFormat::Unknown, cursor: Cursor { file_bytes, at: 0, needed: 16 } }
    }

    /// Returns the range of bytes that [`read`](Self::read) takes next. It lies in the file, and is empty only for an empty one.
    #[must_use]
    pub fn wants(&self) -> Range<u64> {
        let Cursor { file_bytes, at, needed } = self.cursor;
        at..at.saturating_add(needed.max(REQUEST_BYTES)).min(file_bytes)
    }

    /// Reads `bytes`, which begin at the first byte that is wanted, and returns what the head says once all of it was there.
    /// Otherwise, another range is wanted.
    ///
    /// # Errors
    /// If the file is of another format, of a kind that is not decoded, cut off within its head, or damaged there.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Track>, MediaError> {
        let start = self.cursor.at;
        let mut input = Input { cursor: &mut self.cursor, bytes, start };
        loop {
            match &mut self.format {
                HeadFormat::Wav(head) => return head.read(&mut input),
                HeadFormat::Flac(head) => return head.read(&mut input),
                HeadFormat::Unknown => {}
            }
            let most = input.cursor.file_bytes.min(16);
            let Some(begins) = input.peek(most, "its first bytes")? else { return Ok(None) };
            self.format = if let Some(head) = WavHead::recognise(begins) {
                HeadFormat::Wav(head)
            } else if begins.starts_with(b"fLaC") {
                HeadFormat::Flac(FlacHead::default())
            } else if let [b'I', b'D', b'3', _, _, flags, sizes @ .., _, _, _, _, _, _] = begins {
                // A tag of MP3, which some programs put before FLAC too.
                let bytes = sizes.iter().fold(0, |bytes, size| bytes << 7 | u64::from(size & 0x7f));
                let footer = if flags & 0x10 == 0 { 0 } else { 10 };
                input.skip(10 + bytes + footer);
                continue;
            } else {
                return Err(MediaError::NotSound { begins: begins.escape_ascii().to_string() });
            };
        }
    }
}

impl<'b> Input<'_, 'b> {
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
