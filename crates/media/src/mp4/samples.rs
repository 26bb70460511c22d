//! The tables of a track of MP4 (ISO/IEC 14496-12, 8.6 and 8.7): where its samples lie, and what they are. What the format calls a
//! sample is a packet elsewhere in this crate.

use super::boxes::{boxes, find, number, table};
use crate::MediaError;

/// The places of a track's samples, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct SamplePlaces<'b> {
    /// Length of the file.
    file_bytes: u64,
    sizes: SampleSizes<'b>,
    count: u32,
    next: u32,
    /// Places of chunks, each of 4 or 8 bytes.
    chunks: &'b [u8],
    chunk_bytes: usize,
    next_chunk: u32,
    /// From which chunk on there are so many samples in a chunk.
    runs: &'b [[u8; 12]],
    left: u32,
    at: u64,
    /// The bytes of all samples so far.
    passed: u64,
}

/// Lengths of samples.
#[derive(Clone, Copy, Debug)]
enum SampleSizes<'b> {
    /// All are equal.
    Equal(u32),
    /// Each has so many bits.
    Table { bits: u8, bytes: &'b [u8] },
}

/// Where a sample lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedPacket {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// The times and kinds of a track's samples, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct SampleTimes<'b> {
    next: u32,
    dts: i64,
    steps: SampleRuns<'b>,
    offsets: SampleRuns<'b>,
    /// Numbers of samples that can be decoded by themselves, from 1; `None` if all can.
    keys: Option<[&'b [[u8; 4]]; 2]>,
    /// Which are of a group at whose samples decoding can begin, too.
    groups: SampleRuns<'b>,
    /// A byte for each sample about what depends on it.
    dependencies: &'b [u8],
}

/// A table of values, each with the number of samples that have it.
#[derive(Clone, Debug)]
struct SampleRuns<'b> {
    entries: &'b [[u8; 8]],
    left: u32,
    value: u32,
}

/// When a sample is decoded and shown, in units of the track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleTime {
    pub(crate) dts: i64,
    pub(crate) pts: i64,
    pub(crate) duration: u32,
    pub(crate) is_key: bool,
    pub(crate) is_droppable: bool,
}

impl<'b> SamplePlaces<'b> {
    /// Reads the tables in the content of a box `stbl`, of a file of so many bytes; `None` if they are not valid.
    pub(crate) fn read(stbl: &'b [u8], file_bytes: u64) -> Option<Self> {
        let (sizes, count) = SampleSizes::read(stbl)?;
        let (chunks, chunk_bytes) = match find(stbl, &[b"stco"]) {
            Some(content) => (table::<4>(content)?.as_flattened(), 4),
            None => (table::<8>(find(stbl, &[b"co64"])?)?.as_flattened(), 8),
        };
        let runs = table::<12>(find(stbl, &[b"stsc"])?)?;
        Some(Self {
            file_bytes,
            sizes,
            count,
            next: 0,
            chunks,
            chunk_bytes,
            next_chunk: 0,
            runs,
            left: 0,
            at: 0,
            passed: 0,
        })
    }

    /// Returns the number of samples.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether all samples have the first description of the track.
    pub(crate) fn have_one_description(&self) -> bool {
        self.runs.iter().all(|run| number(run, 8) == Some(1))
    }

    /// Returns the place of the next sample, which lies in the file and is not empty.
    pub(crate) fn next(&mut self) -> Result<Option<PlacedPacket>, MediaError> {
        if self.next == self.count {
            return Ok(None);
        }
        let damaged = |byte, problem| MediaError::Malformed { byte, problem };
        while self.left == 0 {
            let place = self.next_chunk as usize * self.chunk_bytes;
            let chunk = self.chunks.get(place..place + self.chunk_bytes);
            let chunk = chunk.ok_or_else(|| damaged(self.at, "the tables have more packets than chunks hold"))?;
            self.at = chunk.iter().fold(0, |place, byte| place << 8 | u64::from(*byte));
            // SampleRuns count chunks from 1.
            while let [_, second, ..] = self.runs
                && number(second, 0) == Some(self.next_chunk + 1)
            {
                self.runs = &self.runs[1..];
            }
            self.left = self.runs.first().and_then(|run| number(run, 4)).unwrap_or_default();
            self.next_chunk += 1;
        }
        let (offset, bytes) = (self.at, self.sizes.of(self.next));
        let end = offset.checked_add(bytes.into()).filter(|end| *end <= self.file_bytes);
        let truncated = MediaError::Truncated { bytes: self.file_bytes, what: "the packets of its tables" };
        let end = end.ok_or(truncated)?;
        self.passed += u64::from(bytes);
        if bytes == 0 || self.passed > self.file_bytes {
            return Err(damaged(offset, "packets of the tables are empty, or lie over one another"));
        }
        (self.next, self.left, self.at) = (self.next + 1, self.left - 1, end);
        Ok(Some(PlacedPacket { offset, bytes }))
    }
}

impl SamplePlaces<'_> {
    /// Passes the samples behind the last one up to the end of its chunk, if all are equally long. Returns their bytes.
    pub(crate) fn pass_chunk(&mut self) -> u64 {
        let SampleSizes::Equal(bytes) = self.sizes else { return 0 };
        let count = self.left.min(self.count - self.next);
        let bytes = u64::from(count) * u64::from(bytes);
        (self.next, self.left) = (self.next + count, self.left - count);
        self.at = self.at.saturating_add(bytes);
        self.passed = self.passed.saturating_add(bytes);
        bytes
    }
}

impl<'b> SampleSizes<'b> {
    /// Reads the lengths, and the number of samples, for all of which there are lengths.
    fn read(stbl: &'b [u8]) -> Option<(Self, u32)> {
        let (sizes, bits) = match find(stbl, &[b"stsz"]) {
            Some(sizes) => (sizes, 32),
            None => {
                let sizes = find(stbl, &[b"stz2"])?;
                (sizes, sizes.get(7).copied().filter(|bits| matches!(bits, 4 | 8 | 16))?)
            }
        };
        let (length, count) = (number(sizes, 4)?, number(sizes, 8)?);
        if bits == 32 && length > 0 {
            return Some((Self::Equal(length), count));
        }
        let bytes = usize::try_from((u64::from(count) * u64::from(bits)).div_ceil(8)).ok()?;
        Some((Self::Table { bits, bytes: sizes.get(12..)?.get(..bytes)? }, count))
    }

    fn of(self, nth: u32) -> u32 {
        match self {
            Self::Equal(bytes) => bytes,
            Self::Table { bits: 4, bytes } => u32::from(bytes[nth as usize / 2] >> (4 * (1 - nth % 2)) & 15),
            Self::Table { bits, bytes } => {
                let width = usize::from(bits / 8);
                let entry = &bytes[nth as usize * width..][..width];
                entry.iter().fold(0, |size, byte| size << 8 | u32::from(*byte))
            }
        }
    }
}

impl<'b> SampleTimes<'b> {
    /// Reads the tables in the content of a box `stbl`; `None` if they are not valid.
    pub(crate) fn read(stbl: &'b [u8]) -> Option<Self> {
        let steps = SampleRuns::new(table(find(stbl, &[b"stts"])?)?);
        let offsets = match find(stbl, &[b"ctts"]) {
            Some(content) => SampleRuns::new(table(content)?),
            None => SampleRuns::new(&[]),
        };
        let keys = match find(stbl, &[b"stss"]) {
            // Partial keys are those of QuickTime from which decoding can begin as from a picture that is refreshed.
            Some(content) => Some([table(content)?, find(stbl, &[b"stps"]).and_then(table).unwrap_or_default()]),
            None => None,
        };
        let dependencies = find(stbl, &[b"sdtp"]).and_then(|content| content.get(4..)).unwrap_or_default();
        let groups = boxes(stbl).filter(|(kind, _)| kind == b"sbgp").find_map(|(_, content)| {
            // A version of 1 has a field more before the table.
            let before = if content.first() == Some(&1) { 8 } else { 4 };
            content.get(4..8).filter(|name| name == b"rap ").and_then(|_| table(content.get(before..)?))
        });
        Some(Self {
            next: 0,
            dts: 0,
            steps,
            offsets,
            keys,
            groups: SampleRuns::new(groups.unwrap_or_default()),
            dependencies,
        })
    }

    /// Returns the time of the next sample. Samples behind the ends of the tables have the last duration, and are shown when
    /// they are decoded.
    pub(crate) fn next(&mut self) -> SampleTime {
        let duration = match self.steps.next() {
            Some(step) => step,
            None => self.steps.value,
        };
        // Some programs have written times that go back.
        let duration = if duration > i32::MAX.cast_unsigned() { 1 } else { duration };
        let offset = self.offsets.next().unwrap_or_default().cast_signed();
        let dts = self.dts;
        self.dts = dts + i64::from(duration);
        let nth = self.next;
        self.next += 1;
        let is_key = self.keys.as_mut().is_none_or(|lists| {
            lists.iter_mut().fold(false, |is_key, keys| {
                while keys.first().is_some_and(|key| u32::from_be_bytes(*key) < self.next) {
                    *keys = &keys[1..];
                }
                is_key || keys.first().is_some_and(|key| u32::from_be_bytes(*key) == self.next)
            })
        });
        let is_key = self.groups.next().unwrap_or_default() > 0 || is_key;
        let is_droppable = self.dependencies.get(nth as usize).is_some_and(|dependency| dependency >> 2 & 3 == 2);
        SampleTime { dts, pts: dts + i64::from(offset), duration, is_key, is_droppable }
    }
}

impl<'b> SampleRuns<'b> {
    const fn new(entries: &'b [[u8; 8]]) -> Self {
        Self { entries, left: 0, value: 0 }
    }

    fn next(&mut self) -> Option<u32> {
        while self.left == 0 {
            let (entry, rest) = self.entries.split_first()?;
            self.entries = rest;
            self.left = number(entry, 0)?;
            self.value = number(entry, 4)?;
        }
        self.left -= 1;
        Some(self.value)
    }
}
