//! How a picture departs from the standard without harm.

use std::ops::BitOr;

/// Something that libjpeg, and with it nearly everybody, passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Oddity {
    /// Bytes between two segments that belong to neither.
    Junk,
    /// The bytes end behind the last MCU, without the end marker.
    NoEnd,
    /// A segment whose length is shorter than the field that says so.
    ShortSegment,
    /// The scan of a sequential picture claims to hold a part of the coefficients.
    ScanParameters,
    /// The Huffman tables are left out, as in the frames of Motion JPEG.
    StandardTables,
}

impl Oddity {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Junk, Self::NoEnd, Self::ShortSegment, Self::ScanParameters, Self::StandardTables];

    /// One word.
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
    /// None of them.
    pub const NONE: Self = Self(0);

    /// The set with one more.
    #[must_use]
    pub const fn with(self, oddity: Oddity) -> Self {
        Self(self.0 | 1 << oddity as u8)
    }

    /// Whether it is among them.
    #[must_use]
    pub const fn has(self, oddity: Oddity) -> bool {
        self.0 >> oddity as u8 & 1 == 1
    }

    /// Those that are there.
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
