//! The content of a field, as columns are decoded from it.

use bytes::Bytes;
use spdl_core::job::DType;

use super::npy::npy;

/// The content of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The bytes of a file, or a text.
    File(Bytes),
    /// A number or an array, where the format knows its type.
    Array(Array),
}

/// An array: a `.npy` file of which nobody has needed the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DType,
    /// The dimensions; none for a number.
    pub shape: Vec<u64>,
    /// The elements, little-endian and in row-major order.
    pub elements: Bytes,
}

impl Content {
    /// Returns the size of the file, or of the array's elements, in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::File(bytes) | Self::Array(Array { elements: bytes, .. }) => bytes.len(),
        }
    }

    /// Returns the content as a file: an array as the `.npy` file that it is.
    #[must_use]
    pub fn into_file(self) -> Bytes {
        match self {
            Self::File(file) => file,
            Self::Array(array) => npy(&array),
        }
    }
}

impl From<Bytes> for Content {
    fn from(file: Bytes) -> Self {
        Self::File(file)
    }
}

impl From<Array> for Content {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}
