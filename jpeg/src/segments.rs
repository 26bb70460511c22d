//! Finds restart segments, by their markers or with a table made earlier.

use crate::{
    error::Error,
    header::Jpeg,
    kernel::{Portable, SimdKernel},
    window::find_full,
};

/// A table of where restart segments begin, for a picture with restart markers. With it, a decoder reaches a crop
/// without reading what lies before it.
///
/// The entries are the number of bytes from the first segment to segment number `step`, from there to segment number `2
/// * step`, and so on to the last such segment; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTable<'t> {
    step: u32,
    lengths: &'t [[u8; 2]],
}

impl<'t> SegmentTable<'t> {
    /// Creates a table with an entry for each `step`th segment.
    ///
    /// # Panics
    /// Panics when `step` is 0.
    #[must_use]
    pub fn new(step: u32, lengths: &'t [[u8; 2]]) -> Self {
        assert!(step > 0, "segments from one entry to the next");
        Self { step, lengths }
    }

    /// Returns the entries for segments that begin at `starts`, or `None` when an entry would be 64 KiB or more.
    ///
    /// # Panics
    /// Panics when `step` is 0.
    #[must_use]
    pub fn lengths(step: u32, starts: &[usize]) -> Option<Vec<[u8; 2]>> {
        let known: Vec<usize> = starts.iter().step_by(step as usize).copied().collect();
        let lengths = known.windows(2).map(|pair| u16::try_from(pair[1] - pair[0]).ok().map(u16::to_le_bytes));
        lengths.collect()
    }

    /// Returns the number of segments per entry.
    #[must_use]
    pub const fn step(&self) -> u32 {
        self.step
    }

    /// Returns the last segment up to `segment` whose position the table knows, and its distance from the first segment
    /// in bytes.
    pub(crate) fn nearest(&self, segment: u32) -> (u32, usize) {
        let group = ((segment / self.step) as usize).min(self.lengths.len());
        let bytes = self.lengths[..group].iter().map(|length| usize::from(u16::from_le_bytes(*length))).sum();
        (group as u32 * self.step, bytes)
    }
}

impl<'b> Jpeg<'b> {
    /// Adds a table of restart segments to the picture. With the table of another picture, decoding fails or gives
    /// wrong pixels.
    #[must_use]
    pub fn with_segments(mut self, segments: SegmentTable<'b>) -> Self {
        self.segments = Some(segments);
        self
    }

    /// Returns where each restart segment begins, found by the markers. A picture without markers has one segment.
    ///
    /// # Errors
    /// Returns an error when a marker is missing or has the wrong number.
    pub fn segment_starts(&self) -> Result<Vec<usize>, Error> {
        let mut starts = vec![self.scan_at];
        if self.restart_interval > 0 {
            let [columns, rows] = self.mcus();
            for segment in 1..(columns * rows).div_ceil(self.restart_interval) {
                starts.push(next_segment(Portable, self.bytes, starts[segment as usize - 1], segment)?);
            }
        }
        Ok(starts)
    }
}

/// Returns where segment number `segment` begins. `at` is a position within the segment before it.
#[inline(always)]
pub(crate) fn next_segment<K: SimdKernel>(kernel: K, raw: &[u8], at: usize, segment: u32) -> Result<usize, Error> {
    let marker = kernel.next_marker(raw, at).ok_or(Error::Truncated)?;
    if raw[marker + 1] == restart_marker(segment) { Ok(marker + 2) } else { Err(OUT_OF_TURN) }
}

/// Checks that segment number `segment` can begin at `at`.
pub(crate) fn check_start(raw: &[u8], at: usize, segment: u32) -> Result<(), Error> {
    let marker = raw.get(..at).and_then(|before| before.last_chunk());
    if marker == Some(&[0xff, restart_marker(segment)]) { Ok(()) } else { Err(OUT_OF_TURN) }
}

const OUT_OF_TURN: Error = Error::Corrupt("a restart marker out of turn");

/// Returns the second byte of the marker before segment number `segment`, which counts from 1.
const fn restart_marker(segment: u32) -> u8 {
    0xd0 + (segment - 1) as u8 % 8
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_among_stuffed_and_fill_bytes_however_they_are_looked_for() {
        #[cfg(target_arch = "x86_64")]
        let vector = crate::vector::Avx2::detect();
        // Pseudo-random bytes (xorshift), many of which are 255.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % n
        };
        for _ in 0..20_000 {
            let length = below(160) as usize;
            let byte = |below: &mut dyn FnMut(u64) -> u64| match below(30) {
                0..3 => vec![0xff, 0],
                3 => vec![0xff],
                4 => vec![0xff, 0xd3],
                _ => vec![below(255) as u8],
            };
            let bytes: Vec<u8> = (0..length).flat_map(|_| byte(&mut below)).collect();
            for at in [0, 1, length / 2, bytes.len().saturating_sub(2), bytes.len() + 3] {
                let is_marker = |at: &usize| bytes[*at] == 0xff && !matches!(bytes[at + 1], 0 | 0xff);
                let plain = (at..bytes.len().saturating_sub(1)).find(is_marker);
                assert_eq!(Portable.next_marker(&bytes, at), plain, "{at} of {bytes:?}");
                #[cfg(target_arch = "x86_64")]
                assert!(vector.is_none_or(|avx2| avx2.next_marker(&bytes, at) == plain), "{at} of {bytes:?}");
            }
        }
    }
}
