//! The shape of one sample of a column.

use crate::DType;

/// The shape of one sample of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleShape {
    /// All samples are arrays of this shape; it is empty for a scalar.
    Fixed(Vec<u32>),
    /// Samples are arrays whose first dimension differs.
    Rows {
        /// Shape of one row; empty for a scalar.
        row: Vec<u32>,
        /// The most rows of one sample.
        max_rows: u32,
    },
    /// Samples are bytes, of any length.
    Bytes {
        /// The most bytes of one sample.
        max_bytes: u32,
    },
}

impl SampleShape {
    /// Returns the most bytes of one sample with elements of type `dtype`.
    #[must_use]
    pub fn max_bytes(&self, dtype: DType) -> u64 {
        let bytes_of =
            |shape: &[u32]| shape.iter().fold(dtype.bytes() as u64, |bytes, side| bytes.saturating_mul((*side).into()));
        match self {
            Self::Fixed(shape) => bytes_of(shape),
            Self::Rows { row, max_rows } => bytes_of(row).saturating_mul((*max_rows).into()),
            Self::Bytes { max_bytes } => (*max_bytes).into(),
        }
    }
}
