//! What cannot be converted.

use thiserror::Error;

use crate::PlaneFormat;

/// Why planes do not become RGB.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvertProblem {
    /// Nothing says by which matrix the colours were coded.
    #[error("nothing says by which matrix its colours are coded")]
    OpenMatrix,
    /// The matrix is none of those that are known.
    #[error(
        "its colours are coded by matrix {matrix}, which is none of BT.709 (1), FCC (4), BT.601 (5, 6), SMPTE 240M (7) and \
         BT.2020 (9, 10), or RGB (0) with a number for each pixel"
    )]
    UnknownMatrix {
        /// The matrix, by its number in ISO/IEC 23091-2.
        matrix: u16,
    },
    /// The planes are of a kind that is not converted.
    #[error("its planes have {} bits in the layout {:?}; 8 to 16 bits, with colour for one or two pixels, are known", .format.bits, .format.kind)]
    Format {
        /// The format of the planes.
        format: PlaneFormat,
    },
    /// The frame is none of those for which the conversion was planned.
    #[error("a frame has {found:?} in place of {wanted:?}")]
    Frame {
        /// Width, height and format for which it was planned.
        wanted: ([u32; 2], PlaneFormat),
        /// What the frame has.
        found: ([u32; 2], PlaneFormat),
    },
    /// A plane does not have all its rows.
    #[error("plane {number} has {found} bytes in rows {stride} apart, too few for {}x{} numbers", .size[0], .size[1])]
    Plane {
        /// Its place among the planes.
        number: usize,
        /// Its bytes.
        found: usize,
        /// Bytes from a row to the next.
        stride: usize,
        /// Numbers of a row, and rows.
        size: [usize; 2],
    },
}
