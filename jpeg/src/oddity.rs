//! Harmless departures of a picture from the standard.

use std::ops::BitOr;

/// A departure from the standard that libjpeg, and so nearly every decoder, ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oddity {
    /// Bytes between two segments that belong to neither.
    Junk,
    /// The bytes end after the last MCU, without the end marker.
    NoEnd,
    /// A segment whose length field is smaller than the field itself.
    ShortSegment,
    /// The scan header of a sequential picture says that the scan holds only some of the coefficients.
    ScanParameters,
    /// The Huffman tables are missing, as in the frames of Motion JPEG.
    StandardTables,
}

impl Oddity {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Junk, Self::NoEnd, Self::ShortSegment, Self::ScanParameters, Self::StandardTables];

    /// Returns a name in snake case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Junk => "junk_between_segments",
            Self::NoEnd => "no_end_marker",
            Self::ShortSegment => "short_segment",
            Self::ScanParameters => "scan_parameters",
            Self::StandardTables => "no_huffman_tables",
        }
    }
}

/// A set of [`Oddity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities(u8);

impl Oddities {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with `oddity` added.
    #[must_use]
    pub const fn with(self, oddity: Oddity) -> Self {
        Self(self.0 | 1 << oddity as u8)
    }

    /// Returns whether the set contains `oddity`.
    #[must_use]
    pub const fn has(self, oddity: Oddity) -> bool {
        self.0 >> oddity as u8 & 1 == 1
    }

    /// Returns the members of the set.
    pub fn iter(self) -> impl Iterator<Item = Oddity> {
        Oddity::ALL.into_iter().filter(move |oddity| self.has(*oddity))
    }
}

impl BitOr for Oddities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
