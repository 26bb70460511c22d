//! A window onto the entropy-coded data, without the zeros that are stuffed after bytes of 255.

use crate::error::Error;

/// Number of zero bytes after the data, or of bytes that can be read without a check. It exceeds the longest MCU: six
/// blocks of 64 symbols of 31 bits have 1,488 bytes.
pub(crate) const SLACK_BYTES: usize = 2048;
const WINDOW_BYTES: usize = 32 << 10;

/// Why the window ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowEnd {
    /// It is full; more data follows.
    Open,
    /// A marker with this second byte, whose first byte is at the window's position.
    Marker(u8),
    /// The end of the file.
    Bytes,
}

/// Data without stuffed zeros.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    filled: usize,
    /// Position in the file of the data that follows the window.
    at: usize,
    end: WindowEnd,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: vec![0; WINDOW_BYTES + SLACK_BYTES + 64], filled: 0, at: 0, end: WindowEnd::Open }
    }
}

impl Window {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn end(&self) -> WindowEnd {
        self.end
    }

    /// Returns the last position at which an MCU may begin without moving the window.
    pub(crate) fn safe(&self) -> usize {
        match self.end {
            WindowEnd::Open => self.filled.saturating_sub(SLACK_BYTES),
            // The reservoir reads ahead of the bits that are used.
            _ => self.filled + 8,
        }
    }

    /// Returns the error when more data is needed than the segment has.
    pub(crate) fn early_end(&self) -> Error {
        match self.end {
            WindowEnd::Bytes | WindowEnd::Marker(0xd9) => Error::Truncated,
            _ => Error::Corrupt("a segment that ends early"),
        }
    }

    /// Restarts the window at a position of the file.
    pub(crate) fn start(&mut self, raw: &[u8], at: usize) {
        (self.filled, self.at, self.end) = (0, at, WindowEnd::Open);
        self.fill(raw);
    }

    /// Drops the first `used` bytes and reads more.
    pub(crate) fn advance(&mut self, raw: &[u8], used: usize) {
        self.bytes.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.fill(raw);
    }

    fn fill(&mut self, raw: &[u8]) {
        let (mut from, mut to) = (self.at, self.filled);
        self.end = loop {
            if to >= WINDOW_BYTES {
                break WindowEnd::Open;
            }
            let room = WINDOW_BYTES - to;
            let copied = copy_plain(&raw[from..], &mut self.bytes[to..], room);
            (from, to) = (from + copied, to + copied);
            match raw.get(from..) {
                None | Some([]) => break WindowEnd::Bytes,
                Some([0xff, 0x00, ..]) => {
                    self.bytes[to] = 0xff;
                    (from, to) = (from + 2, to + 1);
                }
                // Any number of fill bytes may precede a marker.
                Some([0xff, 0xff, ..]) => from += 1,
                Some([0xff, marker, ..]) => break WindowEnd::Marker(*marker),
                Some([0xff]) => {
                    from += 1;
                    break WindowEnd::Bytes;
                }
                Some(_) => {}
            }
        };
        (self.at, self.filled) = (from, to);
        if self.end != WindowEnd::Open {
            self.bytes[to..to + SLACK_BYTES + 16].fill(0);
        }
    }
}

/// Returns the index of the first byte of 255 among eight, or 8 if there is none.
#[inline(always)]
fn first_full(chunk: &[u8; 8]) -> usize {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(*chunk);
    let full = ((word & LOW) + ONES) & word & !LOW;
    full.trailing_zeros() as usize / 8
}

/// Returns the position of the first byte of 255 from `at` on.
pub(crate) fn find_full(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(at..at + 8) {
        let found = first_full(chunk.try_into().expect("8 bytes"));
        at += found;
        if found < 8 {
            return Some(at);
        }
    }
    bytes.get(at..)?.iter().position(|byte| *byte == 0xff).map(|found| at + found)
}

/// Copies bytes up to the first byte of 255, about `room` of them at most, and returns their number. `to` has 8 bytes
/// more than `room`.
fn copy_plain(from: &[u8], to: &mut [u8], room: usize) -> usize {
    let mut at = 0;
    while at < room
        && let Some(chunk) = from.get(at..at + 8)
    {
        to[at..at + 8].copy_from_slice(chunk);
        let found = first_full(chunk.try_into().expect("8 bytes"));
        at += found;
        if found < 8 {
            return at;
        }
    }
    while at < room
        && let Some(&byte) = from.get(at)
        && byte != 0xff
    {
        to[at] = byte;
        at += 1;
    }
    at
}

/// Returns the position of the next marker from `at` on: a byte of 255 that is followed by neither a stuffed zero nor
/// another 255.
pub(crate) fn next_marker(raw: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = find_full(raw, at)?;
        match raw.get(at + 1)? {
            0x00 => at += 2,
            0xff => at += 1,
            _ => return Some(at),
        }
    }
}
