//! Finds restart segments by their markers.

use crate::{
    error::Error,
    header::Jpeg,
    kernel::{Portable, SimdKernel},
};

impl Jpeg<'_> {
    /// Returns where each restart segment begins, found by the markers. A picture without markers has one segment. So
    /// has a progressive one, because its segments are found only by reading all before them.
    ///
    /// # Errors
    /// Returns an error when a marker is missing or has the wrong number.
    pub fn segment_starts(&self) -> Result<Vec<usize>, Error> {
        let mut starts = vec![self.scan_at];
        if self.restart_interval > 0 && self.scans.is_empty() {
            let [columns, rows] = self.mcus();
            for segment in 1..(columns * rows).div_ceil(self.restart_interval) {
                starts.push(next_segment(Portable, self.bytes, starts[segment as usize - 1], segment)?);
            }
        }
        Ok(starts)
    }
}

/// Returns the entries of a table of the restart segments that begin at `starts`: the number of bytes from the first
/// segment to segment number `step`, from there to segment number `2 * step`, and so on to the last such segment;
/// little-endian. `None` if an entry would be 64 KiB or more.
///
/// # Panics
/// Panics when `step` is 0.
#[must_use]
pub fn segment_lengths(step: u32, starts: &[usize]) -> Option<Vec<[u8; 2]>> {
    let known: Vec<usize> = starts.iter().step_by(step as usize).copied().collect();
    let lengths = known.windows(2).map(|pair| u16::try_from(pair[1] - pair[0]).ok().map(u16::to_le_bytes));
    lengths.collect()
}

/// Returns where segment number `segment` begins. `at` is a position within the segment before it.
#[inline(always)]
pub(crate) fn next_segment<K: SimdKernel>(kernel: K, raw: &[u8], at: usize, segment: u32) -> Result<usize, Error> {
    let marker = kernel.next_marker(raw, at).ok_or(Error::Truncated)?;
    let is_next = raw[marker + 1] == restart_marker(segment);
    if is_next { Ok(marker + 2) } else { Err(Error::Corrupt("a restart marker out of turn")) }
}

/// Returns the second byte of the marker before segment number `segment`, which counts from 1.
const fn restart_marker(segment: u32) -> u8 {
    0xd0 + (segment - 1) as u8 % 8
}

#[cfg(test)]
mod tests {
    use crate::testing::XorShift;

    use super::*;
    use crate::vector::VectorKernel;

    #[test]
    fn markers_are_found_among_stuffed_and_fill_bytes_however_they_are_looked_for() {
        let vector = VectorKernel::detect();
        // Pseudo-random bytes, many of which are 255.
        let mut random = XorShift::default();
        let mut below = |n: usize| random.below(n);
        for _ in 0..20_000 {
            let length = below(160);
            let byte = |below: &mut dyn FnMut(usize) -> usize| match below(30) {
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
                assert!(vector.is_none_or(|vector| vector.next_marker(&bytes, at) == plain), "{at} of {bytes:?}");
            }
        }
    }
}
