//! A table of where the restart segments of a picture begin.

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
