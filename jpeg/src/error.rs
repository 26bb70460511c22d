//! What can be wrong with a picture's bytes.

use std::fmt;

/// A picture that this crate does not decode. Trying again gives the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the picture does.
    Truncated,
    /// The bytes contradict the standard.
    Corrupt(&'static str),
    /// A picture that may be fine, of a kind that is left to another decoder.
    Unsupported(Unsupported),
    /// A picture beyond the limits.
    TooLarge {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
}

/// The kinds of JPEG that are left to another decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// The coefficients come in several passes.
    Progressive,
    /// Arithmetic instead of Huffman coding.
    Arithmetic,
    /// Lossless or hierarchical.
    OtherProcess,
    /// Samples of other than 8 bits.
    Precision,
    /// Other than one or three components: CMYK, YCCK and stranger ones.
    Components,
    /// Three components that are not luma and two chroma.
    ColourSpace,
    /// Subsampling other than 4:2:0, 4:2:2, 4:4:0 and 4:4:4.
    Sampling,
    /// Components in scans of their own.
    SeveralScans,
    /// The height comes behind the picture.
    LateHeight,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the JPEG is cut off"),
            Self::Corrupt(what) => write!(f, "the JPEG is broken: {what}"),
            Self::Unsupported(kind) => write!(f, "the JPEG is of a kind that is left to another decoder: {kind}"),
            Self::TooLarge { width, height } => write!(f, "a JPEG of {width}x{height} is beyond the limits"),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Progressive => "progressive",
            Self::Arithmetic => "arithmetic coding",
            Self::OtherProcess => "lossless or hierarchical",
            Self::Precision => "not 8 bits a sample",
            Self::Components => "not one or three components",
            Self::ColourSpace => "not luma and chroma",
            Self::Sampling => "unusual subsampling",
            Self::SeveralScans => "several scans",
            Self::LateHeight => "height behind the picture",
        })
    }
}

impl std::error::Error for Error {}
