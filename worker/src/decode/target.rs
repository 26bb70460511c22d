//! Where the value of a column goes.

use bytes::Bytes;

/// The destination of one column of a sample.
#[derive(Debug)]
pub enum FieldTarget<'a> {
    /// The sample's place in a fixed column, of exactly the size of one sample.
    Fixed(&'a mut [u8]),
    /// Receives the value of a ragged column, without a copy.
    Ragged(&'a mut Bytes),
}

impl FieldTarget<'_> {
    /// Returns the place of a fixed column. A job's layout has such a place for every column of a fixed shape.
    pub(crate) fn fixed(&mut self) -> &mut [u8] {
        match self {
            Self::Fixed(place) => place,
            Self::Ragged(_) => panic!("a column of a fixed shape has a ragged target"),
        }
    }

    /// Writes a whole value.
    pub(super) fn write(&mut self, value: &Bytes) {
        match self {
            Self::Fixed(place) => place.copy_from_slice(value),
            Self::Ragged(place) => **place = value.clone(),
        }
    }

    /// Returns the place of a ragged column's value.
    pub(super) fn ragged(&mut self) -> &mut Bytes {
        match self {
            Self::Ragged(value) => value,
            Self::Fixed(place) => panic!("a ragged column has a target of {} bytes", place.len()),
        }
    }
}
