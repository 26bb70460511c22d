//! One column of a batch: typed, with a shape, read in place.

use bytemuck::Pod;
use half::{bf16, f16};
use spdl_job::layout::{BatchView, ColumnLayout, Place};
use spdl_types::DType;

/// A Rust type for the elements of a column. `bool` is none: memory that is shared with another process can hold bytes
/// other than 0 and 1, so a column of `bool` is read as [bytes](BatchColumn::bytes).
pub trait Element: Pod + sealed::Sealed {
    /// The type's name in a job.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}
elements!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64);
elements!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

/// The error of a request for a column of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ColumnError {
    #[error("no column `{column}`; there are {known}")]
    Missing { column: String, known: String },
    #[error("column `{column}` holds {actual}, not {asked}")]
    Type { column: String, actual: &'static str, asked: &'static str },
}

/// A column of a batch. A *fixed* column holds samples of one shape, one after the other: `[n, ...shape of a sample]`.
/// A *ragged* column holds samples with different numbers of rows: `[rows, ...shape of a row]`, with the rows of all
/// samples one after the other, and the offsets at which the samples begin. In a column of bytes, a row is a byte.
#[derive(Clone, Copy, Debug)]
pub struct BatchColumn<'a> {
    batch: BatchView<'a>,
    index: usize,
}

impl<'a> BatchColumn<'a> {
    pub(crate) const fn new(batch: BatchView<'a>, index: usize) -> Self {
        Self { batch, index }
    }

    fn layout(&self) -> &'a ColumnLayout {
        &self.batch.layout().columns()[self.index]
    }

    /// Returns the column's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.layout().name
    }

    /// Returns the type of the column's elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.layout().dtype
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns whether the column has no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns the shape of one sample, `[]` for a scalar, or `None` for a ragged column.
    #[must_use]
    pub fn sample_shape(&self) -> Option<&'a [u32]> {
        match &self.layout().place {
            Place::Fixed { shape, .. } => Some(shape),
            Place::Ragged { .. } => None,
        }
    }

    /// Returns the shape of all values: `[n, ...shape of a sample]`, or of a ragged column `[rows, ...shape of a row]`.
    #[must_use]
    pub fn values_shape(&self) -> Vec<usize> {
        self.batch.values_shape(self.index)
    }

    /// Returns the shape of the whole column, samples first, or `None` for a ragged column.
    #[must_use]
    pub fn shape(&self) -> Option<Vec<usize>> {
        self.sample_shape().map(|_| self.values_shape())
    }

    /// Returns all elements, sample after sample, in row-major order; for a ragged column, all values one after the
    /// other.
    ///
    /// # Errors
    /// Returns [`ColumnError::Type`] when the column holds another type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], ColumnError> {
        self.check::<T>()?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Returns the elements of sample `index`.
    ///
    /// # Errors
    /// Returns [`ColumnError::Type`] when the column holds another type.
    ///
    /// # Panics
    /// Panics when there is no sample `index`.
    pub fn sample<T: Element>(&self, index: usize) -> Result<&'a [T], ColumnError> {
        self.check::<T>()?;
        Ok(bytemuck::cast_slice(self.sample_bytes(index)))
    }

    /// Returns the elements of each sample, in order.
    ///
    /// # Errors
    /// Returns [`ColumnError::Type`] when the column holds another type.
    pub fn samples<T: Element>(&self) -> Result<impl ExactSizeIterator<Item = &'a [T]> + use<'a, T>, ColumnError> {
        self.check::<T>()?;
        let column = *self;
        Ok((0..self.len()).map(move |index| bytemuck::cast_slice(column.sample_bytes(index))))
    }

    /// Returns all bytes of the samples, or of a ragged column's values.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.batch.column_bytes(self.index)
    }

    /// Returns the bytes of sample `index`.
    ///
    /// # Panics
    /// Panics when there is no sample `index`.
    #[must_use]
    pub fn sample_bytes(&self, index: usize) -> &'a [u8] {
        self.batch.sample_bytes(self.index, index)
    }

    /// Returns the `n + 1` offsets, in rows, of a ragged column's samples, or `None` for a fixed column.
    #[must_use]
    pub fn offsets(&self) -> Option<&'a [u64]> {
        self.batch.ragged_offset_bytes(self.index).map(bytemuck::cast_slice)
    }

    fn check<T: Element>(&self) -> Result<(), ColumnError> {
        if self.dtype() == T::DTYPE {
            return Ok(());
        }
        let column = self.name().to_owned();
        Err(ColumnError::Type { column, actual: self.dtype().name(), asked: T::DTYPE.name() })
    }
}
