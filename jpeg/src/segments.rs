//! Where restart segments lie: found by their markers, or told by a table that was made once.

use crate::{
    error::Error,
    header::Jpeg,
    kernel::{Kernel, Portable},
    window::find_full,
};

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
                starts.push(next_segment(Portable, self.bytes, starts[segment as usize - 1], segment)?);
            }
        }
        Ok(starts)
    }
}

/// Where segment number `segment` begins; the one before it begins or goes on at `at`.
#[inline(always)]
pub(crate) fn next_segment<K: Kernel>(kernel: K, raw: &[u8], at: usize, segment: u32) -> Result<usize, Error> {
    let marker = kernel.next_marker(raw, at).ok_or(Error::Truncated)?;
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

/// The place of the next marker from `at` on: a byte of 255 with neither a stuffed zero nor another one behind it.
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
        // Pseudo-random bytes (xorshift) with many that are full.
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
