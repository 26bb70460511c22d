//! The columns of a Parquet file that can be read, as its index describes them.

use spdl_types::DType;

/// How a column's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Boolean,
    Int32,
    Int64,
    Int96,
    Float,
    Double,
    ByteArray,
    FixedLenByteArray,
}

impl Physical {
    const ALL: [Self; 8] = [
        Self::Boolean,
        Self::Int32,
        Self::Int64,
        Self::Int96,
        Self::Float,
        Self::Double,
        Self::ByteArray,
        Self::FixedLenByteArray,
    ];

    /// Returns the type's number in the index, which is Parquet's own.
    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How the pages of a column are compressed. The numbers are Parquet's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParquetCodec {
    None = 0,
    Snappy = 1,
    Gzip = 2,
    Brotli = 4,
    Lz4 = 5,
    Zstd = 6,
    Lz4Raw = 7,
}

impl ParquetCodec {
    pub(super) const ALL: [Self; 7] =
        [Self::None, Self::Snappy, Self::Gzip, Self::Brotli, Self::Lz4, Self::Zstd, Self::Lz4Raw];

    pub(super) fn of(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| *codec as u32 == code)
    }
}

/// A column, or the leaf of one, that is a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParquetColumn {
    /// Name of the field: the path of the leaf, without the parts that only lists have.
    pub(super) name: String,
    pub(super) physical: Physical,
    /// Bytes of a value of fixed length; 0 for other types.
    pub(super) length: u32,
    /// Type of the elements; `None` for bytes and text.
    pub(super) elements: Option<DType>,
    /// For decimals, which are stored as whole numbers: how many of the digits are after the point.
    pub(super) decimal_digits: Option<u8>,
    /// The definition level of a value that is there.
    pub(super) max_definition: u16,
    /// The definition levels of an element of the list, and of an element of a list in it, if the column is a list, or one
    /// of lists.
    pub(super) lists: Vec<u16>,
}

impl ParquetColumn {
    /// Returns the size of a decoded value in bytes; `None` if values differ in size.
    pub(super) fn width(&self) -> Option<usize> {
        match self.elements {
            Some(elements) => Some(elements.bytes()),
            None if self.physical == Physical::FixedLenByteArray => Some(self.length as usize),
            None => None,
        }
    }

    /// Returns whether the parts of the description fit together.
    pub(super) fn is_consistent(&self) -> bool {
        let fits = match self.physical {
            _ if self.decimal_digits.is_some() => self.is_decimal(),
            Physical::Boolean => self.elements == Some(DType::Bool),
            Physical::Int32 => {
                matches!(self.elements, Some(DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::U32))
            }
            Physical::Int64 => matches!(self.elements, Some(DType::I64 | DType::U64)),
            Physical::Int96 => self.elements == Some(DType::I64),
            Physical::Float => self.elements == Some(DType::F32),
            Physical::Double => self.elements == Some(DType::F64),
            Physical::ByteArray => self.elements.is_none() && self.lists.len() <= 1,
            Physical::FixedLenByteArray => {
                (1..=MAX_FIXED_BYTES).contains(&self.length)
                    && match self.elements {
                        Some(elements) => elements == DType::F16 && self.length == 2,
                        None => self.lists.len() <= 1,
                    }
            }
        };
        let has_length = self.physical == Physical::FixedLenByteArray || self.length == 0;
        let levels = [&[0], &self.lists[..]].concat();
        let rise = levels.is_sorted_by(|outer, inner| outer < inner) && levels.last() <= Some(&self.max_definition);
        fits && has_length && rise && self.lists.len() <= MAX_LISTS && self.max_definition <= MAX_DEFINITION
    }

    /// Returns whether the type is one that decimals have.
    fn is_decimal(&self) -> bool {
        let is_stored = match self.physical {
            Physical::Int32 | Physical::Int64 | Physical::ByteArray => true,
            Physical::FixedLenByteArray => (1..=MAX_DECIMAL_BYTES).contains(&self.length),
            _ => false,
        };
        let elements = match self.decimal_digits {
            Some(0) => DType::I64,
            _ => DType::F64,
        };
        is_stored && self.elements == Some(elements) && self.decimal_digits <= Some(MAX_DECIMAL_DIGITS)
    }
}

/// Upper limit of the bytes of a decimal of fixed length.
pub(super) const MAX_DECIMAL_BYTES: u32 = 16;
/// Upper limit of the digits of a decimal: those that fit into `MAX_DECIMAL_BYTES`.
pub(super) const MAX_DECIMAL_DIGITS: u8 = 38;

/// Upper limit of the bytes of a value of fixed length.
pub(super) const MAX_FIXED_BYTES: u32 = 1 << 20;
/// How deep lists can lie in lists.
pub(super) const MAX_LISTS: usize = 2;
/// Upper limit of the depth of a column.
pub(super) const MAX_DEFINITION: u16 = 64;
