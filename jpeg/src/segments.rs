//! Where restart segments lie: found by their markers, or told by a table that was made once.

use crate::{error::Error, header::Jpeg, window::find_full};

/// A table of where restart segments begin, for a picture with restart markers: with it a decoder gets to a crop
/// without a look at what lies before.
///
/// Its entries are the bytes from the first segment to segment number `step`, from there to number `2 * step` and so on, up to the
/// last that there is; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTable<'t> {
    step: u32,
    lengths: &'t [[u8; 2]],
}

impl<'t> SegmentTable<'t> {
    /// A table that says where every `step`th segment begins.
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn new(step: u32, lengths: &'t [[u8; 2]]) -> Self {
        assert!(step > 0, "segments from one entry to the next");
        Self { step, lengths }
    }

    /// The entries for segments that begin at `starts`; `None` where one of them is 64 KiB or more.
    ///
    /// # Panics
    /// If `step` is 0.
    #[must_use]
    pub fn lengths(step: u32, starts: &[usize]) -> Option<Vec<[u8; 2]>> {
        let known: Vec<usize> = starts.iter().step_by(step as usize).copied().collect();
        let lengths = known.windows(2).map(|pair| u16::try_from(pair[1] - pair[0]).ok().map(u16::to_le_bytes));
        lengths.collect()
    }

    /// Segments from one entry to the next.
    #[must_use]
    pub const fn step(&self) -> u32 {
        self.step
    }

    /// The last segment up to `segment` whose place is known, and that place behind the first segment's.
    pub(crate) fn nearest(&self, segment: u32) -> (u32, usize) {
        let group = ((segment / self.step) as usize).min(self.lengths.len());
        let bytes = self.lengths[..group].iter().map(|length| usize::from(u16::from_le_bytes(*length))).sum();
        (group as u32 * self.step, bytes)
    }
}

impl<'b> Jpeg<'b> {
    /// The same picture, with a table of its restart segments. A table that is not this picture's makes it a broken
    /// one, or gives other pixels.
    #[must_use]
    pub fn with_segments(mut self, segments: SegmentTable<'b>) -> Self {
        self.segments = Some(segments);
        self
    }

    /// Where each restart segment begins, found by the markers; the first one of a picture without any.
    ///
    /// # Errors
    /// If there is a marker too few, or one that does not belong there.
    pub fn segment_starts(&self) -> Result<Vec<usize>, Error> {
        let mut starts = vec![self.scan_at];
        if self.restart_interval > 0 {
            let [columns, rows] = self.mcus();
            for segment in 1..(columns * rows).div_ceil(self.restart_interval) {
                starts.push(next_segment(self.bytes, starts[segment as usize - 1], segment)?);
            }
        }
        Ok(starts)
    }
}

/// Where segment number `segment` begins; the one before it begins or goes on at `at`.
pub(crate) fn next_segment(raw: &[u8], at: usize, segment: u32) -> Result<usize, Error> {
    let marker = next_marker(raw, at)?;
    if raw[marker + 1] == restart_marker(segment) { Ok(marker + 2) } else { Err(OUT_OF_TURN) }
}

/// Checks that segment number `segment` can begin at `at`.
pub(crate) fn check_start(raw: &[u8], at: usize, segment: u32) -> Result<(), Error> {
    let marker = raw.get(..at).and_then(|before| before.last_chunk());
    if marker == Some(&[0xff, restart_marker(segment)]) { Ok(()) } else { Err(OUT_OF_TURN) }
}

const OUT_OF_TURN: Error = Error::Corrupt("a restart marker out of turn");

/// The second byte of the marker in front of segment number `segment`, from 1.
const fn restart_marker(segment: u32) -> u8 {
    0xd0 + (segment - 1) as u8 % 8
}

/// The place of the next marker from `at` on.
fn next_marker(raw: &[u8], mut at: usize) -> Result<usize, Error> {
    loop {
        at = find_full(raw, at).ok_or(Error::Truncated)?;
        match raw.get(at + 1) {
            None => return Err(Error::Truncated),
            Some(0x00) => at += 2,
            Some(0xff) => at += 1,
            Some(_) => return Ok(at),
        }
    }
}
