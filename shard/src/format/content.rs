//! The value of a field, as columns are decoded from it.

use std::fmt;

use bytes::Bytes;
use spdl_types::DType;

use super::npy::npy;

/// Upper limit of the number of files in a list.
pub const MAX_LIST_FILES: usize = 1 << 16;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// One value.
    One(Content),
    /// A list of files or texts, at most [`MAX_LIST_FILES`]; `None` for one that is null.
    List(Vec<Option<Bytes>>),
}

/// The content of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The bytes of a file, or a text.
    File(Bytes),
    /// A number or an array, where the format knows its type.
    Array(Array),
}

/// An array, in the form that a `.npy` file has after its header; the header is added when a file is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DType,
    /// The dimensions; none for a number.
    pub shape: Vec<u64>,
    /// The elements, little-endian and in row-major order.
    pub elements: Bytes,
}

/// The error of a list that does not stand for one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOneValue {
    /// The number of its values.
    pub count: usize,
}

impl FieldValue {
    /// Returns the size of all files, or of an array's elements, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::One(content) => content.size(),
            Self::List(files) => files.iter().flatten().map(Bytes::len).sum(),
        }
    }

    /// Returns the value as one content: that of a list of one, or an empty file for an empty list.
    ///
    /// # Errors
    /// [`NotOneValue`] for a list of several, or of one that is null.
    pub fn into_one(self) -> Result<Content, NotOneValue> {
        match self {
            Self::One(content) => Ok(content),
            Self::List(mut files) => match (files.len(), files.pop()) {
                (0, _) => Ok(Content::File(Bytes::new())),
                (1, Some(Some(file))) => Ok(Content::File(file)),
                (count, _) => Err(NotOneValue { count }),
            },
        }
    }

    /// Returns the files: one value is a list of one.
    #[must_use]
    pub fn into_files(self) -> Vec<Option<Bytes>> {
        match self {
            Self::One(content) => vec![Some(content.into_file())],
            Self::List(files) => files,
        }
    }
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

impl fmt::Display for NotOneValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("is a list of one null, which is no value"),
            count => write!(f, "is a list of {count} values, and one is wanted"),
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

impl From<Content> for FieldValue {
    fn from(content: Content) -> Self {
        Self::One(content)
    }
}

impl From<Bytes> for FieldValue {
    fn from(file: Bytes) -> Self {
        Self::One(file.into())
    }
}

impl From<Array> for FieldValue {
    fn from(array: Array) -> Self {
        Self::One(array.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_one_is_one_value_and_one_value_is_a_list_of_one() {
        let file = || Bytes::from_static(b"abc");
        let one = |files: &[Option<Bytes>]| FieldValue::List(files.to_vec()).into_one();
        assert_eq!(one(&[Some(file())]), Ok(Content::File(file())));
        assert_eq!(one(&[]), Ok(Content::File(Bytes::new())));
        assert_eq!(one(&[None]), Err(NotOneValue { count: 1 }));
        assert_eq!(one(&[Some(file()), None]), Err(NotOneValue { count: 2 }));
        assert_eq!(FieldValue::from(file()).into_files(), [Some(file())]);
        assert_eq!(FieldValue::List(vec![Some(file()), None, Some(file())]).size(), 6);
    }
}
