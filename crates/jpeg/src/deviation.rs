//! Harmless departures of a picture from the standard.

use std::ops::BitOr;

/// A departure from the standard that libjpeg, and so nearly every decoder, ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Deviation {
    /// Bytes between two segments that belong to neither.
    Junk,
    /// The bytes end after the last MCU, without the end marker.
    NoEnd,
    /// A segment whose length field is smaller than the field itself.
    ShortSegment,
    /// The scan header of a sequential picture claims that the scan holds only some of the coefficients.
    ScanParameters,
    /// The Huffman tables are missing, as in the frames of Motion JPEG.
    StandardTables,
    /// A progressive picture ends before it has all bits of all coefficients, so that it lacks details.
    MissingScans,
}

impl Deviation {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Junk, Self::NoEnd, Self::ShortSegment, Self::ScanParameters, Self::StandardTables, Self::MissingScans];

    /// Returns a name in snake case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Junk => "junk_between_segments",
            Self::NoEnd => "no_end_marker",
            Self::ShortSegment => "short_segment",
            Self::ScanParameters => "scan_parameters",
            Self::StandardTables => "no_huffman_tables",
            Self::MissingScans => "missing_scans",
        }
    }
}

/// A set of [`Deviation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviations(u8);

impl Deviations {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with `deviation` added.
    #[must_use]
    pub const fn with(self, deviation: Deviation) -> Self {
        Self(self.0 | 1 << deviation as u8)
    }

    /// Returns whether the set contains `deviation`.
    #[must_use]
    pub const fn has(self, deviation: Deviation) -> bool {
        self.0 >> deviation as u8 & 1 == 1
    }

    /// Returns the members of the set.
    pub fn iter(self) -> impl Iterator<Item = Deviation> {
        Deviation::ALL.into_iter().filter(move |deviation| self.has(*deviation))
    }
}

impl BitOr for Deviations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
