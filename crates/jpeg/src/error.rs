//! The errors of decoding a picture.

use std::fmt;

/// The reason why this crate does not decode a picture. Decoding it again gives the same error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the picture does.
    Truncated,
    /// The bytes contradict the standard.
    Corrupt(&'static str),
    /// The picture may be valid, but is of a kind that is left to another decoder.
    Unsupported(Unsupported),
    /// The picture exceeds the limits.
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
}

/// The kinds of JPEG that are left to another decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// Arithmetic instead of Huffman coding.
    Arithmetic,
    /// A lossless or hierarchical picture.
    OtherProcess,
    /// Samples of other than 8 bits.
    Precision,
    /// Other than one or three components, such as CMYK and YCCK.
    Components,
    /// Three components that are not luma and two chroma.
    ColourSpace,
    /// Subsampling other than 4:2:0, 4:2:2, 4:4:0 and 4:4:4.
    Sampling,
    /// Each component of a sequential picture in a scan of its own.
    SeveralScans,
    /// The height comes after the picture.
    LateHeight,
    /// A file that a scalable packed picture could not give back bit for bit, for example because it is progressive or has
    /// bytes between its segments.
    NotRestorable,
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
            Self::Arithmetic => "arithmetic coding",
            Self::OtherProcess => "lossless or hierarchical",
            Self::Precision => "not 8 bits a sample",
            Self::Components => "not one or three components",
            Self::ColourSpace => "not luma and chroma",
            Self::Sampling => "unusual subsampling",
            Self::SeveralScans => "several scans",
            Self::LateHeight => "height behind the picture",
            Self::NotRestorable => "a file that cannot be packed without loss",
        })
    }
}

impl std::error::Error for Error {}
